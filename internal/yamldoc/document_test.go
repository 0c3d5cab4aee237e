package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

func TestATextThatIsNoYAMLDocumentIsRefusedWithItsPlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a: [":                             "f:1:4: not YAML: ",
		"a:\n\t- b":                        "f:2:1: not YAML: ",
		"a:\n    b: 1\n\tc: 2":             "f:3:1: not YAML: found character '\t' that cannot start any token: indent with spaces",
		"a:\n- [::1]:9092":                 "f:2:8: not YAML: value is not allowed in this context: put a text that holds a colon",
		"\xff\xfea\x00:\x00":               "f:1:1: the file is written in UTF-16",
		"\xfe\xff\x00a":                    "f:1:1: the file is written in UTF-16",
		"a: ö\r\nb: öx\xf6":                "f:2:6: this is not UTF-8",
		"\ufeffa: 1\r\nb: 2\r\n":           "",
		"a: 1\n---\nb: 2":                  "f:3:1: a second document: keep one per file",
		"a: 1\n---\n# no second document":  "",
		"":                                 "",
		"# a comment":                      "",
		strings.Repeat(" ", MaxFile+1):     "f:1:1: the file is larger than 1048576 bytes",
		strings.Repeat("[", 50000):         "f:1:101: more than 100 lists or mappings in one another",
		strings.Repeat("{a: ", 50000):      "f:1:401: more than 100 lists or mappings in one another",
		"a:\n" + strings.Repeat("- ", 9e4): "f:2:201: more than 100 lists or mappings in one another",
	} {
		d := Document{File: "f"}
		d.Root([]byte(text))
		if err := d.Err(); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40q: got %v, want %q", text, err, want)
		}
	}
}

