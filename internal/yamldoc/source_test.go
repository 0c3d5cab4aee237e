package yamldoc_test

import (
	"slices"
	"strings"
	"testing"

	"lapse/internal/yamldoc"
)

func TestTheSourceOfAMappingIsItsTextAndNothingElse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"lines":                         {"list:\n  - a: 1\n    b: two # why\n\n  - c: 3\nother: x\n", []string{"a: 1\nb: two # why", "c: 3"}},
		"the dash on a line of its own": {"list:\n-\n  a: 1\n  b: 2\n", []string{"a: 1\nb: 2"}},
		"comments and empty lines": {
			"list:\n  # of a\n  - a: 1\n# far left\n\n    # of b\n    b: 2\n    # c: 3\n  # of d\n\n  - d: 4\n",
			[]string{"a: 1\n# far left\n\n# of b\nb: 2\n# c: 3", "d: 4"},
		},
		"a text of several lines": {"list:\n  - a: |\n      select 1\n\n        # no comment\n    b: 2\n  - c: \"x\n      y\"\n", []string{"a: |\n  select 1\n\n    # no comment\nb: 2", "c: \"x\n  y\""}},
		"nested":                  {"list:\n  - a:\n      b: 1\n    c:\n    - d\n    - e\n", []string{"a:\n  b: 1\nc:\n- d\n- e"}},
		"braces":                  {"list:\n  - { a: 1, b: {c: [2]} } # of a\n  - {d: 3}\n", []string{"{ a: 1, b: {c: [2]} }", "{d: 3}"}},
		"braces in one line":      {"list: [{a: ä, b: é}, {c: ü}]\n", []string{"{a: ä, b: é}", "{c: ü}"}},
		"braces in several lines": {"list:\n  - {\n      a: 1, # }\n      b: 2\n    }\n  - {c: 3}\n", []string{"{\n      a: 1, # }\n      b: 2\n    }", "{c: 3}"}},
		"braces in texts": {
			`list: [{a: "}", b: '}''}', c: "\"}"}, {d: o'brien}, {e: f#}]` + "\n",
			[]string{`{a: "}", b: '}''}', c: "\"}"}`, `{d: o'brien}`, `{e: f#}`},
		},
		"no mappings": {"list: [1, [2], text]\n", []string{"", "", ""}},
	} {
		d := &yamldoc.Document{File: "f"}
		entries, _ := d.Entries(d.Root([]byte(c.text)), "the file")
		if len(entries) == 0 {
			t.Errorf("%s: %v", name, d.Err())
			continue
		}
		values, _ := entries[0].Value.List()
		var got []string
		for _, v := range values {
			got = append(got, v.Source(strings.Split(c.text, "\n")))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if got := (yamldoc.Node{}).Source(nil); got != "" {
		t.Errorf("the source of nothing is %q", got)
	}
}
