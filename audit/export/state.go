package export

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"lapse/audit/evidence"
	"lapse/internal/durable"
)

// State is what a verification saves, so that the verification of a continued export can start there: for each file the
// place that was reached when a certain leaf's record was next. The tree is compared with the note. Nothing before the leaf is verified again.
type State struct {
	Kind   string            `json:"kind"`   // stateKind
	Note   string            `json:"note"`   // the checkpoint with its cosignatures
	Leaf   int64             `json:"leaf"`   // the leaf whose record is next; a tile of entries begins with it
	Within int64             `json:"within"` // the first leaf from there on that does not continue an earlier leaf's transaction
	Route  json.RawMessage   `json:"route"`  // the record of the route that is in force there
	Rewind bool              `json:"rewind"` // whether the record before it was a rewind
	Lost   map[string]string `json:"lost"`   // topics that lost records according to a gap, and up to where
	Files  []fileState       `json:"files"`
	// Sum covers all of the above. It detects damage to the file, not forgery: a forger could as well replace lapse.
	Sum string `json:"sum"`
}

const stateKind = "verified export"

// fileState says how far a partition's file was read.
type fileState struct {
	Name  string `json:"name"`
	First int64  `json:"first"`
	Begun bool   `json:"begun"` // it had an event
	place
}

// place is a place between two lines of a partition's file.
type place struct {
	Offset int64  `json:"offset"` // the offset of the line before it
	Lines  int    `json:"lines"`
	Bytes  int64  `json:"bytes"`
	Hash   []byte `json:"hash"` // the state of the SHA-256 of the bytes before it; none for a sink's partition
}

// sum computes Sum.
func (e *State) sum() (string, error) {
	plain := *e
	plain.Sum = ""
	text, err := json.Marshal(&plain)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// ReadState reads what Save wrote; nil for any other text.
func ReadState(name string) (*State, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	e := &State{}
	if json.Unmarshal(text, e) != nil || e.Kind != stateKind {
		return nil, nil
	}
	sum, err := e.sum()
	if err == nil && (sum != e.Sum || e.Leaf < 0 || e.Within < e.Leaf) {
		err = fmt.Errorf("%s is not as lapse verify --save has written it: verify the export without it", name)
	}
	return e, err
}

// Save writes what the next verification needs to continue into a file, whole or not at all; signed is the newest checkpoint. Call it after a verification
// without faults. The error for an export that nothing can continue from is an *InputError.
func (r *Reader) Save(name string, signed []byte) (err error) {
	e := r.came
	if e == nil {
		return invalid("--save: the last %d records are of one transaction: a later export can be gone on from", tileWidth)
	}
	e.Kind, e.Note = stateKind, string(signed)
	if e.Sum, err = e.sum(); err != nil {
		return err
	}
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return durable.Write(name, append(text, '\n'))
}

// tileWidth is the number of records in a file of entries.
const tileWidth = 256

// Resume has the verification begin where a former one came to, and returns the first leaf that it verifies: 0 if the files do not continue the state,
// because they are other files or lack records that the topics lost meanwhile. The export is then read from its beginning, and its tree is compared
// with the state's checkpoint. Call it before Tree, with the state's checkpoint among those that Tree is given as known; before may be nil.
func (r *Reader) Resume(before *State) (leaf int64, err error) {
	if before == nil || before.Leaf == 0 || !r.resumes(before) {
		return 0, nil
	}
	for topic, text := range before.Lost {
		reach, err := evidence.ParseReach(text)
		if err != nil {
			return 0, invalid("%w", err)
		}
		if r.lost[topic].Before(reach) {
			r.lost[topic] = reach
		}
	}
	return before.Leaf, nil
}

// resumes uses a state if the files continue it, and reports whether they do.
func (r *Reader) resumes(before *State) bool {
	from := map[string]*fileState{}
	for i := range before.Files {
		from[before.Files[i].Name] = &before.Files[i]
	}
	seen := 0
	for i := range r.Manifest.Files {
		of := &r.Manifest.Files[i]
		if f := from[of.Name]; f != nil {
			seen++
			if !r.goesOn(of, f) {
				return false
			}
		}
	}
	record, err := evidence.ParseLogRecord(before.Route)
	if err != nil || seen != len(from) || from[r.Manifest.Files[0].Name] == nil {
		return false
	}
	if r.route, err = record.Routing(); err != nil {
		return false
	}
	r.before, r.from, r.routeRecord = before, from, before.Route
	return true
}

// goesOn reports whether a line ends at the place up to which a file was read.
func (r *Reader) goesOn(of *File, f *fileState) bool {
	if r.sink != nil {
		return f.Hash == nil && of.First >= f.First
	}
	if of.First != f.First || of.End <= f.Offset || f.Bytes < 0 {
		return false
	}
	if f.Bytes == 0 {
		return f.Lines == 0
	}
	file, err := os.Open(filepath.Join(r.dir, of.Name))
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }() // opened for reading only
	var last [1]byte
	_, err = file.ReadAt(last[:], f.Bytes-1)
	return err == nil && last[0] == '\n'
}

// sameRoute reports whether a record is that of the route that a state names. The tree contains the record.
func (r *Reader) sameRoute(record *evidence.LogRecord) bool {
	return record.Kind == evidence.KindRoute || record.Route == r.route.Fingerprint() && record.RouteVersion == r.route.Version
}
