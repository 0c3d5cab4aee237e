package tree_test

import (
	"os"
	"path/filepath"
	"testing"

	"lapse/audit/tree"
)

// Each checkpoint verifies when it is published, and who began to read the former one can go on. A folder that is opened again, is
// missing, or is broken goes on too, or is made again.
func TestAPublishedTreeVerifiesAtEachCheckpoint(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, "log")
	dir := t.TempDir()
	made := tree.New(key)
	var values [][]byte
	p := tree.NewPublished(dir)
	grow := func(to int) []byte {
		t.Helper()
		for len(values) < to {
			values = append(values, value(len(values)))
			made.Add(made.Next(values[len(values)-1]))
		}
		for p.Size() < int64(to) {
			if err := p.Add(values[p.Size()]); err != nil {
				t.Fatal(err)
			}
		}
		note := noteOf(t, made)
		if err := p.Publish(note); err != nil {
			t.Fatal(err)
		}
		return note
	}
	check := func(want int, known ...[]byte) {
		t.Helper()
		found, err := (&tree.Folder{Files: os.DirFS(dir), Verifier: key.Verifier(), Growing: true, Known: known}).Verify(t.Context())
		if err != nil || found.Size != int64(want) {
			t.Fatalf("at %d: %+v, %v", want, found, err)
		}
	}
	reopen := func() (again bool) {
		t.Helper()
		opened, err := tree.OpenPublished(dir)
		if p = opened; err != nil {
			p, again = tree.NewPublished(dir), true
		}
		return again
	}
	var before []byte
	for i, size := range []int{1, 2, 3, 255, 256, 257, 400, 511, 512, 700, 700, 1100, 65535, 65536, 65600} {
		note := grow(size)
		if before != nil {
			check(size, before)
			// A reader of the former checkpoint finds all of its files.
			old := t.TempDir()
			if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(old, tree.CheckpointFile), before, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(filepath.Join(old, tree.FormerFile), 0); err != nil {
				t.Fatal(err)
			}
			if _, err := (&tree.Folder{Files: os.DirFS(old), Verifier: key.Verifier(), Growing: true}).Verify(t.Context()); err != nil {
				t.Fatalf("of the former checkpoint at %d: %v", size, err)
			}
		}
		before = note
		if i%2 == 0 && reopen() {
			t.Fatalf("at %d it cannot be gone on with", size)
		}
	}
	if err := p.Publish(noteOf(t, tree.New(key))); err == nil {
		t.Error("a checkpoint of another tree is published")
	}
	// What is half written is cut off; what does not fit is made again.
	former, err := os.ReadFile(filepath.Join(dir, tree.FormerFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, tree.FormerFile), append(former, `{"note":"half`...), 0o600); err != nil {
		t.Fatal(err)
	}
	if reopen() {
		t.Error("a half written line is not cut off")
	}
	grow(65700)
	check(65700)
	if err := os.RemoveAll(filepath.Join(dir, "tile", "2")); err != nil {
		t.Fatal(err)
	}
	if !reopen() {
		t.Error("a tree without its edge goes on")
	}
	grow(65800)
	check(65800)
}
