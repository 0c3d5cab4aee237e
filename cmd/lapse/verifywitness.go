package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lapse/audit/export"
	"lapse/audit/tree"
	witnesses "lapse/audit/witness"
)

// byWitnesses are the witnesses and the quorum that verify uses.
type byWitnesses struct {
	named  []string
	quorum quorum
	ask    bool
}

// quorum is the flag that says how many witnesses must have cosigned; 0 if it is not given.
type quorum int

func (q *quorum) String() string { return strconv.Itoa(int(*q)) }

// Set parses the number. It refuses one below 1, which would count as no quorum at all.
func (q *quorum) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return errors.New("want a number of witnesses, 1 or more")
	}
	*q = quorum(n)
	return nil
}

// Type is the name of the flag's argument in the help.
func (q *quorum) Type() string { return "int" }

func (w *byWitnesses) flags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&w.named, "witness", nil, "a witness's `key`, NAME+HASH+KEY, and for --ask its address after a comma; may be repeated (default: witnesses: of lapse.yaml)")
	cmd.Flags().Var(&w.quorum, "quorum", "how many witnesses must have cosigned (default: the quorum of lapse.yaml, or all that are named)")
	cmd.Flags().BoolVar(&w.ask, "ask", false, "ask the witnesses whether they have seen more than this")
}

// seenBy describes what a witness has seen.
type seenBy struct {
	Name    string     `json:"name"`
	Records int64      `json:"records"` // the size of the newest checkpoint that it cosigned; 0 for none
	At      *time.Time `json:"at"`      // when, by its clock
	Says    *int64     `json:"says"`    // the size that it says it has seen; null if it was not asked, or did not answer
}

// shows is what verify reports of every log.
const shows = "whether the log is true or complete. Witnesses show that this log only grew. Somebody who has the server and the keys can label deletions as the " +
	"policy's, change data outside the WAL, or have written another log before the first cosignature; without witness or anchor, at any time"

// verifyWitnesses returns the witnesses whose cosignatures count, and the quorum.
func (v *verifier) verifyWitnesses(result *verified) (all []witnesses.Witness, keys []*tree.Witness, quorum int, err error) {
	quorum = int(v.by.quorum)
	add := func(text, url string) error {
		key, err := tree.ParseWitness(text)
		if err != nil {
			return invalid(err)
		}
		all, keys = append(all, witnesses.Witness{URL: url, Key: key}), append(keys, key)
		return nil
	}
	for _, named := range v.by.named {
		key, url, _ := strings.Cut(named, ",")
		if err := add(key, url); err != nil {
			return nil, nil, 0, err
		}
	}
	if s, err := v.settings(); err == nil && len(all) == 0 {
		for _, w := range s.Witnesses.All {
			if err := add(w.Key, w.URL); err != nil {
				return nil, nil, 0, err
			}
		}
		if quorum == 0 {
			quorum = s.Witnesses.Quorum
		}
	}
	switch {
	case len(all) == 0 && (v.by.ask || quorum > 0):
		return nil, nil, 0, wrongUsage("no witness is named: give --witness, or witnesses: in lapse.yaml")
	case len(all) == 0:
		result.NotChecked = append(result.NotChecked, "whether anybody else has seen this log: no witness was named with --witness, or in lapse.yaml")
	case quorum > len(all):
		return nil, nil, 0, wrongUsage("--quorum %d: there are %d witnesses", quorum, len(all))
	case quorum == 0:
		quorum = len(all)
	}
	return all, keys, quorum, nil
}

// elsewhere uses what others know of the log in a folder: checkpoints that the user kept, and witnesses. published says that the folder is
// a sink's.
func (v *verifier) elsewhere(checked *tree.Folder, published bool, result *verified) (all []witnesses.Witness, before *export.State, err error) {
	if checked.Known, before, err = v.takeExportKnown(); err != nil {
		return nil, nil, err
	}
	if len(checked.Known) == 0 {
		result.NotChecked = append(result.NotChecked, "whether this is the newest export, and the only log that the key has signed: no checkpoint was given with --known")
	}
	if all, checked.Witnesses, checked.Quorum, err = v.verifyWitnesses(result); err != nil || !published || len(all) == 0 {
		return all, before, err
	}
	checked.Quorum = 0
	result.NotChecked = append(result.NotChecked, "cosignatures: the checkpoints that a folder of topics publishes have none; lapse verify without --dir finds them in the log")
	return all, before, nil
}

