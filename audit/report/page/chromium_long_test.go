//go:build long

package page

import (
	"os"
	"path/filepath"
	"testing"

	"lapse/internal/browsertest"
)

// A real Chromium shows the page wide, on a phone and dark, and prints it; axe-core finds nothing, and nothing but the page is asked for.
func TestChromiumShowsThePage(t *testing.T) {
	t.Parallel()
	b := browsertest.Open(t)
	r, canonical := example(t)
	redacted, err := r.Redact()
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := NewCertificate(r, "test", r.Holds.Items[0].Matter)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, d := range map[string]*Document{"certificate": certificate, "report": New(r, "test", nil), "redacted": NewRedacted(redacted, "test"), "hostile": sample()} {
		text, err := d.HTML(canonical, "")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(folder, name+".html")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		open := func(what, size, scheme string) {
			b.Do("size " + size)
			b.Do("scheme " + scheme)
			b.Do("open file://" + file)
			if asked := b.Asked(); len(asked) != 1 {
				t.Errorf("%s: it asked for %q", what, asked)
			}
		}
		for _, look := range []struct{ name, size, scheme string }{
			{"wide", "1200 1600", "light"},
			{"phone", "390 844", "light"},
			{"dark", "1200 1600", "dark"},
		} {
			what := name + "-" + look.name
			open(what, look.size, look.scheme)
			b.Do("eval document.querySelectorAll('details').forEach((d) => { d.open = true })")
			b.Shot(what)
			b.Fits(what)
			b.Axe(what)
		}
		for paper, size := range map[string][2]float64{"A4": {8.27, 11.69}, "Letter": {8.5, 11}} {
			what := name + "-" + paper
			open(what, "800 600", "light")
			b.Print(what, size[0], size[1])
		}
	}
}
