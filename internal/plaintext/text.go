// Package plaintext writes names and numbers for people. It shows as escapes what changes how a text is shown and is not seen: control characters, what reverses the direction (U+202E),
// what has no width, and other line breaks than \n. A name that has them looks like another one. The escapes are those of JSON.
package plaintext

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Text leaves line breaks and tabs as they are.
func Text(text string) string {
	return escaped(text, func(r rune) bool { return r != '\n' && r != '\t' && hides(r) })
}

// Line is Text without line breaks: in a name, text after a line break would look like another line, and SQL in it be run when the
// output is run.
func Line(text string) string { return escaped(text, hides) }

func hides(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

func escaped(text string, escape func(rune) bool) string {
	if !strings.ContainsFunc(text, escape) {
		return text
	}
	var line strings.Builder
	for _, r := range text {
		switch high, low := utf16.EncodeRune(r); {
		case !escape(r):
			line.WriteRune(r)
		case high != unicode.ReplacementChar:
			fmt.Fprintf(&line, "\\u%04x\\u%04x", high, low)
		default:
			fmt.Fprintf(&line, "\\u%04x", r)
		}
	}
	return line.String()
}
