package tree_test

import (
	"bytes"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"

	"lapse/audit/tree"
)

func newWitness(t testing.TB, name string, first byte) *torchwood.CosignatureSigner {
	t.Helper()
	w, err := torchwood.NewCosignatureSigner(name, ed25519.NewKeyFromSeed(append([]byte{first}, make([]byte, ed25519.SeedSize-1)...)))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// cosigned adds the cosignatures of witnesses to a note.
func cosigned(t testing.TB, signed []byte, by ...*torchwood.CosignatureSigner) []byte {
	t.Helper()
	text, _ := tree.TextOf(signed)
	signed = bytes.Clone(signed)
	for _, w := range by {
		other, err := note.Sign(&note.Note{Text: text}, w)
		if err != nil {
			t.Fatal(err)
		}
		signed = append(signed, other[len(text)+1:]...)
	}
	return signed
}

// exportCosigned is an export of 300 records with checkpoints at 100, 200, 250 and 300; one has cosigned all but the newest, two the first.
func exportCosigned(t testing.TB, key *tree.Key, one, two *torchwood.CosignatureSigner) string {
	t.Helper()
	dir, made := t.TempDir(), tree.New(key)
	notes := map[int64][]byte{}
	for _, value := range valuesOf(300) {
		made.Add(made.Next(value))
		notes[made.Size()] = noteOf(t, made)
	}
	export, err := tree.NewExport(dir, notes[300])
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{100, 200, 250} {
		if err := export.Former(notes[size]); err != nil {
			t.Fatal(err)
		}
		if size == 200 { // both come after the next checkpoint
			export.Cosigned(cosigned(t, notes[100], one, two))
		}
	}
	export.Cosigned(cosigned(t, notes[200], one))
	export.Cosigned(cosigned(t, notes[250], one))
	export.Cosigned([]byte("no note"))
	export.Cosigned(cosigned(t, noteOf(t, tree.New(key)), two)) // of a checkpoint that nobody has handed over
	for _, value := range valuesOf(300) {
		if err := export.Add(value); err != nil {
			t.Fatal(err)
		}
	}
	if err := export.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAnExportHasItsCosignaturesAndSaysWhoSawWhatLast(t *testing.T) {
	t.Parallel()
	key, one, two := newKey(t, 1, logName), newWitness(t, "one.example.com", 1), newWitness(t, "two.example.com", 2)
	dir := exportCosigned(t, key, one, two)
	for quorum, want := range map[int]int64{0: 0, 1: 250, 2: 100} {
		folder := &tree.Folder{Files: os.DirFS(dir), Verifier: key.Verifier(), Witnesses: []*tree.Witness{one.Verifier(), two.Verifier()}, Quorum: quorum}
		found, err := folder.Verify(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if found.Former != 3 || found.Cosigned != want || found.Seen[0].Size != 250 || found.Seen[1].Size != 100 || found.Seen[0].At.IsZero() {
			t.Errorf("with a quorum of %d: %+v", quorum, found)
		}
	}
}

// What somebody does to cosignatures who cannot make any.
func TestACosignatureThatIsStrippedForgedOrReplayedIsFound(t *testing.T) {
	t.Parallel()
	key, one, two := newKey(t, 1, logName), newWitness(t, "one.example.com", 1), newWitness(t, "two.example.com", 2)
	impostor := newWitness(t, "one.example.com", 9)
	dir := exportCosigned(t, key, one, two)
	read := func(name string) string {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	former, newest := read(tree.FormerFile), read(tree.CheckpointFile)
	lines := strings.SplitAfter(strings.TrimSuffix(former, "\n"), "\n")
	line := func(of string, name string) string { // of a cosignature, as JSON has it
		at := strings.Index(of, "— "+name)
		return of[at : at+strings.Index(of[at:], `\n`)+2]
	}
	replayed := line(lines[0], "one.example.com")
	for name, c := range map[string]struct {
		quorum         int
		former, newest string
		file, says     string
	}{
		"all of one are stripped":        {2, strings.ReplaceAll(former, line(lines[0], "one.example.com"), ""), newest, tree.CheckpointFile, "neither it nor a former one"},
		"another key of the name":        {1, "", string(cosigned(t, []byte(newest), impostor)), tree.CheckpointFile, "neither it nor a former one"},
		"one of the checkpoint before":   {1, former, newest + strings.ReplaceAll(replayed, `\n`, "\n"), tree.CheckpointFile, "does not verify"},
		"one of another former, in line": {1, strings.Replace(former, line(lines[1], "one.example.com"), replayed, 1), newest, tree.FormerFile, "does not verify"},
	} {
		for file, content := range map[string]string{tree.FormerFile: c.former, tree.CheckpointFile: c.newest} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		folder := &tree.Folder{Files: os.DirFS(dir), Verifier: key.Verifier(), Witnesses: []*tree.Witness{one.Verifier(), two.Verifier()}, Quorum: c.quorum}
		if _, err := folder.Verify(t.Context()); err == nil || !strings.HasPrefix(err.Error(), c.file) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: it says %v", name, err)
		}
	}
}

func TestACosignedCheckpointOfTheLogHasItsSeal(t *testing.T) {
	t.Parallel()
	key, other := newKey(t, 1, logName), newKey(t, 2, logName)
	made, _ := grown(t, key, 5)
	signed := cosigned(t, noteOf(t, made), newWitness(t, "one.example.com", 1))
	value, err := made.Cosigned(signed)
	if err != nil {
		t.Fatal(err)
	}
	if back, ok := tree.CosignedIn(value); !ok || !bytes.Equal(back, signed) || !key.HasCosigned(value) || other.HasCosigned(value) {
		t.Errorf("it is read back as %q", back)
	}
	if _, ok := tree.NoteIn(value); ok {
		t.Error("it counts as a checkpoint of its own")
	}
	if _, _, ok := key.Resume(value); ok {
		t.Error("a start goes on from it")
	}
	if key.HasCosigned(bytes.Replace(value, []byte("one.example.com"), []byte("two.example.com"), 1)) {
		t.Error("another text has the same seal")
	}
}
