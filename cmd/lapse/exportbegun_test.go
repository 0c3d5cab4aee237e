package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lapse/audit/export"
)

// wantGoneOn wants an export to be gone on with: with nothing new it is the same, byte for byte, whatever an interrupted one has left; and
// one that is not what its manifest says is refused.
func wantGoneOn(t *testing.T, m *machine, dir string) {
	t.Helper()
	before := contentOf(t, dir)
	log := before[export.ManifestFile]
	manifest := manifestOf(t, dir)
	leave := func(name, text string) {
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			_, err = file.WriteString(text)
			_ = file.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range manifest.Files {
		leave(f.Name, `{"offset":`)
	}
	if err := os.MkdirAll(filepath.Join(dir, "tile/0/000.p"), 0o700); err != nil {
		t.Fatal(err)
	}
	leave("tile/0/000.p/250", "half") // of a larger tree
	m.lapse("events", "--export", dir)
	after := contentOf(t, dir)
	for name, content := range before {
		if !bytes.Equal(after[name], content) {
			t.Errorf("an export that was gone on with has another %s:\n%s\n%s", name, content, after[name])
		}
	}
	if len(after) != len(before) || !bytes.Equal(log, after[export.ManifestFile]) {
		t.Errorf("an export that was gone on with has %d files, and had %d", len(after), len(before))
	}
	m.lapse("verify", "--dir", dir)

	whole, err := os.ReadFile(filepath.Join(dir, manifest.Files[0].Name))
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(whole)
	changed[len(changed)/2] ^= 1
	for name, content := range map[string][]byte{manifest.Files[0].Name: changed} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if said := m.exits(exitFailed, "events", "--export", dir); !strings.Contains(said, name) {
			t.Errorf("of a changed file it says %s", said)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, manifest.Files[0].Name), whole, 0o600); err != nil {
		t.Fatal(err)
	}

	// One that was interrupted before it had a manifest begins again.
	interrupted := filepath.Join(t.TempDir(), "evidence")
	m.lapse("events", "--export", interrupted)
	if err := os.Remove(filepath.Join(interrupted, export.ManifestFile)); err != nil {
		t.Fatal(err)
	}
	m.lapse("events", "--export", interrupted)
	m.lapse("verify", "--dir", interrupted)
}

func contentOf(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, name := range filesIn(t, dir) {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = content
	}
	return all
}
