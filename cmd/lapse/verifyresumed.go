package main

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"lapse/audit/evidence"
	"lapse/audit/tree"
	"lapse/audit/verify"
	"lapse/internal/durable"
	"lapse/schemas"
)

// verifiedExport is what the verification of an export leaves for the next one, which reads an export that goes on from there: of each file where
// it had come to when the record of a leaf was next. The tree is held against the note; what is before the leaf is taken as it was.
type verifiedExport struct {
	Kind   string            `json:"kind"`   // verifiedExportKind
	Note   string            `json:"note"`   // the checkpoint, with its cosignatures
	Leaf   int64             `json:"leaf"`   // whose record is next; a tile of entries begins with it
	Within int64             `json:"within"` // the first leaf from there on that goes on with no former one's transaction
	Route  json.RawMessage   `json:"route"`  // the record of the route in force there
	Rewind bool              `json:"rewind"` // one was the last before it
	Lost   map[string]string `json:"lost"`   // topics that a gap says have lost records, and up to where
	Files  []verifiedFile    `json:"files"`
	// Sum is over all of that. It keeps nobody from writing another state, who could as well write another lapse; it finds what happens to a file.
	Sum string `json:"sum"`
}

const verifiedExportKind = "verified export"

// verifiedFile is how far a partition's file was read.
type verifiedFile struct {
	Name  string `json:"name"`
	First int64  `json:"first"`
	Begun bool   `json:"begun"` // it had an event
	linePosition
}

// linePosition is a place between two lines of a partition's file.
type linePosition struct {
	Offset int64  `json:"offset"` // of the line before it
	Lines  int    `json:"lines"`
	Bytes  int64  `json:"bytes"`
	Hash   []byte `json:"hash"` // SHA-256 of what is before it, to be gone on with; none of a sink's partition
}

// sum is what Sum is to be.
func (e *verifiedExport) sum() (string, error) {
	plain := *e
	plain.Sum = ""
	text, err := json.Marshal(&plain)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// readVerifiedExport reads what save has written; nil for anything else.
func readVerifiedExport(name string) (*verifiedExport, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	e := &verifiedExport{}
	if json.Unmarshal(text, e) != nil || e.Kind != verifiedExportKind {
		return nil, nil
	}
	sum, err := e.sum()
	if err == nil && (sum != e.Sum || e.Leaf < 0 || e.Within < e.Leaf) {
		err = fmt.Errorf("%s is not as lapse verify --save has written it: verify the export without it", name)
	}
	return e, err
}

// save writes what the next verification goes on from. Nothing was found, up to the end.
func (x *exportFiles) save(name string, signed []byte) (err error) {
	e := x.came
	if e == nil {
		return invalid(fmt.Errorf("--save: the last %d records are of one transaction: a later export can be gone on from", tileWidth))
	}
	e.Kind, e.Note = verifiedExportKind, string(signed)
	if e.Sum, err = e.sum(); err != nil {
		return err
	}
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return durable.Write(name, append(text, '\n'))
}

// tileWidth is how many records are in one file of entries.
const tileWidth = 256

// resumes takes a state up if the files go on from it. An export of other files, or one that was made again without what topics have forgotten, is
// read from its beginning, and held against the state's checkpoint.
func (x *exportFiles) resumes(before *verifiedExport) bool {
	if before == nil || before.Leaf == 0 {
		return false
	}
	from := map[string]*verifiedFile{}
	for i := range before.Files {
		from[before.Files[i].Name] = &before.Files[i]
	}
	seen := 0
	for i := range x.manifest.Files {
		of := &x.manifest.Files[i]
		if f := from[of.Name]; f != nil {
			seen++
			if !x.goesOn(of, f) {
				return false
			}
		}
	}
	record, err := evidence.ParseLogRecord(before.Route)
	if err != nil || seen != len(from) || from[x.manifest.Files[0].Name] == nil {
		return false
	}
	if x.route, err = record.Routing(); err != nil {
		return false
	}
	x.before, x.from, x.routeRecord = before, from, before.Route
	return true
}

// goesOn reports whether a file has a line's end where it was read up to.
func (x *exportFiles) goesOn(of *exportedFile, f *verifiedFile) bool {
	if x.sink != nil {
		return f.Hash == nil && of.First >= f.First
	}
	if of.First != f.First || of.End <= f.Offset || f.Bytes < 0 {
		return false
	}
	if f.Bytes == 0 {
		return f.Lines == 0
	}
	file, err := os.Open(filepath.Join(x.dir, of.Name))
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }() // it was only read
	var last [1]byte
	_, err = file.ReadAt(last[:], f.Bytes-1)
	return err == nil && last[0] == '\n'
}

