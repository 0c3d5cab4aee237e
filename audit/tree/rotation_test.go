package tree_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"lapse/audit/tree"
	"lapse/schemas"
)

// ringOf is the key with a number and those before it.
func ringOf(t testing.TB, numbers ...byte) *tree.Key {
	t.Helper()
	var secrets []schemas.Key
	for _, n := range numbers {
		secrets = append(secrets, schemas.Key(bytes.Repeat([]byte{n}, schemas.MinKey)))
	}
	key, err := tree.NewKey(secrets[0], logName, secrets[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func jsonOf(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// originOf is the log's first record, as far as the tree knows it.
func originOf(t testing.TB, key *tree.Key) []byte {
	return []byte(`{"kind":"origin","keys":[{"use":"log","public_key":` + string(jsonOf(t, key.Public())) + `}]}`)
}

// routeWith is the record that hands the log over.
func routeWith(t testing.TB, rotation []byte) []byte {
	return []byte(`{"kind":"route","rotation":` + string(jsonOf(t, string(rotation))) + `}`)
}

// rotated is a log of three keys: 300 records under the first, then the change and 300 under the second, then the change and 300 under the third.
type rotated struct {
	topic
	values   [][]byte
	notes    [][]byte
	handover []int64
}

func (r *rotated) add(value []byte) {
	leaf := r.made.Next(value)
	r.made.Add(leaf)
	r.values = append(r.values, value)
	r.records = append(r.records, schemas.Record{Value: value, Headers: leaf.AppendHeaders([]schemas.Header{{Key: schemas.HeaderOp, Value: []byte("x")}})})
}

func newRotated(t *testing.T) *rotated {
	first := ringOf(t, 1)
	r := &rotated{topic: *newTopic(t, first)}
	r.add(originOf(t, first))
	for i, ring := range []*tree.Key{first, ringOf(t, 2, 1), ringOf(t, 3, 2, 1)} {
		if i > 0 { // a start: from the last checkpoint on
			resumed, _, ok := ring.Resume(r.records[len(r.records)-1].Value)
			if !ok {
				t.Fatal("the key that follows does not know the checkpoint")
			}
			r.made = resumed
			signed, err := resumed.Succeed()
			if err != nil || signed == nil {
				t.Fatal(err)
			}
			r.handover = append(r.handover, r.made.Size())
			r.take() // signed after the change is there, and of the tree before it
			r.add(routeWith(t, signed))
			r.notes = append(r.notes, r.sign())
		}
		if again, err := r.made.Succeed(); err != nil || again != nil {
			t.Fatalf("a log under its newest key is handed over: %s, %v", again, err)
		}
		for n := range 300 {
			r.add(value(n))
			if n%100 == 99 {
				r.take()
				r.notes = append(r.notes, r.sign())
			}
		}
	}
	return r
}

func (r *rotated) folder() string {
	t := r.t
	dir := t.TempDir()
	export, err := tree.NewExport(dir, r.notes[len(r.notes)-1])
	for _, one := range r.notes[:len(r.notes)-1] {
		err = errors.Join(err, export.Former(one))
	}
	for _, value := range r.values {
		err = errors.Join(err, export.Add(value))
	}
	if err = errors.Join(err, export.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Who has any one of the log's public keys verifies all of it, online and of an export; who has another one does not.
func TestALogUnderThreeKeysVerifiesByEachOfThem(t *testing.T) {
	t.Parallel()
	r := newRotated(t)
	dir := r.folder()
	for _, number := range []byte{1, 2, 3} {
		public := ringOf(t, number).Verifier()
		found, err := verify(t, dir, public)
		if err != nil || found.Former != len(r.notes)-3 { // two sizes are signed twice
			t.Errorf("an export by key %d: %+v, %v", number, found, err)
		} else if found.By.KeyHash() != ringOf(t, 3).Verifier().KeyHash() {
			t.Errorf("the newest checkpoint is said to be signed by %x", found.By.KeyHash())
		}
		for name, key := range map[string]*tree.Key{"no key": nil, "all keys": ringOf(t, 3, 2, 1), "the newest alone": ringOf(t, 3)} {
			s := &tree.Stream{Place: "log", Verifier: public, Key: key}
			streamed, err := streamed(s, r.records, nil)
			if err != nil || streamed.Records != int64(len(r.values)) || streamed.Foreign != 0 {
				t.Errorf("online by key %d, with %s: %+v, %v", number, name, streamed, err)
			}
		}
	}
	if _, err := verify(t, dir, ringOf(t, 4).Verifier()); err == nil || !strings.Contains(err.Error(), "checkpoint: it does not verify") {
		t.Errorf("by another key an export: %v", err)
	}
	if _, err := streamed(&tree.Stream{Place: "log", Verifier: ringOf(t, 4).Verifier()}, r.records, nil); err == nil {
		t.Error("by another key online: nothing is found")
	}
}

// A key signs in its time alone, and hands the log over with its own signature and that of the next.
func TestNoKeySignsOutsideItsTime(t *testing.T) {
	t.Parallel()
	r := newRotated(t)
	for name, c := range map[string]struct {
		change func(r *rotated)
		says   string
	}{
		"a former key signs what came later": {func(r *rotated) { r.notes[4] = noteBy(t, r, 350, 1) }, "checkpoints.jsonl"},
		"a later key signs what came before": {func(r *rotated) { r.notes[0] = noteBy(t, r, 100, 2) }, "checkpoints.jsonl"},
		"the next key has not signed": {func(r *rotated) {
			r.values[r.handover[0]] = routeWith(t, cutSignature(t, r.values[r.handover[0]], 1))
		}, "leaf 301"},
		"the former key has not signed": {func(r *rotated) {
			r.values[r.handover[0]] = routeWith(t, cutSignature(t, r.values[r.handover[0]], 0))
		}, "leaf 301"},
		"the change is missing": {func(r *rotated) { r.values[r.handover[0]] = value(7) }, "leaf"},
	} {
		other := &rotated{topic: r.topic, values: slices.Clone(r.values), notes: slices.Clone(r.notes), handover: r.handover}
		c.change(other)
		dir := other.folderOf(t)
		for _, number := range []byte{1, 2, 3} {
			if _, err := verify(t, dir, ringOf(t, number).Verifier()); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, by key %d: it says %v", name, number, err)
			}
		}
	}
}

// folderOf is folder, whose records may be others than those that the checkpoints sign: what is changed in the values is made good in the tree.
func (r *rotated) folderOf(t *testing.T) string {
	made := tree.New(ringOf(t, 3))
	for _, v := range r.values {
		made.Add(made.Next(v))
	}
	whole := *r
	whole.notes = slices.Clone(r.notes)
	whole.notes[len(whole.notes)-1] = noteBy(t, r, len(r.values), 3)
	return whole.folder()
}

// noteBy is the note of the first records that a key has signed, whether or not it may.
func noteBy(t *testing.T, r *rotated, size int, number byte) []byte {
	t.Helper()
	made := tree.New(ringOf(t, number))
	for _, v := range r.values[:size] {
		made.Add(made.Next(v))
	}
	return noteOf(t, made)
}

// cutSignature is the rotation of a record without one of its signatures.
func cutSignature(t *testing.T, record []byte, number int) []byte {
	t.Helper()
	var j struct{ Rotation string }
	if err := json.Unmarshal(record, &j); err != nil {
		t.Fatal(err)
	}
	text, signatures, _ := strings.Cut(j.Rotation, "\n\n")
	lines := strings.SplitAfter(signatures, "\n")
	return []byte(fmt.Sprintf("%s\n\n%s", text, lines[1-number]))
}

// An auditor goes on only with the key that the log is under at hand.
func TestALogIsNotHandedOverWithoutItsKey(t *testing.T) {
	t.Parallel()
	r := newRotated(t)
	follows := func(ring *tree.Key) int {
		made, n := tree.New(ring), 0
		for i := range r.records {
			if !r.records[i].IsFence() && made.Follows(&r.records[i]) {
				n++
			}
		}
		return n
	}
	for want, ring := range map[int]*tree.Key{len(r.values): ringOf(t, 3, 2, 1), int(r.handover[1]) + 1: ringOf(t, 2, 1), int(r.handover[0]) + 1: ringOf(t, 1), 0: ringOf(t, 3)} {
		if got := follows(ring); got != want {
			t.Errorf("%d records follow, want %d", got, want)
		}
	}
	newest := r.records[len(r.records)-1].Value
	for _, ring := range []*tree.Key{ringOf(t, 2, 1), ringOf(t, 4)} {
		if _, _, ok := ring.Resume(newest); ok {
			t.Error("a checkpoint of a key that is not at hand is gone on from")
		}
	}
	if by := ringOf(t, 4, 3).By(r.notes[len(r.notes)-1]); by == nil || by.Public() != ringOf(t, 3).Public() {
		t.Error("the key that has signed is not found")
	}
}

// Somebody who has the former key makes another log, and ends it with the true change of the key, which names no tree. That says nothing to a
// reader who has the next key alone: it has signed none of this.
func TestAHandoverThatNoCheckpointCoversProvesNothing(t *testing.T) {
	t.Parallel()
	r := newRotated(t)
	other := &rotated{topic: *newTopic(t, ringOf(t, 1))}
	other.add(originOf(t, ringOf(t, 1)))
	for n := range 50 {
		other.add(value(1000 + n))
	}
	other.take()
	other.sign()
	other.add(r.values[r.handover[0]])
	for number, verifies := range map[byte]bool{1: true, 2: false, 3: false} {
		_, err := streamed(&tree.Stream{Place: "log", Verifier: ringOf(t, number).Verifier()}, other.records, nil)
		if (err == nil) != verifies {
			t.Errorf("by key %d it says %v", number, err)
		}
	}
}

// Where the key is changed twice before a start, the first key hands the log over to the third. The one between has signed nothing.
func TestAKeyThatWasReplacedBeforeAStartIsPassedOver(t *testing.T) {
	t.Parallel()
	r := &rotated{topic: *newTopic(t, ringOf(t, 1))}
	r.add(originOf(t, ringOf(t, 1)))
	r.take()
	r.sign()
	resumed, _, ok := ringOf(t, 3, 2, 1).Resume(r.records[len(r.records)-1].Value)
	if !ok {
		t.Fatal("the checkpoint is not known")
	}
	r.made = resumed
	signed, err := resumed.Succeed()
	if err != nil {
		t.Fatal(err)
	}
	r.add(routeWith(t, signed))
	r.add(value(1))
	r.take()
	r.sign()
	for number, verifies := range map[byte]bool{1: true, 2: false, 3: true} {
		if _, err := streamed(&tree.Stream{Place: "log", Verifier: ringOf(t, number).Verifier()}, r.records, nil); (err == nil) != verifies {
			t.Errorf("by key %d it says %v", number, err)
		}
	}
}
