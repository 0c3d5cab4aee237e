package importer

import (
	"regexp"
	"strings"
)

// token is a lexical unit of SQL.
type token struct {
	kind       tokenKind
	text       string // as written
	start, end int    // offsets in bytes
}

type tokenKind byte

const (
	word     tokenKind = 'w' // a name or key word without quotes
	quoted   tokenKind = 'q' // a name in quotes
	literal  tokenKind = 'l' // a text, with its prefix, or in dollar quotes
	number   tokenKind = 'n'
	operator tokenKind = 'o'
	mark     tokenKind = 'm' // punctuation
)

// shapes are PostgreSQL's, under standard_conforming_strings.
var shapes = []struct {
	kind  tokenKind
	shape *regexp.Regexp
}{
	{literal, regexp.MustCompile(`^[eE]'(?:[^'\\]|''|\\(?s:.))*'`)},
	{literal, regexp.MustCompile(`^(?:[uU]&|[bBxXnN])?'(?:[^']|'')*'`)},
	{quoted, regexp.MustCompile(`^(?:[uU]&)?"(?:[^"]|"")+"`)},
	{quoted, regexp.MustCompile("^`[^`]+`")}, // TiDB's and Spanner's; not in PostgreSQL's normal form
	{word, regexp.MustCompile(`^[A-Za-z_\x{80}-\x{10FFFF}][A-Za-z0-9_$\x{80}-\x{10FFFF}]*`)},
	{number, regexp.MustCompile(`^(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?`)},
	{mark, regexp.MustCompile(`^(?:::|:=|=>|[()\[\],.;:$])`)},
	{operator, regexp.MustCompile(`^[-~!@#^&|?+*/%<>=]+`)},
}

var (
	blank       = regexp.MustCompile(`^(?:[ \t\n\r\f\v]+|--[^\n\r]*)+`)
	dollarQuote = regexp.MustCompile(`^\$(?:[A-Za-z_\x{80}-\x{10FFFF}][A-Za-z0-9_\x{80}-\x{10FFFF}]*)?\$`)
)

// scan splits SQL into tokens. ok is false if it does not understand all of it.
func scan(text string) (tokens []token, ok bool) {
	for at := 0; at < len(text); {
		rest := text[at:]
		if skip := blankLength(rest); skip != 0 {
			if skip < 0 {
				return tokens, false
			}
			at += skip
			continue
		}
		kind, length := firstToken(rest)
		if length == 0 {
			return tokens, false
		}
		tokens = append(tokens, token{kind, rest[:length], at, at + length})
		at += length
	}
	return tokens, true
}

// blankLength is the length of the white space and comments at a text's beginning, -1 if a comment has no end.
func blankLength(text string) int {
	if space := blank.FindString(text); space != "" {
		return len(space)
	}
	if !strings.HasPrefix(text, "/*") {
		return 0
	}
	depth := 0
	for at := 0; at+1 < len(text); at++ {
		switch text[at : at+2] {
		case "/*":
			depth++
			at++
		case "*/":
			depth--
			at++
			if depth == 0 {
				return at + 1
			}
		}
	}
	return -1
}

// firstToken is the length of the token at a text's beginning, 0 if there is none.
func firstToken(text string) (kind tokenKind, length int) {
	if quote := dollarQuote.FindString(text); quote != "" {
		end := strings.Index(text[len(quote):], quote)
		if end < 0 {
			return literal, 0
		}
		return literal, 2*len(quote) + end
	}
	for _, s := range shapes {
		if found := s.shape.FindString(text); found != "" {
			if s.kind == operator {
				found = beforeComment(found)
			}
			return s.kind, len(found)
		}
	}
	return 0, 0
}

// beforeComment cuts an operator where a comment begins in it.
func beforeComment(characters string) string {
	for _, begin := range []string{"--", "/*"} {
		if at := strings.Index(characters, begin); at > 0 {
			characters = characters[:at]
		}
	}
	return characters
}

// statements splits SQL at its semicolons. ok is as scan's.
func statements(text string) (all []string, ok bool) {
	tokens, ok := scan(text)
	from := 0
	for _, t := range tokens {
		if t.text == ";" {
			all, from = append(all, text[from:t.start]), t.end
		}
	}
	all = append(all, text[from:])
	var real []string
	for _, s := range all {
		if inside, _ := scan(s); len(inside) > 0 || !ok && strings.TrimSpace(s) != "" {
			real = append(real, strings.TrimSpace(s))
		}
	}
	return real, ok
}

// is reports whether a token is a key word or punctuation.
func (t token) is(text string) bool {
	return (t.kind == word || t.kind == mark || t.kind == operator) && strings.EqualFold(t.text, text)
}

// name is the name that a token denotes, "" if none.
func (t token) name() string {
	switch {
	case t.kind == word:
		return strings.ToLower(t.text)
	case t.kind == quoted && strings.HasPrefix(t.text, `"`):
		return strings.ReplaceAll(t.text[1:len(t.text)-1], `""`, `"`)
	case t.kind == quoted && strings.HasPrefix(t.text, "`"):
		return t.text[1 : len(t.text)-1]
	}
	return ""
}

// value is the text that a literal denotes. ok is false for a notation that this lexer does not know.
func (t token) value() (text string, ok bool) {
	switch quote := dollarQuote.FindString(t.text); {
	case t.kind != literal:
		return "", false
	case quote != "":
		return t.text[len(quote) : len(t.text)-len(quote)], true
	case strings.HasPrefix(t.text, "'"):
		return strings.ReplaceAll(t.text[1:len(t.text)-1], "''", "'"), true
	case strings.HasPrefix(strings.ToLower(t.text), "e'"):
		return unescape(t.text[2 : len(t.text)-1])
	}
	return "", false
}

// unescape decodes the backslashes of a text E'…', except those with codes.
func unescape(text string) (string, bool) {
	var plain strings.Builder
	for at := 0; at < len(text); at++ {
		switch {
		case strings.HasPrefix(text[at:], "''"):
			at++
			plain.WriteByte('\'')
		case text[at] != '\\':
			plain.WriteByte(text[at])
		case at+1 < len(text):
			at++
			switch c := text[at]; c {
			case '\\', '\'', '"':
				plain.WriteByte(c)
			case 'n':
				plain.WriteByte('\n')
			case 't':
				plain.WriteByte('\t')
			case 'r':
				plain.WriteByte('\r')
			default:
				return "", false
			}
		}
	}
	return plain.String(), true
}
