package tree_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"lapse/audit/tree"
)

// exported is a folder with the tree of so many records, and a former checkpoint of each size in between that is named.
func exported(t testing.TB, key *tree.Key, values [][]byte, former ...int) string {
	t.Helper()
	dir := t.TempDir()
	made := tree.New(key)
	var notes [][]byte
	for _, value := range values {
		made.Add(made.Next(value))
		for _, size := range former {
			if made.Size() == int64(size) {
				notes = append(notes, noteOf(t, made))
			}
		}
	}
	export, err := tree.NewExport(dir, noteOf(t, made))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range notes {
		if err := export.Former(one); err != nil {
			t.Fatal(err)
		}
	}
	for _, value := range append(values, []byte("of no checkpoint yet")) {
		if err := export.Add(value); err != nil {
			t.Fatal(err)
		}
	}
	if err := export.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func valuesOf(size int) [][]byte {
	values := make([][]byte, size)
	for i := range values {
		values[i] = value(i)
	}
	return values
}

func verify(t testing.TB, dir string, verifier note.Verifier, known ...[]byte) (*tree.Verified, error) {
	t.Helper()
	return (&tree.Folder{Files: os.DirFS(dir), Verifier: verifier, Known: known}).Verify(t.Context())
}

// sizes are where tiles begin and end. The last has three levels of them.
var sizes = []int{1, 2, 255, 256, 257, 512, 700, 65536, 66100}

func TestAnExportVerifiesAndSomebodyElsesClientReadsIt(t *testing.T) {
	t.Parallel()
	for _, size := range sizes {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			key, values := newKey(t, 1, logName), valuesOf(size)
			dir := exported(t, key, values, 1, 200, 256, 600, size)
			found, err := verify(t, dir, key.Verifier())
			if err != nil {
				t.Fatal(err)
			}
			former := 0
			for _, n := range []int{1, 200, 256, 600} {
				if n < size {
					former++
				}
			}
			if found.Size != int64(size) || found.Origin != logName || found.Former != former {
				t.Errorf("it finds %+v, want %d and %d former", found, size, former)
			}
			readWithTorchwood(t, dir, key.Verifier(), values)
		})
	}
}

