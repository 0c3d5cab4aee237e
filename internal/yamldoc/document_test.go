package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestATextThatIsNoYAMLDocumentIsRefusedWithItsPlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a: [":                            "f:1:4: not YAML: ",
		"a:\n\t- b":                       "f:2:1: not YAML: ",
		"a: 1\n---\nb: 2":                 "f:3:1: a second document: keep one per file",
		"a: 1\n---\n# no second document": "",
		"":                                "",
		"# a comment":                     "",
		strings.Repeat(" ", MaxFile+1):    "f:1:1: the file is larger than 1048576 bytes",
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
	d.Add(Errors{{File: "f", Place: Place{1, 2}, Message: "first"}})
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
