package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lapse/audit/export"
	"lapse/audit/tree"
)

// wantVerified wants an export to verify, on a machine that has nothing but the binary, the folder and the public key; and whatever is
// changed in it to be found in its place.
func wantVerified(t *testing.T, m *machine, dir string) {
	t.Helper()
	manifest := manifestOf(t, dir)
	if manifest.Tree == nil || manifest.Tree.PublicKey == nil || manifest.Tree.Records < 4 {
		t.Fatalf("the export has the tree %+v", manifest.Tree)
	}
	public := *manifest.Tree.PublicKey
	elsewhere := &machine{t: t, bin: m.bin, dir: t.TempDir(), env: []string{"HOME=" + t.TempDir()}}
	says(t, elsewhere.lapse("verify", "--dir", dir, "--public-key", public), "verifies: ", "of the log "+manifest.Tree.Log, "not checked: ")
	says(t, elsewhere.lapse("verify", "--dir", dir), "whose key this is")
	said := m.lapse("verify", "--dir", dir, "--known", filepath.Join(dir, tree.CheckpointFile), "--json")
	if strings.Contains(said, "whose key") || strings.Contains(said, "--known") || !strings.Contains(said, public) {
		t.Errorf("with the key and a checkpoint at hand it says %s", said)
	}
	other, err := tree.NewKey(make([]byte, 32), manifest.Tree.Log)
	if err != nil {
		t.Fatal(err)
	}
	says(t, m.exits(exitPerson, "verify", "--dir", dir, "--public-key", other.Public()), "does not verify: checkpoint: ")
	m.exits(exitInvalid, "verify", "--dir", dir, "--public-key", "app.example.com/lapse")
	m.exits(exitInvalid, "verify", "--dir", t.TempDir())
	wantFound(t, dir, public)
}

// wantFound changes each file of an export in turn.
func wantFound(t *testing.T, dir, public string) {
	t.Helper()
	for _, name := range filesIn(t, dir) {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.SplitAfter(content, []byte("\n"))
		changed := map[string][]byte{"a byte removed": content[:max(len(content)-1, 0)], "a byte after it": append(bytes.Clone(content), '\n')}
		for range min(len(content), 8) {
			flipped, at, mask := bytes.Clone(content), rand.IntN(len(content)), byte(1+rand.IntN(255))
			flipped[at] ^= mask
			changed[fmt.Sprintf("byte %d flipped by %#x", at, mask)] = flipped
		}
		if n := len(lines) - 1; n > 1 && strings.HasSuffix(name, ".jsonl") {
			i := rand.IntN(n - 1)
			changed["a line removed"] = bytes.Join(append(bytes.SplitAfter(content, []byte("\n"))[:i:i], lines[i+1:]...), nil)
			changed["a line doubled"] = bytes.Join(append(bytes.SplitAfter(content, []byte("\n"))[:i+1:i+1], lines[i:]...), nil)
			swapped := bytes.SplitAfter(content, []byte("\n"))
			swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
			changed["two lines swapped"] = bytes.Join(swapped, nil)
		}
		if name != export.ManifestFile {
			changed["the file removed"] = nil
		}
		found(t, dir, name, public, changed)
	}
	found(t, dir, "readme", public, map[string][]byte{"a file more": []byte("x")})
}

// found wants each content of a file to be found, in that file; nil: the file is removed.
func found(t *testing.T, dir, name, public string, contents map[string][]byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	former, missing := os.ReadFile(path)
	for what, content := range contents {
		err := os.WriteFile(path, content, 0o600)
		if content == nil {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		v := &verifier{app: &app{env: func(string) (string, bool) { return "", false }}, dir: dir, public: public}
		err = v.check(t.Context(), &verified{})
		var fault *tree.Fault
		if !errors.As(err, &fault) || fault.File != name && !(name == export.ManifestFile) {
			t.Errorf("%s, %s: it says %v", name, what, err)
		}
	}
	if missing != nil {
		_ = os.Remove(path)
	} else if err := os.WriteFile(path, former, 0o600); err != nil {
		t.Fatal(err)
	}
}

func filesIn(t *testing.T, dir string) (names []string) {
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