// readWithTorchwood reads an export as a client of tlog-tiles does that knows nothing of Lapse: it proves every entry and every
// tile that it reads, and that the tree of the checkpoint grew from half of it.
func readWithTorchwood(t *testing.T, dir string, verifier note.Verifier, values [][]byte) {
	t.Helper()
	signed, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	policy := torchwood.ThresholdPolicy(2, torchwood.OriginPolicy(logName), torchwood.SingleVerifierPolicy(verifier))
	checkpoint, _, err := torchwood.VerifyCheckpoint(signed, policy)
	if err != nil {
		t.Fatal(err)
	}
	files, err := torchwood.NewTileFS(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	client, err := torchwood.NewClient(files)
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for i, entry := range client.AllEntries(t.Context(), checkpoint.Tree, 0) {
		if !bytes.Equal(entry, values[i]) {
			t.Fatalf("entry %d is %s", i, entry)
		}
		read++
	}
	if err := client.Err(); err != nil || read != len(values) {
		t.Fatalf("%d entries of %d were read: %v", read, len(values), err)
	}
	half := int64(len(values)+1) / 2
	hashes := torchwood.TileHashReaderWithContext(t.Context(), checkpoint.Tree, files)
	root, err := tlog.TreeHash(half, hashes)
	if err != nil {
		t.Fatal(err)
	}
	proof, err := tlog.ProveTree(checkpoint.N, half, hashes)
	if err != nil {
		t.Fatal(err)
	}
	if err := tlog.CheckTree(proof, checkpoint.N, checkpoint.Hash, half, root); err != nil {
		t.Error(err)
	}
}

// filesOf are all files of a folder, by their names.
func filesOf(t testing.TB, dir string) (names []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestAForkAndAnOlderCopyAreFoundByWhoHasAnotherCheckpoint(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, logName)
	values := valuesOf(700)
	dir := exported(t, key, values, 300)
	older := exported(t, key, values[:600], 300)
	forkedValues := valuesOf(700)
	forkedValues[500] = []byte("another")
	forked := exported(t, key, forkedValues, 300, 650)
	read := func(dir string) []byte {
		signed, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	for name, c := range map[string]struct {
		dir   string
		known [][]byte
		file  string // "": nothing is found
		leaf  int64
	}{
		"the log":                              {dir, nil, "", 0},
		"the log, and a checkpoint before":     {dir, [][]byte{read(older), read(dir)}, "", 0},
		"an older copy, and nothing else":      {older, nil, "", 0},
		"an older copy":                        {older, [][]byte{read(dir)}, "checkpoint", 600},
		"a fork, and nothing else":             {forked, nil, "", 0},
		"a fork":                               {forked, [][]byte{read(older)}, "checkpoint", 0},
		"a fork of the same size":              {forked, [][]byte{read(dir)}, "checkpoint", 0},
		"the log, and a checkpoint of a fork":  {dir, [][]byte{read(forked), read(older)}, "checkpoint", 600},
		"a fork's checkpoint over the log's":   {dir, nil, "checkpoint", 300},
		"a fork's checkpoint among the former": {dir, nil, "checkpoints.jsonl", 300},
	} {
		restore := func() {}
		var replaced string
		switch {
		case strings.Contains(name, "over the log's"):
			replaced = "checkpoint"
		case strings.Contains(name, "among the former"):
			replaced = "checkpoints.jsonl"
		}
		if replaced != "" {
			former, err := os.ReadFile(filepath.Join(c.dir, replaced))
			if err != nil {
				t.Fatal(err)
			}
			other, err := os.ReadFile(filepath.Join(forked, replaced))
			if err == nil {
				err = os.WriteFile(filepath.Join(c.dir, replaced), other, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			restore = func() { _ = os.WriteFile(filepath.Join(c.dir, replaced), former, 0o600) }
		}
		_, err := verify(t, c.dir, key.Verifier(), c.known...)
		restore()
		var found *tree.Fault
		switch is := errors.As(err, &found); {
		case c.file == "" && err != nil, c.file != "" && !is, is && (found.File != c.file || found.Leaf != c.leaf):
			t.Errorf("%s: it says %v", name, err)
		}
	}
	if _, err := verify(t, dir, newKey(t, 2, logName).Verifier()); err == nil {
		t.Error("another key verifies it")
	}
	if _, err := verify(t, dir, newKey(t, 1, "another").Verifier()); err == nil {
		t.Error("another log's key verifies it")
	}
}

func TestAnExportOfWhatTheCheckpointDoesNotSignHasNoCheckpoint(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, logName)
	made, _ := grown(t, key, 300)
	for name, values := range map[string][][]byte{
		"a record too few": valuesOf(299), "another record": append(valuesOf(299), []byte("another")),
	} {
		dir := t.TempDir()
		export, err := tree.NewExport(dir, noteOf(t, made))
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range values {
			if err := export.Add(value); err != nil {
				t.Fatal(err)
			}
		}
		if export.Close() == nil {
			t.Errorf("%s: it is closed", name)
		}
		if _, err := os.Stat(filepath.Join(dir, tree.CheckpointFile)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: there is a checkpoint: %v", name, err)
		}
	}
}

func TestVerifyHandsOverEveryEntryAndStopsWhenToldTo(t *testing.T) {
	t.Parallel()
	key := newKey(t, 1, logName)
	values := valuesOf(700)
	dir := exported(t, key, values)
	ctx, cancel := context.WithCancel(t.Context())
	read, progress := 0, int64(0)
	folder := &tree.Folder{
		Files: os.DirFS(dir), Verifier: key.Verifier(),
		Entry: func(leaf int64, entry []byte) error {
			if leaf != int64(read) || !bytes.Equal(entry, values[leaf]) {
				t.Errorf("leaf %d is handed over as %s", leaf, entry)
			}
			read++
			return nil
		},
		Progress: func(done, size int64) { progress = done },
	}
	if _, err := folder.Verify(ctx); err != nil || read != 700 || progress != 700 {
		t.Errorf("%d entries, %d said: %v", read, progress, err)
	}
	refused := errors.New("this entry is refused")
	folder.Entry = func(leaf int64, _ []byte) error {
		if leaf == 300 {
			return refused
		}
		return nil
	}
	if _, err := folder.Verify(ctx); !errors.Is(err, refused) {
		t.Errorf("an entry that is refused: %v", err)
	}
	cancel()
	if _, err := folder.Verify(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("told to stop: %v", err)
	}
}
