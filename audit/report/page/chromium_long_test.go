//go:build long

package page

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"lapse/internal/fixture"
)

// looked is what the script in testdata/chromium found of one page.
type looked struct {
	File, Look string
	Overflow   int // how many pixels the page is wider than the window
	Asked      int // for how many files
	Passes     int // rules of axe-core; of a print its bytes
	Violations []struct {
		ID, Impact string
		Nodes      []string
	}
}

// A real Chromium shows the page wide, on a phone and dark, and prints it; axe-core finds nothing. LAPSE_PAGES names a
// folder in which the pictures stay.
func TestChromiumShowsThePage(t *testing.T) {
	t.Parallel()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is missing: apt-get install chromium")
	}
	folder := t.TempDir()
	for _, name := range []string{"package.json", "look.js"} {
		text, err := os.ReadFile(filepath.Join("testdata/chromium", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(program string, args ...string) []byte {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir, cmd.Stderr = folder, os.Stderr
		out, err := cmd.Output()
		if err != nil {
			fixture.Missing(t, fmt.Errorf("%s: %w", program, err))
		}
		return out
	}
	run("npm", "install", "--no-audit", "--no-fund", "--loglevel=error")
	pictures := os.Getenv("LAPSE_PAGES")
	if pictures == "" {
		pictures = folder
	}
	r, canonical := example(t)
	redacted, err := r.Redact()
	if err != nil {
		t.Fatal(err)
	}
	files := []string{chromium, pictures}
	certificate, err := NewCertificate(r, "test", r.Holds.Items[0].Matter)
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]*Document{"certificate": certificate, "report": New(r, "test", nil), "redacted": NewRedacted(redacted, "test"), "hostile": sample()} {
		text, err := d.HTML(canonical, "")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(folder, name+".html")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	var all []looked
	if err := json.Unmarshal(run("node", append([]string{"look.js"}, files...)...), &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 20 {
		t.Fatalf("%d looks", len(all))
	}
	for _, l := range all {
		if l.Overflow > 0 {
			t.Errorf("%s, %s: the page is %d pixels wider than the window", l.File, l.Look, l.Overflow)
		}
		if l.Asked != 1 || l.Passes < 10 {
			t.Errorf("%s, %s: it asked for %d files; %d rules pass", l.File, l.Look, l.Asked, l.Passes)
		}
		for _, v := range l.Violations {
			t.Errorf("%s, %s: %s, %s: %q", l.File, l.Look, v.ID, v.Impact, v.Nodes)
		}
	}
}
