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

// verifiedExport is what the verification of an export saves, so that the verification of a continued export can start there: for each file the
// place that was reached when a certain leaf's record was next. The tree is compared with the note. Nothing before the leaf is verified again.
type verifiedExport struct {
	Kind   string            `json:"kind"`   // verifiedExportKind
	Note   string            `json:"note"`   // the checkpoint with its cosignatures
	Leaf   int64             `json:"leaf"`   // the leaf whose record is next; a tile of entries begins with it
	Within int64             `json:"within"` // the first leaf from there on that does not continue an earlier leaf's transaction
	Route  json.RawMessage   `json:"route"`  // the record of the route that is in force there
	Rewind bool              `json:"rewind"` // whether the record before it was a rewind
	Lost   map[string]string `json:"lost"`   // topics that lost records according to a gap, and up to where
	Files  []verifiedFile    `json:"files"`
	// Sum covers all of the above. It detects damage to the file, not forgery: a forger could as well replace lapse.
	Sum string `json:"sum"`
}

const verifiedExportKind = "verified export"

// verifiedFile says how far a partition's file was read.
type verifiedFile struct {
	Name  string `json:"name"`
	First int64  `json:"first"`
	Begun bool   `json:"begun"` // it had an event
	linePosition
}

// linePosition is a place between two lines of a partition's file.
type linePosition struct {
	Offset int64  `json:"offset"` // the offset of the line before it
	Lines  int    `json:"lines"`
	Bytes  int64  `json:"bytes"`
	Hash   []byte `json:"hash"` // the state of the SHA-256 of the bytes before it; none for a sink's partition
}

// sum computes Sum.
func (e *verifiedExport) sum() (string, error) {
	plain := *e
	plain.Sum = ""
	text, err := json.Marshal(&plain)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// readVerifiedExport reads what save wrote; nil for any other text.
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

// save writes what the next verification needs to continue. It is called after a verification without faults.
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

// tileWidth is the number of records in a file of entries.
const tileWidth = 256

// resumes uses a state if the files continue it, and reports whether they do. If not, because they are other files or lack records that the topics
// lost meanwhile, the export is read from its beginning, and its tree is compared with the state's checkpoint.
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

// goOn has the verification begin where a former one came to, where that can be.
func (x *exportFiles) goOn(before *verifiedExport, checked *tree.Folder, lost map[string]evidence.Reach, result *verified) error {
	if !x.resumes(before) {
		return nil
	}
	checked.From = before.Leaf
	result.NotChecked = append(result.NotChecked,
		fmt.Sprintf("the first %s, and their events: a former verification found nothing in them, as --known says", counted(uint64(before.Leaf), "record")))
	return before.lostBefore(lost)
}

// goesOn reports whether a line ends at the place up to which a file was read.
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
	defer func() { _ = file.Close() }() // opened for reading only
	var last [1]byte
	_, err = file.ReadAt(last[:], f.Bytes-1)
	return err == nil && last[0] == '\n'
}

// goOn moves a file's reader to the place up to which the file was read.
func (l *exportedLines) goOn(at *linePosition) error {
	if _, err := l.file.Seek(at.Bytes, io.SeekStart); err != nil {
		return err
	}
	l.lines, l.offset, l.bytes = at.Lines, at.Offset, at.Bytes
	return l.sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(at.Hash)
}

// before is the place between the last line read and the line before it.
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
	sum := sha256.New()
	state, err := l.sum.(encoding.BinaryMarshaler).MarshalBinary()
	if err == nil {
		err = sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(state)
	}
	if err != nil {
		return at, err
	}
	sum.Write(l.last)
	at.Hash, err = sum.(encoding.BinaryMarshaler).MarshalBinary()
	return at, err
}

// waypoint saves all places when the account reaches a place from which the next verification can continue.
type waypoint struct {
	x       *exportFiles
	log     *exportedLines
	account *verify.Account
	streams []*exportedLines // the files' readers, except the log's
	from    []*verify.Stream
	leaf    int64 // the first leaf at which it can continue; -1 if that is not wanted
	below   int64 // the end of such leaves
	tile    *verifiedFile
}

// waypoint makes the waypoint of an export's account.
func (x *exportFiles) waypoint(log *exportedLines, account *verify.Account) *waypoint {
	p := &waypoint{x: x, log: log, account: account, leaf: -1}
	if x.below > 0 {
		p.below, p.leaf = x.below, (x.below-1)/tileWidth*tileWidth
	}
	return p
}

// passes is called with each log record before the account counts it.
func (p *waypoint) passes(leaf int64, rec *schemas.Record, r *evidence.LogRecord) error {
	if p.leaf < 0 || leaf < p.leaf || leaf >= p.below || p.x.came != nil {
		return nil
	}
	if _, placed := tree.IndexOf(rec); !placed {
		return nil // from before the log had a tree: such records have no numbers
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

// lostBefore adds the topics that lost records according to a state.
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

// takeExportKnown reads the files of --known for an export. before is the saved state, if one of the files is one.
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

// sameRoute reports whether a record is that of the route that a state names. The tree contains the record.
func (x *exportFiles) sameRoute(r *evidence.LogRecord) bool {
	return r.Kind == evidence.KindRoute || r.Route == x.route.Fingerprint() && r.RouteVersion == x.route.Version
}

var errOtherRoute = errors.New("the state of a former verification: its route is not the one in force there")
