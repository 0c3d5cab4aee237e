package tree_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"

	"lapse/audit/tree"
)

// tamper changes a file for the time of a verification, and returns what that finds.
func tamper(t *testing.T, dir, name string, verifier note.Verifier, change func([]byte) []byte) *tree.Fault {
	t.Helper()
	path := filepath.Join(dir, name)
	former, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(bytes.Clone(former)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = verify(t, dir, verifier)
	if err := os.WriteFile(path, former, 0o600); err != nil {
		t.Fatal(err)
	}
	var found *tree.Fault
	if !errors.As(err, &found) {
		t.Fatalf("%s: nothing is found, but %v", name, err)
	}
	return found
}

func TestAFlippedByteOfAnyFileIsFoundInItsPlace(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, logName)
	for _, size := range []int{1, 300, 66100} {
		dir := exported(t, key, valuesOf(size), 1, 200, 256, 290, 65600)
		for _, name := range filesOf(t, dir) {
			content, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			var at []int
			switch {
			case len(content) == 0: // no former checkpoints
				continue
			case size == 66100 && strings.HasPrefix(name, "tile/") && !strings.Contains(name, ".p/") && rand.IntN(100) > 0:
				continue // it has more than five hundred of them
			case size < 66100 && len(content) < 1000:
				for i := range content {
					at = append(at, i)
				}
			default:
				at = []int{rand.IntN(len(content))}
			}
			for _, i := range at {
				mask := byte(1 + rand.IntN(255))
				found := tamper(t, dir, name, key.Verifier(), func(b []byte) []byte { b[i] ^= mask; return b })
				if found.File != name {
					t.Errorf("%d: byte %d of %s, by %#x: it says %v", size, i, name, mask, found)
				}
				if tile, err := torchwood.ParseTilePath(name); err == nil && tile.L >= 0 {
					leaf := (tile.N*256 + int64(i/32)) << (8 * tile.L)
					if found.Leaf != leaf {
						t.Errorf("%d: byte %d of %s is of leaf %d: it says %v", size, i, name, leaf, found)
					}
				}
			}
		}
	}
}

// entriesOf is a bundle, entry by entry.
func entriesOf(t *testing.T, bundle []byte) (entries [][]byte) {
	t.Helper()
	for len(bundle) > 0 {
		n := 2 + int(binary.BigEndian.Uint16(bundle))
		entries, bundle = append(entries, bundle[:n]), bundle[n:]
	}
	return entries
}

func TestAnEntryRemovedDoubledOrSwappedIsFoundInItsPlace(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, logName)
	dir := exported(t, key, valuesOf(66100), 65600)
	for _, bundle := range []struct {
		name  string
		first int64
		count int
	}{{"tile/entries/000", 0, 256}, {"tile/entries/201", 201 * 256, 256}, {"tile/entries/258.p/52", 258 * 256, 52}} {
		for name, change := range map[string]func(all [][]byte, i int) [][]byte{
			"removed": func(all [][]byte, i int) [][]byte { return append(all[:i:i], all[i+1:]...) },
			"doubled": func(all [][]byte, i int) [][]byte { return append(all[:i+1:i+1], all[i:]...) },
			"swapped": func(all [][]byte, i int) [][]byte { all[i], all[i+1] = all[i+1], all[i]; return all },
			"cut off": func(all [][]byte, i int) [][]byte { return all[:i] },
		} {
			i := rand.IntN(bundle.count - 1)
			found := tamper(t, dir, bundle.name, key.Verifier(), func(b []byte) []byte {
				return bytes.Join(change(entriesOf(t, b), i), nil)
			})
			first := bundle.first + int64(i)
			if name == "doubled" {
				first++ // the first of the two is what it should be
			}
			if found.File != bundle.name || found.Leaf != first {
				t.Errorf("leaf %d, %s: it says %v", first, name, found)
			}
		}
		found := tamper(t, dir, bundle.name, key.Verifier(), func(b []byte) []byte { return append(b, 0, 1, 'x') })
		if found.File != bundle.name {
			t.Errorf("an entry after the last: it says %v", found)
		}
	}
}

func TestAnEntryThatIsChangedWithItsHashIsFound(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, logName)
	values := valuesOf(66100)
	dir := exported(t, key, values, 300)
	values[1000] = []byte("nothing was deleted")
	forged := exported(t, newKey(t, 2, logName), values) // who has no key can make every file but the checkpoints
	copied := func(name string) {
		content, err := os.ReadFile(filepath.Join(forged, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	says := func(file string, leaf int64) {
		t.Helper()
		_, err := verify(t, dir, key.Verifier())
		var found *tree.Fault
		if !errors.As(err, &found) || found.File != file || found.Leaf != leaf {
			t.Errorf("want %s and leaf %d: it says %v", file, leaf, err)
		}
	}
	copied("tile/entries/003")
	says("tile/entries/003", 1000)
	copied("tile/0/003")
	says("tile/0/003", 768) // its hash in the tile above is of the leaves from here on
	copied("tile/1/000")
	says("tile/1/000", 0)
	copied("tile/2/000.p/1")
	says("checkpoint", 300) // up to here the former checkpoint fits
}

func TestWhatIsMissingOrDoesNotBelongIsFound(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, logName)
	dir := exported(t, key, valuesOf(700), 300)
	for _, name := range filesOf(t, dir) {
		path := filepath.Join(dir, name)
		if err := os.Rename(path, filepath.Join(dir, "away")); err != nil {
			t.Fatal(err)
		}
		_, err := verify(t, dir, key.Verifier())
		if err := os.Rename(filepath.Join(dir, "away"), path); err != nil {
			t.Fatal(err)
		}
		var found *tree.Fault
		if !errors.As(err, &found) || found.File != name || found.What != "it is missing" {
			t.Errorf("without %s: it says %v", name, err)
		}
	}
	for _, name := range []string{"tile/0/003", "tile/0/002.p/1", "tile/entries/002.p/9", "tile/3/000", "tile/entries/x001/000", "tile/readme"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		_, err := verify(t, dir, key.Verifier())
		var found *tree.Fault
		if !errors.As(err, &found) || found.File != name {
			t.Errorf("with %s: it says %v", name, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := verify(t, dir, key.Verifier()); err != nil {
		t.Error(err)
	}
}

// Who made the folder may want the reader's memory: a file of a gigabyte, which takes no room on disk, is not read to its end.
func TestAFileThatIsTooLargeForATreeIsFoundAndNotRead(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, logName)
	dir := exported(t, key, valuesOf(300), 1, 200)
	for _, name := range filesOf(t, dir) {
		if name == tree.FormerFile {
			continue // it is read line by line
		}
		former, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, name), 1<<30); err != nil {
			t.Fatal(err)
		}
		var found *tree.Fault
		if _, err := verify(t, dir, key.Verifier()); !errors.As(err, &found) || found.File != name || !strings.Contains(found.What, "larger than any file") {
			t.Errorf("%s: got %v", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), former, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A size is the checkpoint's: a larger one is nobody's, and no tile is missing for it.
func TestACheckpointOfMoreRecordsThanWereSignedIsWhatIsFound(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, logName)
	dir := exported(t, key, valuesOf(300))
	for _, size := range []string{"303", "900", "9223372036854775807"} {
		found := tamper(t, dir, "checkpoint", key.Verifier(), func(b []byte) []byte { return bytes.Replace(b, []byte("\n300\n"), []byte("\n"+size+"\n"), 1) })
		if found.File != "checkpoint" {
			t.Errorf("%s: it says %v", size, found)
		}
	}
}
