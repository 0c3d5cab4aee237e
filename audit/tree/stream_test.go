package tree_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lapse/audit/tree"
	"lapse/schemas"
)

// topic is a log's topic, as an auditor writes it: a fence with the time before records, and checkpoints.
type topic struct {
	t       *testing.T
	key     *tree.Key
	made    *tree.Tree
	records []schemas.Record
	at      time.Time
	taken   *tree.Snapshot
	offset  int64
}

func newTopic(t *testing.T, key *tree.Key) *topic {
	return &topic{t: t, key: key, made: tree.New(key), at: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)}
}

func (p *topic) fence(value []byte) {
	p.records = append(p.records, schemas.Record{Value: value, Time: p.at, Headers: []schemas.Header{{Key: schemas.HeaderOp, Value: []byte(schemas.OpFence)}}})
}

func (p *topic) leaves(n int) {
	p.fence([]byte(`{"kind":"ends"}`))
	for range n {
		v := value(int(p.made.Size()))
		leaf := p.made.Next(v)
		p.made.Add(leaf)
		p.records = append(p.records, schemas.Record{Value: v, Headers: leaf.AppendHeaders([]schemas.Header{{Key: schemas.HeaderOp, Value: []byte("transaction")}})})
	}
}

// take and sign are two moments: leaves come in between.
func (p *topic) take() {
	var err error
	if p.taken, err = p.made.Snapshot(); err != nil {
		p.t.Fatal(err)
	}
	p.offset = int64(len(p.records))
}

func (p *topic) sign() (note []byte) {
	value, note, err := p.taken.Sign(p.offset)
	if err != nil {
		p.t.Fatal(err)
	}
	p.fence(value)
	return note
}

// logOf300 has checkpoints of 100, 200 and 290 records, each after some that it does not sign, and ten after the last.
func logOf300(t *testing.T, key *tree.Key) (p *topic, notes [][]byte) {
	p = newTopic(t, key)
	for i := range 3 {
		p.leaves(100 - 10*i)
		if i == 2 {
			p.leaves(10)
		}
		p.take()
		p.at = p.at.Add(20 * time.Second)
		p.leaves(10 - 10*(i/2))
		notes = append(notes, p.sign())
	}
	p.leaves(10)
	return p, notes
}

// streamed reads a topic.
func streamed(s *tree.Stream, records []schemas.Record, state []byte) (*tree.Streamed, error) {
	from, err := s.Begin(state)
	if err != nil {
		return nil, err
	}
	for i := from; i < int64(len(records)); i++ {
		if _, err := s.Record(&records[i], i, !records[i].IsFence() && records[i].Header(schemas.HeaderOp) != ""); err != nil {
			return nil, err
		}
	}
	return s.End()
}

func TestALogIsVerifiedWhileItIsRead(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, logName)
	p, notes := logOf300(t, key)
	one := newWitness(t, "one.example.com", 1)
	cosignedNote := cosigned(t, notes[2], one)
	value, err := p.made.Cosigned(cosignedNote)
	if err != nil {
		t.Fatal(err)
	}
	p.fence(value)
	for name, of := range map[string]*tree.Key{"with the key": key, "without": nil} {
		s := &tree.Stream{Place: "log", Verifier: key.Verifier(), Key: of, Known: notes[:2], Witnesses: []*tree.Witness{one.Verifier()}, Quorum: 1}
		found, err := streamed(s, p.records, nil)
		if err != nil {
			t.Fatal(err)
		}
		if found.Records != p.made.Size() || found.Checkpoints != 3 || found.Known != 2 || found.Foreign != 0 || found.Unchecked != 0 || found.Late != 0 ||
			found.Longest != 20*time.Second || found.Cosigned != found.Newest.Size || found.Seen[0].Size != found.Newest.Size || !bytes.Equal(found.Note, cosignedNote) {
			t.Errorf("%s: %d records, %d checkpoints, %d known, %d foreign, %d late (%s at %d), cosigned %d", name, found.Records, found.Checkpoints,
				found.Known, found.Foreign, found.Late, found.Longest, found.LongestLeaf, found.Cosigned)
		}
		// On from there, with more.
		more := &topic{t: t, key: key, made: p.made, records: slices.Clone(p.records), at: p.at}
		state := found.State()
		more.made = tree.New(key)
		for i := range p.made.Size() {
			more.made.Add(more.made.Next(value2(i)))
		}
		more.leaves(50)
		more.take()
		more.at = more.at.Add(45 * time.Second)
		more.sign()
		s = &tree.Stream{Place: "log", Verifier: key.Verifier(), Key: of, Known: notes}
		again, err := streamed(s, more.records, state)
		if err != nil {
			t.Fatal(err)
		}
		if again.Records != more.made.Size() || again.Checkpoints != 1 || again.Late != 1 || again.LongestLeaf != found.Newest.Size || again.Foreign != 0 {
			t.Errorf("%s, from there: %d records, %d checkpoints, %d foreign, %d late at %d", name, again.Records, again.Checkpoints, again.Foreign, again.Late, again.LongestLeaf)
		}
		if _, err := (&tree.Stream{Place: "log", Verifier: newKey(t, 2, logName).Verifier()}).Begin(state); err == nil {
			t.Error("another key takes the state")
		}
	}
}