func TestAValueIsReadAsWhatItIs(t *testing.T) {
	t.Parallel()
	d := Document{File: "f"}
	entries, ok := d.Entries(d.Root([]byte(strings.TrimLeft(`
nothing:
text: plain
quoted: "12"
block: |
  two
  lines
integer: 1_000
negative: -1
float: 1.5
boolean: true
list: [a, b]
mapping: {a: b}
lines:
  inner: 1
anchor: &x y
alias: *x
tag: !!str 3
twice: 1
twice: 2
`, "\n"))), "the file")
	if !ok || d.Err() != nil {
		t.Fatalf("%t, %v", ok, d.Err())
	}
	got := ""
	for _, e := range entries {
		text, isText := e.Value.Text()
		scalar, isScalar := e.Value.Scalar()
		n, isInt := e.Value.Int()
		value, isBool := e.Value.Bool()
		list, isList := e.Value.List()
		got += fmt.Sprintf("%s %v kind %d at %v", e.Key, e.At, e.Value.Kind(), e.Value.Place())
		for _, one := range []struct {
			is   bool
			what any
		}{{isText, text}, {isScalar && !isText, scalar}, {isInt, n}, {isBool, value}, {isList, len(list)}, {e.Earlier > 0, e.Earlier}} {
			if one.is {
				got += fmt.Sprintf(" %q", fmt.Sprint(one.what))
			}
		}
		got += "\n"
	}
	const want = `nothing {1 1} kind 0 at {1 9}
text {2 1} kind 3 at {2 7} "plain"
quoted {3 1} kind 3 at {3 9} "12"
block {4 1} kind 3 at {4 8} "two\nlines\n"
integer {7 1} kind 4 at {7 10} "1_000" "1000"
negative {8 1} kind 4 at {8 11} "-1"
float {9 1} kind 5 at {9 8} "1.5"
boolean {10 1} kind 6 at {10 10} "true" "true"
list {11 1} kind 2 at {11 7} "2"
mapping {12 1} kind 1 at {12 10}
lines {13 1} kind 1 at {14 3}
anchor {15 1} kind 7 at {15 9}
alias {16 1} kind 7 at {16 8}
tag {17 1} kind 8 at {17 6}
twice {18 1} kind 4 at {18 8} "1" "1"
twice {19 1} kind 4 at {19 8} "2" "2" "18"
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestErrorsAreInTheOrderOfTheFileAndCanBeTakenApart(t *testing.T) {
	t.Parallel()
	d := Document{File: "f"}
	d.Complain(Place{3, 1}, "third")
	d.Complain(Place{1, 9}, "second")
	d.Complain(Place{1, 2}, "first")
	err := d.Err()
	if want := "f:1:2: first\nf:1:9: second\nf:3:1: third"; err == nil || err.Error() != want || d.Count() != 3 {
		t.Errorf("got %v", err)
	}
	var one *Error
	if !errors.As(err, &one) || one.Message != "first" {
		t.Errorf("the first error is %v", one)
	}
}

func TestTheNearestNameIsTheOneWithTheFewestLettersToChange(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"nmae": "name", "Expire": "expire", "colunm": "column", "arm": "", "zzzz": "", "expires": "expire"} {
		if got := Nearest(name, []string{"name", "expire", "column", "armed"}); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// No text makes the reader panic, and every error has a place inside the text.
func FuzzNoTextMakesTheReaderPanic(f *testing.F) {
	for _, text := range []string{"a: [1, {b: c}]\nd: *e", "? [a]\n: b", "*a : b", "a: &b\n  <<: *b", "- - -", "a: |\n  x\n\t", "---\n---\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d := Document{File: "f"}
		var walk func(n Node)
		walk = func(n Node) {
			_, _ = n.Scalar()
			_, _ = n.Int()
			if list, ok := n.List(); ok {
				for _, v := range list {
					walk(v)
				}
			}
			entries, _ := d.Entries(n, "x")
			for _, e := range entries {
				walk(e.Value)
			}
			d.Complain(n.Place(), "x")
		}
		walk(d.Root(text))
		lines := bytes.Count(text, []byte("\n")) + bytes.Count(text, []byte("\r")) + 1
		for _, one := range d.errors {
			if one.Place.Line < 1 || one.Place.Line > lines || one.Place.Column < 1 {
				t.Errorf("an error without a place in the text: %v", one)
			}
		}
	})
}

// A byte order mark, Windows' line breaks and tabs between words change nothing.
func TestAFileIsReadTheSameFromEveryEditor(t *testing.T) {
	t.Parallel()
	const plain = "a: 1\nb: |\n  x\n  y\nlist: [kafka-1:9092, kafka-2:9092, \"[::1]:9092\", http://x/y]\nlast: ü\n"
	read := func(text string) string {
		d := Document{File: "f"}
		entries, _ := d.Entries(d.Root([]byte(text)), "x")
		said := fmt.Sprint(d.Err())
		for _, e := range entries {
			value, _ := e.Value.Scalar()
			list, _ := e.Value.List()
			said += fmt.Sprintf("\n%s at %v: %q at %v", e.Key, e.At, value, e.Value.Place())
			for _, v := range list {
				value, _ := v.Text()
				said += fmt.Sprintf(" %q at %v", value, v.Place())
			}
		}
		return said
	}
	const want = `<nil>
a at {1 1}: "1" at {1 4}
b at {2 1}: "x\ny\n" at {2 4}
list at {5 1}: "" at {5 7} "kafka-1:9092" at {5 8} "kafka-2:9092" at {5 22} "[::1]:9092" at {5 36} "http://x/y" at {5 50}
last at {6 1}: "ü" at {6 7}`
	for name, text := range map[string]string{
		"plain": plain, "a byte order mark": "\ufeff" + plain, "Windows": strings.ReplaceAll(plain, "\n", "\r\n"),
		"both": "\ufeff" + strings.ReplaceAll(plain, "\n", "\r\n"), "an old Mac": strings.ReplaceAll(plain, "\n", "\r"),
	} {
		if got := read(text); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
	places := regexp.MustCompile(` at \{\d+ \d+\}`)
	if got := read(strings.ReplaceAll(plain, " ", "\t")); places.ReplaceAllString(got, "") == places.ReplaceAllString(want, "") {
		t.Error("a tab indents")
	}
	if got := read(strings.ReplaceAll(plain, ": ", ":\t")); places.ReplaceAllString(got, "") != places.ReplaceAllString(want, "") {
		t.Errorf("tabs: got\n%s\nwant\n%s", got, want)
	}
}

func TestAnErrorShowsItsLineWithACaretBelowThePlace(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 80) + "HERE" + strings.Repeat("y", 80)
	for _, c := range []struct {
		line   string
		column int
		want   string
	}{
		{"a: bad", 4, "  | a: bad\n  |    ^"},
		{"\ta:\tü bad \x1b[31m ", 6, "  |  a: ü bad  [31m\n  |      ^"},
		{"end", 4, "  | end\n  |    ^"},
		{"end", 400, "  | end\n  |    ^"},
		{"", 1, ""},
		{"  ", 2, ""},
		{long, 1, "  | " + long[:100] + "…\n  | ^"},
		{long, 81, "  | …" + long[20:120] + "…\n  | " + strings.Repeat(" ", 61) + "^"},
		{long, 164, "  | …" + long[103:] + "\n  | " + strings.Repeat(" ", 61) + "^"},
	} {
		e := &Error{File: "f", Place: Place{1, c.column}, Message: "m", Line: c.line}
		if got := e.Excerpt(); got != c.want {
			t.Errorf("%q at %d: got\n%s\nwant\n%s", c.line, c.column, got, c.want)
		}
	}
	d := Document{File: "f", Lines: Lines([]byte("\ufeffa: 1\r\nb: 2")), Policy: "p"}
	d.Complain(Place{2, 4}, "no")
	d.Complain(Place{3, 1}, "after the end")
	if got, want := d.Err().Error(), "f:2:4: no\n  | b: 2\n  |    ^\nf:3:1: after the end"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestErrorsOfSeveralFilesAreInTheFilesOrder(t *testing.T) {
	t.Parallel()
	all := Errors{
		{File: "a", Place: Place{2, 1}, Message: "3"}, {File: "b", Place: Place{9, 1}, Message: "2"}, {File: "b", Message: "cannot be opened"},
	}.Sorted([]string{"b", "a"})
	if got, want := all.Error(), "b: cannot be opened\nb:9:1: 2\na:2:1: 3"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