// goOn has a file be read from where it was read up to.
func (l *exportedLines) goOn(at *linePosition) error {
	if _, err := l.file.Seek(at.Bytes, io.SeekStart); err != nil {
		return err
	}
	l.lines, l.offset, l.bytes = at.Lines, at.Offset, at.Bytes
	return l.sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(at.Hash)
}

// before is the place before the line that was read last, after the one after it.
func (l *exportedLines) before() (at linePosition, err error) {
	at = linePosition{Offset: l.offset - 1, Lines: l.lines - 1, Bytes: l.bytes}
	if l.sum != nil {
		at.Hash, err = l.sum.(encoding.BinaryMarshaler).MarshalBinary()
	}
	return at, err
}

func (l *exportedLines) after() (at linePosition, err error) {
	at = linePosition{Offset: l.offset, Lines: l.lines, Bytes: l.bytes + int64(len(l.last))}
	if l.sum == nil {
		return at, nil
	}
	sum, state := sha256.New(), []byte(nil)
	if state, err = l.sum.(encoding.BinaryMarshaler).MarshalBinary(); err == nil {
		err = sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(state)
	}
	if err != nil {
		return at, err
	}
	sum.Write(l.last)
	at.Hash, err = sum.(encoding.BinaryMarshaler).MarshalBinary()
	return at, err
}

// waypoint keeps where everything is when the account comes to the place that the next verification goes on from.
type waypoint struct {
	x       *exportFiles
	log     *exportedLines
	account *verify.Account
	streams []*exportedLines // of the files after the log's
	from    []*verify.Stream
	leaf    int64 // from which on it may go on; -1: nobody wants to
	below   int64 // and below which
	tile    *verifiedFile
}

// waypoint is for an account of the export.
func (x *exportFiles) waypoint(log *exportedLines, account *verify.Account) *waypoint {
	p := &waypoint{x: x, log: log, account: account, leaf: -1}
	if x.below > 0 {
		p.below, p.leaf = x.below, (x.below-1)/tileWidth*tileWidth
	}
	return p
}

// passes is called with each record of the log before it is counted.
func (p *waypoint) passes(leaf int64, rec *schemas.Record, r *evidence.LogRecord) error {
	if p.leaf < 0 || leaf < p.leaf || leaf >= p.below || p.x.came != nil {
		return nil
	}
	if _, placed := tree.IndexOf(rec); !placed {
		return nil // of a log that had no tree: its records have no numbers to go on by
	}
	if leaf == p.leaf {
		at, err := p.log.before()
		if err != nil {
			return err
		}
		p.tile = &verifiedFile{Name: p.log.of.Name, First: p.log.of.First, linePosition: at}
	}
	if c, is := r.Content.(*evidence.TransactionContent); p.tile == nil || is && c.Further {
		return nil
	}
	if err := p.x.located(p.account.Settle()); err != nil {
		return err
	}
	e := &verifiedExport{Leaf: p.leaf, Within: leaf, Route: slices.Clone(p.x.routeRecord), Rewind: p.account.Rewind(), Lost: map[string]string{}, Files: []verifiedFile{*p.tile}}
	for topic, reach := range p.account.Lost {
		e.Lost[topic] = reach.String()
	}
	for i, lines := range p.streams {
		place := lines.after
		if p.from[i].Ahead() {
			place = lines.before
		}
		at, err := place()
		if err != nil {
			return err
		}
		e.Files = append(e.Files, verifiedFile{Name: lines.of.Name, First: lines.of.First, Begun: p.from[i].Begun(), linePosition: at})
	}
	p.x.came = e
	return nil
}

// lostBefore adds what a state says of topics that have lost records.
func (e *verifiedExport) lostBefore(lost map[string]evidence.Reach) error {
	for topic, text := range e.Lost {
		reach, err := evidence.ParseReach(text)
		if err != nil {
			return invalid(err)
		}
		if lost[topic].Before(reach) {
			lost[topic] = reach
		}
	}
	return nil
}

// takeExportKnown reads what --known names, of an export; before is what a verification has left, if one of them is that.
func (v *verifier) takeExportKnown() (all [][]byte, before *verifiedExport, err error) {
	for _, name := range v.known {
		notes, err := knownNotes(name)
		if err != nil {
			return nil, nil, invalid(err)
		}
		all = append(all, notes...)
		state, err := readVerifiedExport(name)
		if err != nil {
			return nil, nil, invalid(err)
		}
		if state != nil {
			before = state
		}
	}
	return all, before, nil
}

// sameRoute reports whether a record is of the route that a state names: the tree has the record.
func (x *exportFiles) sameRoute(r *evidence.LogRecord) bool {
	return r.Kind == evidence.KindRoute || r.Route == x.route.Fingerprint() && r.RouteVersion == x.route.Version
}

var errOtherRoute = errors.New("the state of a former verification: its route is not the one in force there")
