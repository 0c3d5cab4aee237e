package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"lapse/audit/tree"
	"lapse/internal/config"
	"lapse/internal/setup/doctor"
	"lapse/schemas"
)

// cosignedLately is what the log's end says of the witnesses.
type cosignedLately struct {
	quorum time.Time            // when a checkpoint last had the quorum's cosignatures; zero if none was found
	by     map[string]time.Time // the same for each witness
}

const (
	cosignersPatience = 3 * time.Second
	// cosignersBack is the largest number of log records read backward for cosignatures. A busy log has that many within seconds.
	cosignersBack = 200_000
	// cosignedStale is longer than the time between a record and its cosignatures while the audit is healthy and the log grows.
	cosignedStale = 3 * time.Minute
)

// readCosigned reads the log backward until it has found every witness.
func (a *app) readCosigned(ctx context.Context, s *config.Settings) (*cosignedLately, error) {
	var keys []*tree.Witness
	for _, w := range s.Witnesses.All {
		key, err := tree.ParseWitness(w.Key)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	client, err := a.newClient(s)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, cosignersPatience)
	defer cancel()
	found, read := &cosignedLately{by: map[string]time.Time{}}, 0
	err = client.Backward(ctx, s.Topics.Log, 0, -1, func(rec *schemas.Record, _ int64) (bool, error) {
		read++
		if signed, is := tree.CosignedIn(rec.Value); is && rec.IsFence() {
			all, err := tree.Cosignatures(signed, keys)
			if err != nil {
				return true, nil //nolint:nilerr // another writer's
			}
			if found.quorum.IsZero() && len(all) >= s.Witnesses.Quorum {
				found.quorum = rec.Time
			}
			for _, c := range all {
				if found.by[c.By.Name()].IsZero() {
					found.by[c.By.Name()] = rec.Time
				}
			}
		}
		return read < cosignersBack && (found.quorum.IsZero() || len(found.by) < len(keys)), nil
	})
	return found, err
}

// cosignedText says how old the newest cosigned checkpoint is and which witnesses are behind; well reports whether all is in order.
func cosignedText(found *cosignedLately, s *config.Settings, now time.Time) (text string, well bool) {
	if found.quorum.IsZero() {
		text = fmt.Sprintf("no checkpoint has the cosignatures of %d of %d witnesses lately", s.Witnesses.Quorum, len(s.Witnesses.All))
	} else {
		age := now.Sub(found.quorum).Round(time.Second)
		text, well = fmt.Sprintf("the newest checkpoint that the quorum has cosigned is %s old", max(age, 0)), age <= cosignedStale
	}
	for _, w := range s.Witnesses.All {
		name, _, _ := strings.Cut(w.Key, "+")
		switch at := found.by[name]; {
		case at.IsZero():
			text, well = text+fmt.Sprintf("; %s has cosigned nothing lately", name), false
		case now.Sub(at) > cosignedStale:
			text, well = text+fmt.Sprintf("; %s has cosigned nothing for %s", name, now.Sub(at).Round(time.Second)), false
		}
	}
	return text, well
}

// witnessesText is a line about the witnesses; empty if there are none.
func (a *app) witnessesText(ctx context.Context, s *config.Settings) (text string, well bool) {
	if len(s.Witnesses.All) == 0 || s.Audit != config.AuditRequired {
		return "", true
	}
	found, err := a.readCosigned(ctx, s)
	if err != nil {
		return fmt.Sprintf("what they have cosigned is not known: %v", err), false
	}
	return cosignedText(found, s, time.Now())
}

// examineWitnesses is the doctor's finding.
func (a *app) examineWitnesses(ctx context.Context, s *config.Settings) []doctor.Finding {
	text, well := a.witnessesText(ctx, s)
	switch {
	case text == "":
		return nil
	case well:
		return []doctor.Finding{{Check: "witnesses", Grade: doctor.OK, Text: text}}
	}
	return []doctor.Finding{{Check: "witnesses", Grade: doctor.Warn, Text: text, Advice: "the auditor's log says why a witness does not cosign (lapse_witness_failing)"}}
}