func value2(i int64) []byte { return value(int(i)) }

// Whatever somebody does to the topic who does not have the key is found, or is stepped over and counted.
func TestWhatIsChangedInALogIsFoundWhileItIsRead(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, logName)
	whole, notes := logOf300(t, key)
	fork := newTopic(t, key)
	fork.made.Add(fork.made.Next([]byte("another beginning")))
	fork.leaves(309)
	fork.take()
	forged := fork.sign()
	leaf := func(i int64) int { // its offset
		return slices.IndexFunc(whole.records, func(r schemas.Record) bool { at, ok := tree.IndexOf(&r); return ok && at == i })
	}
	for name, c := range map[string]struct {
		change func(all []schemas.Record) []schemas.Record
		known  [][]byte
		says   string // empty: it verifies, and so many records are foreign
		with   int
		out    int
	}{
		"a byte": {change: func(all []schemas.Record) []schemas.Record {
			all[leaf(150)].Value = bytes.Replace(all[leaf(150)].Value, []byte("150"), []byte("151"), 1)
			return all
		}, says: "the checkpoint signs"},
		"one removed": {change: func(all []schemas.Record) []schemas.Record { return slices.Delete(all, leaf(7), leaf(7)+1) }, says: "the checkpoint signs"},
		"two swapped": {change: func(all []schemas.Record) []schemas.Record {
			all[leaf(7)], all[leaf(8)] = all[leaf(8)], all[leaf(7)]
			return all
		}, says: "the checkpoint signs"},
		"one doubled": {change: func(all []schemas.Record) []schemas.Record {
			return slices.Insert(all, leaf(7), all[leaf(7)])
		}, with: 1, out: 1},
		"somebody's own": {change: func(all []schemas.Record) []schemas.Record {
			return slices.Insert(all, leaf(7), schemas.Record{Value: []byte("x"), Headers: []schemas.Header{{Key: schemas.HeaderOp, Value: []byte("x")}}})
		}, with: 1, out: 1},
		"a checkpoint of another log": {change: func(all []schemas.Record) []schemas.Record {
			return append(all, fork.records[len(fork.records)-1])
		}, says: "signs another tree"},
		"a checkpoint again": {change: func(all []schemas.Record) []schemas.Record {
			return append(all, all[slices.IndexFunc(all, func(r schemas.Record) bool { _, is := tree.NoteIn(r.Value); return is })])
		}, with: 1, out: 1},
		"the end cut off, and somebody has the checkpoint":        {change: func(all []schemas.Record) []schemas.Record { return all[:leaf(250)] }, known: notes, says: "a checkpoint that you have is of"},
		"another log of the key, and somebody has the checkpoint": {change: func(all []schemas.Record) []schemas.Record { return all }, known: [][]byte{forged}, says: "signs another tree"},
		"nothing": {change: func(all []schemas.Record) []schemas.Record { return all }, known: notes},
	} {
		for has, of := range map[string]*tree.Key{"with the key": key, "without": nil} {
			s := &tree.Stream{Place: "log", Verifier: key.Verifier(), Key: of, Known: c.known}
			found, err := streamed(s, c.change(cloned(whole.records)), nil)
			var fault *tree.Fault
			switch want := map[bool]int{true: c.with, false: c.out}[of != nil]; {
			case c.says != "" && (!errors.As(err, &fault) || fault.File != "log" || !strings.Contains(fault.What, c.says)):
				t.Errorf("%s, %s: it says %v", name, has, err)
			case c.says == "" && (err != nil || found.Foreign != want || found.Records != whole.made.Size()):
				t.Errorf("%s, %s: it says %v, and %+v", name, has, err, found)
			}
		}
	}
}

func cloned(all []schemas.Record) []schemas.Record {
	all = slices.Clone(all)
	for i := range all {
		all[i].Value = bytes.Clone(all[i].Value)
	}
	return all
}

// The memory does not grow with a log that nobody has signed.
func TestALogThatNobodySignsIsReadInBoundedMemory(t *testing.T) {
	t.Parallel()
	s := &tree.Stream{Place: "log", Verifier: newKey(t, 1, logName).Verifier()}
	if _, err := s.Begin(nil); err != nil {
		t.Fatal(err)
	}
	for i := range 1 << 19 {
		rec := schemas.Record{Value: []byte{byte(i)}, Headers: []schemas.Header{{Key: tree.HeaderLeaf, Value: fmt.Append(nil, i)}}}
		if _, err := s.Record(&rec, int64(i), true); err != nil {
			t.Fatal(err)
		}
	}
	if s.Ahead() > 1<<18 {
		t.Errorf("%d leaves are kept", s.Ahead())
	}
	if found, err := s.End(); err != nil || found.Records != 1<<19 || found.Newest != nil {
		t.Errorf("%+v, %v", found, err)
	}
}
