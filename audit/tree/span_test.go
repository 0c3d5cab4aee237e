package tree_test

import (
	"testing"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"lapse/audit/tree"
)

// rootOf is a tree's root now.
func rootOf(t testing.TB, made *tree.Tree) tlog.Hash {
	t.Helper()
	c, err := tree.Peek(noteOf(t, made))
	if err != nil {
		t.Fatal(err)
	}
	return c.Root
}

// From each size of a small tree to each later one, by the check of Go's own checksum database.
func TestATreeProvesThatItGrewFromEachSizeThatASpanBeganAt(t *testing.T) {
	t.Parallel()
	made := tree.New(newKey(t, 1, logName))
	roots := map[int64]tlog.Hash{}
	for i := range 140 {
		size := made.Size()
		roots[size] = rootOf(t, made)
		made.Span()
		proofs := proofsOf(t, made)
		if len(proofs) != i+1 {
			t.Fatalf("at %d leaves there are %d proofs", size, len(proofs))
		}
		for old, proof := range proofs {
			if old == 0 {
				continue
			}
			if err := tlog.CheckTree(proof, size, roots[size], old, roots[old]); err != nil {
				t.Errorf("from %d to %d leaves: %v", old, size, err)
			}
		}
		made.Add(made.Next(value(i)))
	}
	made.Keep(func(size int64) bool { return size == 7 })
	if proofs := proofsOf(t, made); len(proofs) != 1 || proofs[7] == nil {
		t.Errorf("of the spans that are kept there are the proofs %v", proofs)
	}
}

func TestATreeProvesThatItGrewHoweverFar(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, logName)
	rapid.Check(t, func(rt *rapid.T) {
		made := tree.New(key)
		grow := func(by int) {
			for range by {
				made.Add(made.Next(value(int(made.Size()))))
			}
		}
		grow(rapid.IntRange(1, 5000).Draw(rt, "before"))
		old, root := made.Size(), rootOf(t, made)
		made.Span()
		grow(rapid.IntRange(0, 5000).Draw(rt, "after"))
		proofs := proofsOf(t, made)
		if err := tlog.CheckTree(proofs[old], made.Size(), rootOf(t, made), old, root); err != nil {
			rt.Fatalf("from %d to %d leaves: %v", old, made.Size(), err)
		}
	})
}

func proofsOf(t testing.TB, made *tree.Tree) tree.Proofs {
	t.Helper()
	taken, err := made.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return taken.Proofs
}
