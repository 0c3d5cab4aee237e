package tree_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"lapse/audit/tree"
	"lapse/internal/evidencetest"
	"lapse/schemas"
)

const logName = "app.example.com/lapse"

func newKey(t testing.TB, first byte, name string) *tree.Key {
	t.Helper()
	key, err := tree.NewKey(append(schemas.Key{first}, make([]byte, schemas.MinKey-1)...), name)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func value(i int) []byte { return fmt.Appendf(nil, `{"kind":"transaction","xid":"%d"}`, i) }

// grown is a tree with so many leaves, and their records.
func grown(t testing.TB, key *tree.Key, size int) (*tree.Tree, []schemas.Record) {
	t.Helper()
	made := tree.New(key)
	records := make([]schemas.Record, size)
	for i := range records {
		leaf := made.Next(value(i))
		made.Add(leaf)
		records[i] = schemas.Record{Value: value(i), Headers: leaf.AppendHeaders(nil)}
	}
	return made, records
}

func sign(t testing.TB, made *tree.Tree, offset int64) []byte {
	t.Helper()
	taken, err := made.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	value, _, err := taken.Sign(offset)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// noteOf is the signed note of a checkpoint over a tree.
func noteOf(t testing.TB, made *tree.Tree) []byte {
	t.Helper()
	text, ok := tree.NoteIn(sign(t, made, 0))
	if !ok {
		t.Fatal("a checkpoint has no note")
	}
	return text
}

var update = flag.Bool("update", false, "write the golden file again")

func TestACheckpointIsItsGoldenFileAndFitsItsSchema(t *testing.T) {
	t.Parallel()
	made, _ := grown(t, newKey(t, 7, logName), 300)
	cosigned, err := made.Cosigned([]byte(string(noteOf(t, made)) + "— one.example.com " + strings.Repeat("AAAA", 25) + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	for kind, values := range map[string][][]byte{
		"log-checkpoint": {sign(t, made, 301), sign(t, tree.New(newKey(t, 7, logName)), 0)},
		"log-cosigned":   {cosigned},
	} {
		path := filepath.Join(evidencetest.SchemasDir(), "golden", kind+".json")
		if *update {
			if err := os.WriteFile(path, values[0], 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || !bytes.Equal(values[0], want) {
			t.Errorf("got %s\nwant %s, %v", values[0], want, err)
		}
		for _, value := range values {
			if err := evidencetest.Schema(t, kind).Validate(evidencetest.ParseJSON(t, value)); err != nil {
				t.Errorf("%s: %v", value, err)
			}
		}
	}
}

func TestTheRootIsTheOneOfRFC6962(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, logName)
	made := tree.New(key)
	var stored []tlog.Hash
	read := tlog.HashReaderFunc(func(at []int64) (hashes []tlog.Hash, err error) {
		for _, i := range at {
			hashes = append(hashes, stored[i])
		}
		return hashes, nil
	})
	for i := range 700 {
		made.Add(made.Next(value(i)))
		more, err := tlog.StoredHashes(int64(i), value(i), read)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, more...)
		want, err := tlog.TreeHash(int64(i+1), read)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tree.Open(noteOf(t, made), key.Verifier())
		if err != nil {
			t.Fatal(err)
		}
		if got.Root != want || got.Size != int64(i+1) || got.Origin != logName {
			t.Fatalf("%d leaves: %+v, want the root %s", i+1, got, want)
		}
	}
}

func TestOnlyTheNextLeafOfTheChainFollows(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, logName)
	_, records := grown(t, key, 10)
	_, others := grown(t, newKey(t, 2, logName), 10)
	_, elsewhere := grown(t, newKey(t, 1, "another.example.com/lapse"), 10)
	begun := func() *tree.Tree {
		made := tree.New(key)
		for i := range 5 {
			if !made.Follows(&records[i]) {
				t.Fatalf("leaf %d does not follow", i)
			}
		}
		return made
	}
	altered := func(alter func(r *schemas.Record)) *schemas.Record {
		r := records[5]
		r.Value = bytes.Clone(r.Value)
		r.Headers = []schemas.Header{{Key: tree.HeaderLeaf, Value: bytes.Clone(r.Headers[0].Value)}, {Key: tree.HeaderLink, Value: bytes.Clone(r.Headers[1].Value)}}
		alter(&r)
		return &r
	}
	if !begun().Follows(altered(func(*schemas.Record) {})) {
		t.Error("the next leaf does not follow")
	}
	for name, r := range map[string]*schemas.Record{
		"the leaf before again":      &records[4],
		"one that leaves one out":    &records[6],
		"a leaf of another key":      &others[5],
		"a leaf of another log":      &elsewhere[5],
		"another value":              altered(func(r *schemas.Record) { r.Value[3] ^= 1 }),
		"another link":               altered(func(r *schemas.Record) { r.Headers[1].Value[0] ^= 1 }),
		"a link that is cut":         altered(func(r *schemas.Record) { r.Headers[1].Value = r.Headers[1].Value[:7] }),
		"another index":              altered(func(r *schemas.Record) { r.Headers[0].Value = []byte("6") }),
		"no index":                   altered(func(r *schemas.Record) { r.Headers = r.Headers[1:] }),
		"no link":                    altered(func(r *schemas.Record) { r.Headers = r.Headers[:1] }),
		"a former leaf, index fixed": {Value: records[2].Value, Headers: []schemas.Header{records[5].Headers[0], records[2].Headers[1]}},
	} {
		made := begun()
		if made.Follows(r) || made.Size() != 5 {
			t.Errorf("%s follows", name)
		}
		if !made.Follows(&records[5]) {
			t.Errorf("after %s the next leaf does not follow", name)
		}
	}
}

func TestACheckpointResumesTheTreeAndNothingElseDoes(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, logName)
	for _, size := range []int{1, 2, 3, 255, 256, 257, 300} {
		_, records := grown(t, key, size+20)
		made := tree.New(key)
		for i := range size {
			made.Follows(&records[i])
		}
		checkpoint := sign(t, made, 41)
		again, offset, ok := key.Resume(checkpoint)
		if !ok || offset != 41 || again.Size() != int64(size) {
			t.Fatalf("%d: it resumes %v, %d", size, ok, offset)
		}
		for i := size; i < len(records); i++ {
			if !again.Follows(&records[i]) || !made.Follows(&records[i]) {
				t.Fatalf("%d: leaf %d does not follow", size, i)
			}
		}
		if !bytes.Equal(noteOf(t, again), noteOf(t, made)) {
			t.Errorf("%d: they come to different trees", size)
		}
		for i := range checkpoint {
			flipped := bytes.Clone(checkpoint)
			flipped[i] ^= 1
			// JSON reads a name in any case; what it reads must be what was written all the same.
			if other, at, ok := key.Resume(flipped); ok && (at != offset || !bytes.Equal(sign(t, other, at), checkpoint)) {
				t.Fatalf("%d: with byte %d flipped it resumes another tree", size, i)
			}
		}
		for name, other := range map[string]*tree.Key{"another key": newKey(t, 2, logName), "another log's key": newKey(t, 1, "other")} {
			if _, _, ok := other.Resume(checkpoint); ok {
				t.Errorf("%d: it resumes under %s", size, name)
			}
		}
	}
}

func TestALongRecordsLeafNamesItsHash(t *testing.T) {
	t.Parallel()
	fits, long, other := make([]byte, 65535), make([]byte, 65536), make([]byte, 65536)
	other[70] = 1
	if !bytes.Equal(tree.Entry(fits), fits) {
		t.Error("a record that fits is not its own entry")
	}
	if got := string(tree.Entry(long)); got != `{"kind":"long","length":65536,"sha256":"de2f256064a0af797747c2b97505dc0b9f3df0de4f489eac731c23ae9ca9cc31"}` {
		t.Errorf("the entry of a long record is %s", got)
	}
	if bytes.Equal(tree.Entry(long), tree.Entry(other)) {
		t.Error("two long records have one entry")
	}
}

func TestALogsNameIsOneThatANoteMayHave(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "two words", "a+b", "line\n"} {
		if _, err := tree.NewKey(make(schemas.Key, schemas.MinKey), name); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
	if _, err := tree.NewKey(make(schemas.Key, 31), logName); err == nil {
		t.Error("a short key is taken")
	}
	key := newKey(t, 1, logName)
	if !strings.HasPrefix(key.Public(), logName+"+") {
		t.Errorf("the public key is %s", key.Public())
	}
	if _, err := note.NewVerifier(key.Public()); err != nil {
		t.Error(err)
	}
}

func BenchmarkALeaf(b *testing.B) {
	for _, c := range []struct{ size, spans int }{{200, 0}, {200, 6}, {666, 0}} {
		b.Run(fmt.Sprintf("%d bytes, %d spans", c.size, c.spans), func(b *testing.B) {
			made, record := tree.New(newKey(b, 1, logName)), make([]byte, c.size)
			for range c.spans {
				made.Add(made.Next(record))
				made.Span()
			}
			b.ReportAllocs()
			headers := make([]schemas.Header, 0, 2)
			for b.Loop() {
				leaf := made.Next(record)
				_ = leaf.AppendHeaders(headers)
				made.Add(leaf)
			}
		})
	}
}
