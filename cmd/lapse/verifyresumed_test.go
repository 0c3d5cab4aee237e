package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lapse/audit/export"
	"lapse/audit/folder"
	"lapse/audit/tree"
	"lapse/schemas"
)

// wroteYear writes an export whose beginning is that of any other with fewer users' transactions.
func wroteYear(t *testing.T, log string, users int, change func(y *year)) (dir, public string) {
	t.Helper()
	dir = t.TempDir()
	y := yearOf(t, dir, log)
	y.pause = time.Minute
	if change != nil {
		change(y)
	}
	y.transactions(users, 50, 7)
	return dir, y.close()
}

func checkExport(t *testing.T, dir, public, save string, known ...string) (*verified, error) {
	t.Helper()
	v := &verifier{app: &app{env: func(string) (string, bool) { return "", false }}, dir: dir, public: public, save: save, known: known}
	r := &verified{}
	return r, v.check(t.Context(), r)
}

func TestAnExportIsVerifiedFromWhereAFormerVerificationCame(t *testing.T) {
	t.Parallel()
	small, public := wroteYear(t, yearLog, 400, nil)
	large, _ := wroteYear(t, yearLog, 1000, nil)
	state, later := filepath.Join(t.TempDir(), "verified.json"), filepath.Join(t.TempDir(), "verified.json")
	first, err := checkExport(t, small, public, state)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := checkExport(t, large, public, "")
	if err != nil {
		t.Fatal(err)
	}
	again, err := checkExport(t, large, public, later, state)
	if err != nil {
		t.Fatal(err)
	}
	if counted := whole.Transactions - again.Transactions; counted < 200 || counted > first.Transactions || again.Records != whole.Records || again.Root != whole.Root ||
		again.Events >= whole.Events-200 || again.Rooted != again.Transactions || !strings.Contains(strings.Join(again.NotChecked, "\n"), "the first 256 records") {
		t.Errorf("from %+v on it finds %+v, and without that %+v", first, again, whole)
	}
	if _, err := checkExport(t, small, public, state, state); err != nil {
		t.Errorf("nothing is new: %v", err)
	}
	if r, err := checkExport(t, large, public, "", later, state); err != nil || r.Checkpoints < 3 {
		t.Errorf("with a checkpoint before it: %+v, %v", r, err)
	}

	forked, _ := wroteYear(t, yearLog, 1000, func(y *year) { y.id = 7 })
	other, theirs := wroteYear(t, "app.example.com/another", 1000, nil)
	for name, c := range map[string]struct{ dir, public, known string }{
		"an export that forked before it": {forked, public, state},
		"an older export":                 {small, public, later},
		"another log":                     {other, theirs, state},
	} {
		if _, err := checkExport(t, c.dir, c.public, "", c.known); err == nil {
			t.Errorf("%s verifies", name)
		} else if found := new(tree.Fault); c.dir != other && (!errors.As(err, &found) || found.File != tree.CheckpointFile) {
			t.Errorf("%s: it says %v", name, err)
		}
	}
}

