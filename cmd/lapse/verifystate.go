package main

import (
	"encoding/json"
	"fmt"
	"os"

	"lapse/audit/tree"
)

// verifiedState is what a verification saves, so that the next one can continue from there.
type verifiedState struct {
	Kind       string           `json:"kind"` // verifiedKind
	Note       string           `json:"note"` // the newest checkpoint with its cosignatures
	Checkpoint json.RawMessage  `json:"checkpoint"`
	Partitions []verifiedOffset `json:"partitions"` // those of the topics of events
}

type verifiedOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"` // the last record's
}

const verifiedKind = "verified"

// logCoverage says which part of the database's past the log covers.
type logCoverage struct {
	From    string   `json:"from"`
	To      string   `json:"to"`
	Gaps    []logGap `json:"gaps"`    // the first hundred
	Missing int      `json:"missing"` // the number of gaps
	Rewinds int      `json:"rewinds"`
}

type logGap struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason"`
}

// logSchedule says whether checkpoints came in time.
type logSchedule struct {
	Late    int     `json:"late"`    // checkpoints that came more than half a minute after a record that they sign
	Longest float64 `json:"longest"` // seconds
	Leaf    *int64  `json:"leaf"`    // the record that waited that long
}

// readKnown reads checkpoints that the user has kept, or the state that a verification saved.
func readKnown(name string) ([][]byte, *verifiedState, error) {
	notes, err := knownNotes(name)
	if err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, err
	}
	var state verifiedState
	if json.Unmarshal(text, &state) == nil && state.Kind == verifiedKind {
		return notes, &state, nil
	}
	return notes, nil, nil
}

// takeKnown reads the files of --known for a log in its topic. before is the saved state, if one of the files is one.
func (v *verifier) takeKnown(result *verified) (all [][]byte, before *verifiedState, err error) {
	for _, name := range v.known {
		notes, state, err := readKnown(name)
		if err != nil {
			return nil, nil, invalid(err)
		}
		if state != nil {
			before = state
		}
		all = append(all, notes...)
	}
	if len(v.known) == 0 {
		result.NotChecked = append(result.NotChecked, "whether this is the only log that the key has signed, and nothing is cut off: no checkpoint was given with --known")
	}
	return all, before, nil
}

// onlineLines describes the verification of a log in its topic.
func (r *verified) onlineLines() (lines []string) {
	c := r.Coverage
	if c == nil || r.Schedule == nil {
		return nil
	}
	lines = append(lines, fmt.Sprintf("covers      %s to %s, with %s and %s", c.From, c.To, counted(c.Missing, "gap"), counted(c.Rewinds, "rewind")))
	for _, g := range c.Gaps {
		lines = append(lines, fmt.Sprintf("gap         from %s to %s: %s", g.From, g.To, g.Reason))
	}
	if c.Missing > len(c.Gaps) {
		lines = append(lines, fmt.Sprintf("gap         and %d more", c.Missing-len(c.Gaps)))
	}
	line := fmt.Sprintf("schedule    no record waited longer than %.0f s for its checkpoint", r.Schedule.Longest)
	if r.Schedule.Late > 0 {
		line = fmt.Sprintf("schedule    %s later than %.0f s: an auditor was stopped, or waited for its brokers; the longest wait was %.0f s, of record %d",
			counted(r.Schedule.Late, "checkpoint"), tree.CheckpointWithin.Seconds(), r.Schedule.Longest, *r.Schedule.Leaf)
	}
	lines = append(lines, line)
	if r.Foreign > 0 {
		lines = append(lines, fmt.Sprintf("foreign     %s of another writer in the log's topic, ignored: find out who may write there (ACL: WRITE)", counted(r.Foreign, "record")))
	}
	return append(lines, fmt.Sprintf("ledger      %s in the database", counted(r.Batches, "batch")))
}
