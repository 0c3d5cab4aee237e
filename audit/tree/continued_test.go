package tree_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lapse/audit/tree"
)

// An export that was made in steps, some of them interrupted, is the one that is made at once, byte for byte.
func TestAnExportThatIsGoneOnWithIsTheOneThatIsMadeAtOnce(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, logName)
	rapid.Check(t, func(rt *rapid.T) {
		made, size := tree.New(key), 0
		dir, once := t.TempDir(), t.TempDir()
		var notes [][]byte
		for step := range rapid.IntRange(1, 4).Draw(rt, "steps") {
			by := rapid.SampledFrom([]int{0, 1, 2, 100, 255, 256, 257, 700}).Draw(rt, "by")
			if step == 0 {
				by = max(by, 1)
			}
			for range by {
				made.Add(made.Next(value(size)))
				size++
			}
			if by > 0 {
				notes = append(notes, noteOf(t, made))
			}
			export := func() *tree.Export {
				begin := tree.ContinueExport
				if step == 0 {
					begin = tree.NewExport
				}
				e, err := begin(dir, notes[len(notes)-1])
				if err != nil {
					rt.Fatal(err)
				}
				for i := int(e.Size()); i < size; i++ {
					if err := e.Add(value(i)); err != nil {
						rt.Fatal(err)
					}
				}
				return e
			}
			if step > 0 && rapid.Bool().Draw(rt, "interrupted") {
				export() // its tiles are there, and no checkpoint
			}
			if err := export().Close(); err != nil {
				rt.Fatal(err)
			}
		}
		e, err := tree.NewExport(once, notes[len(notes)-1])
		if err != nil {
			rt.Fatal(err)
		}
		for _, former := range notes {
			if err := e.Former(former); err != nil {
				rt.Fatal(err)
			}
		}
		for i := range size {
			if err := e.Add(value(i)); err != nil {
				rt.Fatal(err)
			}
		}
		if err := e.Close(); err != nil {
			rt.Fatal(err)
		}
		have, want := filesOf(t, dir), filesOf(t, once)
		if strings.Join(have, "\n") != strings.Join(want, "\n") {
			rt.Fatalf("%d leaves: it has %q, want %q", size, have, want)
		}
		for _, name := range want {
			a, _ := os.ReadFile(filepath.Join(dir, name))
			b, _ := os.ReadFile(filepath.Join(once, name))
			if !bytes.Equal(a, b) {
				rt.Fatalf("%d leaves: %s is another", size, name)
			}
		}
	})
}

func TestAnExportOfAnotherOrALargerLogIsNotGoneOnWith(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, logName)
	dir := exported(t, key, valuesOf(300))
	smaller, _ := grown(t, key, 299)
	if _, err := tree.ContinueExport(dir, noteOf(t, smaller)); err == nil || !strings.Contains(err.Error(), "the log was cut") {
		t.Errorf("by a smaller one: %v", err)
	}
	elsewhere, _ := grown(t, newKey(t, 1, "another.example.com"), 400)
	if _, err := tree.ContinueExport(dir, noteOf(t, elsewhere)); err == nil || !strings.Contains(err.Error(), "is an export of the log") {
		t.Errorf("by another: %v", err)
	}
	fork := tree.New(key)
	fork.Add(fork.Next([]byte("another beginning")))
	for i := range 399 {
		fork.Add(fork.Next(value(i + 1)))
	}
	e, err := tree.ContinueExport(dir, noteOf(t, fork))
	if err != nil {
		t.Fatal(err)
	}
	for i := 300; i < 400; i++ {
		if err := e.Add(value(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(); err == nil || !strings.Contains(err.Error(), "are not those that its newest checkpoint signs") {
		t.Errorf("by a fork: %v", err)
	}
}