// What comes after the place is held against the log as ever, and what somebody does to the state is refused or does no harm.
func TestAStateOfAFormerVerificationHidesNothingAfterIt(t *testing.T) {
	t.Parallel()
	small, public := wroteYear(t, yearLog, 400, nil)
	dir, _ := wroteYear(t, yearLog, 700, nil)
	state := filepath.Join(t.TempDir(), "verified.json")
	if _, err := checkExport(t, small, public, state); err != nil {
		t.Fatal(err)
	}
	resumed, err := checkExport(t, dir, public, "", state)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	var left export.State
	if err := json.Unmarshal(whole, &left); err != nil {
		t.Fatal(err)
	}
	for _, f := range left.Files {
		path := filepath.Join(dir, f.Name)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.SplitAfter(content[f.Bytes:], []byte("\n"))
		if len(lines) < 3 {
			continue
		}
		flipped := bytes.Clone(content)
		flipped[int(f.Bytes)+rand.IntN(len(content)-int(f.Bytes))] ^= 1
		for what, changed := range map[string][]byte{
			"a byte flipped": flipped,
			"a line removed": slices.Concat(content[:f.Bytes], bytes.Join(lines[1:], nil)),
			"a line doubled": slices.Concat(content[:f.Bytes], lines[0], content[f.Bytes:]),
			"cut off":        content[:f.Bytes],
		} {
			if err := os.WriteFile(path, changed, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := checkExport(t, dir, public, "", state); !errors.As(err, new(*tree.Fault)) {
				t.Errorf("%s, %s: it says %v", f.Name, what, err)
			}
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	other := filepath.Join(t.TempDir(), "other.json")
	check := func(what string, text []byte) {
		t.Helper()
		if err := os.WriteFile(other, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := checkExport(t, dir, public, "", other); err == nil && r.Transactions < resumed.Transactions {
			t.Errorf("%s: it verifies, and counts %d transactions of %d", what, r.Transactions, resumed.Transactions)
		}
	}
	for range 60 {
		flipped, at := bytes.Clone(whole), rand.IntN(len(whole))
		flipped[at] ^= byte(1 + rand.IntN(255))
		check(fmt.Sprintf("byte %d flipped", at), flipped)
	}
	// Of somebody who makes the sum again.
	changes := map[string]func(e *export.State){
		"a later leaf":          func(e *export.State) { e.Leaf, e.Within = e.Leaf+256, e.Within+256 },
		"later within its tile": func(e *export.State) { e.Within += 20 },
		"another route": func(e *export.State) {
			e.Route = bytes.Replace(e.Route, []byte(`"spanner"`), []byte(`"debezium"`), 1)
		},
		"no route":                         func(e *export.State) { e.Route = json.RawMessage("{}") },
		"another checkpoint":               func(e *export.State) { e.Note = strings.Replace(e.Note, "\n40", "\n41", 1) },
		"without the log's file":           func(e *export.State) { e.Files = e.Files[1:] },
		"a file that nobody has":           func(e *export.State) { e.Files[1].Name = "../" + e.Files[1].Name },
		"a place before the file's begin":  func(e *export.State) { e.Files[1].Bytes = -1 },
		"a place beyond the file":          func(e *export.State) { e.Files[1].Bytes = 1 << 40 },
		"a hash that is none":              func(e *export.State) { e.Files[1].Hash = []byte("x") },
		"a hash of something else":         func(e *export.State) { e.Files[1].Hash = bytes.Clone(e.Files[2].Hash) },
		"an offset of something else":      func(e *export.State) { e.Files[1].Offset++ },
		"lines of something else":          func(e *export.State) { e.Files[1].Lines++ },
		"a file read less":                 func(e *export.State) { f := &e.Files[7]; f.Offset, f.Lines, f.Bytes, f.Hash = -1, 0, 0, nil },
		"topics that lost all they had":    func(e *export.State) { e.Lost = map[string]string{"user": "x"} },
		"a place that goes on from no one": func(e *export.State) { e.Leaf = -1 },
	}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		var e export.State
		if err := json.Unmarshal(whole, &e); err != nil {
			t.Fatal(err)
		}
		changes[name](&e)
		e.Sum = ""
		plain, err := json.Marshal(&e)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(plain)
		e.Sum = hex.EncodeToString(sum[:])
		text, err := json.Marshal(&e)
		if err != nil {
			t.Fatal(err)
		}
		check(name, text)
	}
}

// asSink writes an export into a folder that keeps topics, with its tree.
func asSink(t *testing.T, exported string) (dir string) {
	t.Helper()
	files, err := export.Open(t.Context(), exported)
	if err != nil {
		t.Fatal(err)
	}
	manifest := files.Manifest
	partitions := map[string]int{}
	for _, f := range manifest.Files {
		partitions[f.Topic]++
	}
	dir = filepath.Join(t.TempDir(), "sink")
	cfg := folder.Config{Dir: dir, FenceHeaders: []schemas.Header{{Key: "x", Value: []byte("x")}}}
	for topic, n := range partitions {
		cfg.Topics = append(cfg.Topics, folder.Topic{Name: topic, Partitions: n, Tree: topic == manifest.Topics.Log})
	}
	p, err := folder.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var last uint64
	for i := range manifest.Files {
		_, err := files.Each(t.Context(), &manifest.Files[i], func(rec *schemas.Record, _ int64) error {
			for {
				number, ok := p.Append(*rec)
				if last = max(last, number); ok {
					break
				}
				<-p.Progress()
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for p.Acked() < last {
		<-p.Progress()
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAFolderOfTopicsIsVerifiedFromWhereAFormerVerificationCame(t *testing.T) {
	t.Parallel()
	small, public := wroteYear(t, yearLog, 400, nil)
	large, _ := wroteYear(t, yearLog, 700, nil)
	forked, _ := wroteYear(t, yearLog, 700, func(y *year) { y.id = 7 })
	state := filepath.Join(t.TempDir(), "verified.json")
	if _, err := checkExport(t, asSink(t, small), public, state); err != nil {
		t.Fatal(err)
	}
	sink := asSink(t, large)
	whole, err := checkExport(t, sink, public, "")
	if err != nil {
		t.Fatal(err)
	}
	again, err := checkExport(t, sink, public, "", state)
	if err != nil || again.Records != whole.Records || whole.Transactions-again.Transactions < 200 || again.Rooted != again.Transactions {
		t.Errorf("it finds %+v, and without the state %+v: %v", again, whole, err)
	}
	if _, err := checkExport(t, asSink(t, forked), public, "", state); !errors.As(err, new(*tree.Fault)) {
		t.Errorf("of a fork it says %v", err)
	}
	if again, err := checkExport(t, large, public, "", state); err != nil || again.Transactions != whole.Transactions {
		t.Errorf("an export by the state of a folder of topics: %+v, %v", again, err)
	}
}