// takeExportKnown reads the files of --known for an export. before is the saved state, if one of the files is one.
func (v *verifier) takeExportKnown() (all [][]byte, before *export.State, err error) {
	for _, name := range v.known {
		notes, err := knownNotes(name)
		if err != nil {
			return nil, nil, invalid(err)
		}
		all = append(all, notes...)
		state, err := export.ReadState(name)
		if err != nil {
			return nil, nil, invalid(err)
		}
		if state != nil {
			before = state
		}
	}
	return all, before, nil
}

// knownNotes reads the checkpoints in a file that the user kept.
func knownNotes(name string) ([][]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // opened for reading only
	notes, err := tree.ReadNotes(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return notes, nil
}

// seen copies what the witnesses have cosigned to the result.
func (r *verified) seen(of []tree.Seen, cosigned int64) {
	r.Cosigned = cosigned
	for _, s := range of {
		by := seenBy{Name: s.By.Name(), Records: s.Size}
		if s.Size > 0 {
			by.At = &s.At
		}
		r.Witnesses = append(r.Witnesses, by)
	}
}

// askWitnesses asks whether a witness has seen more than the newest checkpoint.
func (v *verifier) askWitnesses(ctx context.Context, place string, all []witnesses.Witness, signed []byte, result *verified) error {
	says, err := v.askSays(ctx, place, all, signed, result.Records, result)
	if err != nil {
		return err
	}
	for i, n := range says {
		if result.Witnesses[i].Says = n; n != nil && *n > result.Records {
			return &tree.Fault{File: place, Leaf: result.Records, What: fmt.Sprintf("%s has seen %d records, and here are %d: this is not the newest, or the log was cut",
				all[i].Key.Name(), *n, result.Records)}
		}
	}
	return nil
}

// askSays asks each witness how much it has seen. It requests a cosignature of a checkpoint from that checkpoint's own size: a witness that
// has seen another size refuses, names its size and changes nothing. nil means that the witness was not asked, or did not answer.
func (v *verifier) askSays(ctx context.Context, place string, all []witnesses.Witness, signed []byte, size int64, result *verified) ([]*int64, error) {
	says := make([]*int64, len(all))
	if !v.by.ask {
		if len(all) > 0 {
			result.NotChecked = append(result.NotChecked, "whether a witness has seen more than this: none was asked (--ask)")
		}
		return says, nil
	}
	client := witnesses.NewClient()
	defer client.CloseIdleConnections()
	for i := range all {
		w := &all[i]
		if w.URL == "" {
			result.NotChecked = append(result.NotChecked, fmt.Sprintf("whether %s has seen more than this: its address is not known", w.Key.Name()))
			continue
		}
		_, err := w.Ask(ctx, client, signed, size, nil)
		var other *witnesses.SeenError
		switch {
		case err == nil:
			says[i] = &size
		case errors.As(err, &other) && other.Size == size:
			return nil, &tree.Fault{File: place, Leaf: -1, What: fmt.Sprintf("%s has seen another log of %d records: the key has signed two", w.Key.Name(), size)}
		case errors.As(err, &other):
			says[i] = &other.Size
		default:
			result.NotChecked = append(result.NotChecked, fmt.Sprintf("whether %s has seen more than this: %v", w.Key.Name(), err))
		}
	}
	return says, nil
}

// witnessLines describes the witnesses in lines.
func (r *verified) witnessLines() (lines []string) {
	for _, w := range r.Witnesses {
		line := fmt.Sprintf("witness     %s has cosigned nothing of this", w.Name)
		if w.At != nil {
			line = fmt.Sprintf("witness     %s has seen %s at %s", w.Name, counted(uint64(w.Records), "record"), w.At.Format(time.RFC3339))
		}
		if w.Says != nil {
			line += fmt.Sprintf(", and says %d", *w.Says)
		}
		lines = append(lines, line)
	}
	if len(r.Witnesses) > 0 {
		lines = append(lines, fmt.Sprintf("cosigned    up to %s by the quorum", counted(uint64(r.Cosigned), "record")))
	}
	return lines
}
