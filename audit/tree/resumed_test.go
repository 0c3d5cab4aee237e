package tree_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"lapse/audit/tree"
)

// An export is read from some leaf on. A fork before it, and an older copy, are found as ever, and so is what is changed after it.
func TestAnExportIsVerifiedFromALeafOn(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, logName)
	for range 5 {
		former := 2 + rand.IntN(2000)
		size, small := former+rand.IntN(1500), 1+rand.IntN(former)
		values := valuesOf(size)
		forkedAt := rand.IntN(former)
		forkedValues := slices.Clone(values)
		forkedValues[forkedAt] = []byte("another")
		dir, older := exported(t, key, values, small, former), exported(t, key, slices.Clip(values[:former-1]))
		forked := exported(t, key, forkedValues, small)
		known := noteOf(t, grownTo(key, values[:former]))
		from := int64(former-1) / 256 * 256
		name := fmt.Sprintf("%d of %d, %d", former, size, small)

		first, read := int64(-1), 0
		folder := &tree.Folder{
			Files: os.DirFS(dir), Verifier: key.Verifier(), From: from, Known: [][]byte{known, noteOf(t, grownTo(key, values[:small]))},
			Entry: func(leaf int64, _ []byte) error {
				if first < 0 {
					first = leaf
				}
				read++
				return nil
			},
		}
		found, err := folder.Verify(t.Context())
		if err != nil || first != from || read != size-int(from) || found.Size != int64(size) || found.Known != 2 {
			t.Errorf("%s: %d entries from leaf %d on were read, want from %d: %+v, %v", name, read, first, from, found, err)
		}
		wantFault := func(what, dir string, known ...[]byte) {
			t.Helper()
			_, err := (&tree.Folder{Files: os.DirFS(dir), Verifier: key.Verifier(), From: from, Known: known}).Verify(t.Context())
			if found := new(tree.Fault); !errors.As(err, &found) {
				t.Errorf("%s, %s: it says %v", name, what, err)
			}
		}
		wantFault("a fork", forked, known)
		wantFault("an older copy", older, known)
		if small > forkedAt {
			wantFault("a checkpoint before it, of a fork", dir, known, noteOf(t, grownTo(key, forkedValues[:small])))
		}
		if found := tamperFrom(t, dir, key, from, known, int(from)+rand.IntN(size-int(from))); !found {
			t.Errorf("%s: an entry that was changed is not found", name)
		}

		// Without a checkpoint of more leaves all entries are read.
		first = -1
		folder.Known = folder.Known[1:]
		if small > int(from) {
			continue
		}
		if _, err := folder.Verify(t.Context()); err != nil || first != 0 {
			t.Errorf("%s: without a checkpoint it reads from leaf %d on: %v", name, first, err)
		}
	}
}

func grownTo(key *tree.Key, values [][]byte) *tree.Tree {
	made := tree.New(key)
	for _, v := range values {
		made.Add(made.Next(v))
	}
	return made
}

// tamperFrom flips a byte of the entries that a leaf is among, and reports whether that is found.
func tamperFrom(t *testing.T, dir string, key *tree.Key, from int64, known []byte, leaf int) bool {
	t.Helper()
	path := filepath.Join(dir, fmt.Sprintf("tile/entries/%03d", leaf/256))
	former, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		all, _ := filepath.Glob(path + ".p/*")
		path = all[0]
		former, err = os.ReadFile(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	changed := slices.Clone(former)
	changed[rand.IntN(len(changed))] ^= 1
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = (&tree.Folder{Files: os.DirFS(dir), Verifier: key.Verifier(), From: from, Known: [][]byte{known}}).Verify(t.Context())
	if err := os.WriteFile(path, former, 0o600); err != nil {
		t.Fatal(err)
	}
	found := new(tree.Fault)
	return errors.As(err, &found)
}
