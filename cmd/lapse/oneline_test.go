package main

import (
	"strings"
	"testing"

	"lapse/internal/setup"
)

// What doctor prints is run by people as it is printed: a name with a line break in it adds no statement, in the text or behind the
// dashes.
func TestALineBreakInANameIsNoStatementOfTheDoctors(t *testing.T) {
	t.Parallel()
	const name = "k\n        alter role app superuser; --\r\x1b[2J"
	var out strings.Builder
	(&app{out: &out}).printFindings([]setup.Finding{
		{Check: "policy p", Grade: setup.Warn, Text: `foreign key of "` + name + `" has no action`, Advice: `alter table "` + name + `" …`},
		{Check: "policy " + name, Grade: setup.OK, Text: "fit"},
	})
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 4 || strings.ContainsAny(out.String(), "\r\x1b") || !strings.HasPrefix(lines[1], "        -- ") {
		t.Errorf("it prints\n%s", out.String())
	}
}
