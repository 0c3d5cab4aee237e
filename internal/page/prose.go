package page

import (
	"html/template"
	"regexp"
	"strings"

	"lapse/internal/plaintext"
)

// command is a command of ours in a sentence, as a terminal shows it.
var command = regexp.MustCompile("`(lapse [^`]+)`")

// prose is a sentence as HTML, on one line: commands in it are code, and what others wrote is text.
func prose(text string) template.HTML {
	text = plaintext.Line(text)
	var html strings.Builder
	at := 0
	for _, found := range command.FindAllStringSubmatchIndex(text, -1) {
		html.WriteString(template.HTMLEscapeString(text[at:found[0]]))
		html.WriteString("<code>" + template.HTMLEscapeString(text[found[2]:found[3]]) + "</code>")
		at = found[1]
	}
	html.WriteString(template.HTMLEscapeString(text[at:]))
	return template.HTML(html.String()) //nolint:gosec // all of it is escaped above
}
