package evidence

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWhatIsDeclaredFitsEveryEncodingAndIsReadBack(t *testing.T) {
	t.Parallel()
	for _, d := range []Declared{
		{true, "", ""},
		{true, "14 days", ""},
		{true, `"\` + "\u2028<&>", "35 Tage, dann überschrieben – \U0001F5D1"},
		{true, strings.Repeat("\U0001F5D1", MaxDeclared), strings.Repeat("\U0001F5D1", MaxDeclared)},
	} {
		text := d.Text()
		if strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) || len(text) > 6000 {
			t.Errorf("%d bytes: %.80s", len(text), text)
		}
		if got := parseDeclared(text); got != d {
			t.Errorf("%+v is read as %+v", d, got)
		}
	}
}

func TestWhatIsNoDeclarationDeclaresNothing(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Declared{
		"":                   {},
		"35 days":            {},
		"[]":                 {},
		`{"backups":35}`:     {},
		`{"replicas":"1 d"}`: {Stated: true},
		`{"backups":"` + strings.Repeat("é", 1000) + `"}`: {true, "", strings.Repeat("é", MaxDeclared)},
	} {
		if got := parseDeclared(text); got != want {
			t.Errorf("%.40s: %+v", text, got)
		}
	}
}
