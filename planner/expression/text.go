package expression

import (
	"fmt"
	"regexp"
	"strings"

	"lapse/internal/yamldoc"
)

// token is a lexical unit of SQL, as far as this package distinguishes them.
type token struct {
	kind  tokenKind
	text  string // as written
	start int    // the offset in bytes
}

// subquery reports whether an opening parenthesis is followed by SELECT. Only subqueries have that.
func subquery(tokens []token) bool {
	for i := 1; i < len(tokens); i++ {
		if tokens[i-1].text == "(" && tokens[i].kind == word && strings.EqualFold(tokens[i].text, "select") {
			return true
		}
	}
	return false
}

type tokenKind byte

const (
	word    tokenKind = 'w' // a name or key word without quotes
	quoted  tokenKind = 'q' // a name in quotes
	literal tokenKind = 'l' // a text, with its prefix
	number  tokenKind = 'n'
	other   tokenKind = 'o' // an operator's characters, one by one, and punctuation
)

// shapes are the tokens that PostgreSQL and this package read alike under standard_conforming_strings.
var shapes = []struct {
	kind  tokenKind
	shape *regexp.Regexp
}{
	{literal, regexp.MustCompile(`^[eE]'(?:[^'\\]|''|\\(?s:.))*'`)},
	{literal, regexp.MustCompile(`^[bBxXnN]?'(?:[^']|'')*'`)},
	{word, regexp.MustCompile(`^[A-Za-z_\x{80}-\x{10FFFF}][A-Za-z0-9_$\x{80}-\x{10FFFF}]*`)},
	{quoted, regexp.MustCompile(`^"(?:[^"]|"")+"`)},
	{number, regexp.MustCompile(`^(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?`)},
	{other, regexp.MustCompile(`^[-~!@#^&|?+*/%<>=()\[\],.:\x60]`)},
}

var blank = regexp.MustCompile(`^[ \t\n\r\f]+`)

// scan splits a text into tokens. It refuses anything that PostgreSQL might split differently: conclusions from the tokens would then be
// wrong.
func scan(text string) (tokens []token, problem string) {
	for at := 0; at < len(text); {
		rest := text[at:]
		if space := blank.FindString(rest); space != "" {
			at += len(space)
			continue
		}
		if strings.HasPrefix(rest, "--") || strings.HasPrefix(rest, "/*") {
			return nil, "there is a comment in it: take it out (for a double negation write - -)"
		}
		next := firstToken(rest)
		next.start = at
		if problem := misplaced(next, rest, tokens); problem != "" {
			return nil, problem
		}
		tokens = append(tokens, next)
		at += len(next.text)
	}
	return tokens, unbalanced(tokens)
}

// firstToken returns the token at a text's beginning; empty if there is none.
func firstToken(text string) (t token) {
	for _, s := range shapes {
		if found := s.shape.FindString(text); found != "" {
			return token{kind: s.kind, text: found}
		}
	}
	return t
}

// misplaced says what is wrong with a token at its place.
func misplaced(t token, rest string, before []token) string {
	after := rest[len(t.text):]
	switch {
	case t.text == "" && strings.HasPrefix(rest, ";"):
		return "there is a semicolon in it: it must be one expression"
	case t.text == "" && strings.HasPrefix(rest, "$"):
		return "there is a $ in it: write texts in single quotes"
	case t.text == "" && (strings.HasPrefix(rest, "'") || strings.HasPrefix(rest, `"`)):
		return "a quotation mark is not closed"
	case t.text == "":
		return fmt.Sprintf("%s is nothing that an expression can hold", yamldoc.Quote(string([]rune(rest)[:1])))
	case t.kind == word && strings.EqualFold(t.text, "u") && (strings.HasPrefix(after, "&'") || strings.HasPrefix(after, `&"`)):
		return "texts and names with Unicode escapes (U&) are not supported: write the letters themselves"
	case t.kind == literal && len(before) > 0 && before[len(before)-1].kind == literal:
		return "two texts in a row: write them as one"
	case t.kind == number && after != "" && regexp.MustCompile(`^[A-Za-z0-9_$.\x{80}-\x{10FFFF}]`).MatchString(after):
		return fmt.Sprintf("%s is no number", yamldoc.Quote(t.text+after[:1]+"…"))
	}
	return ""
}

// unbalanced finds an unmatched bracket. A balanced text cannot close the parentheses that Lapse puts around it.
func unbalanced(tokens []token) string {
	if len(tokens) == 0 {
		return "it is empty"
	}
	var open []string
	for _, t := range tokens {
		if t.kind != other {
			continue
		}
		switch t.text {
		case "(", "[":
			open = append(open, t.text)
		case ")", "]":
			if len(open) == 0 || (open[len(open)-1] == "(") != (t.text == ")") {
				return "a " + t.text + " closes nothing"
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		return "a " + open[0] + " is not closed"
	}
	return ""
}

// qualifiedName is a name with a schema.
type qualifiedName struct{ schema, name string }

// qualifiedNames returns all names before a dot, each with what follows the dot.
func qualifiedNames(tokens []token) (names []qualifiedName, problem string) {
	for i := 0; i+2 < len(tokens); i++ {
		schema, named := tokens[i].name()
		if !named || tokens[i+1].text != "." {
			continue
		}
		name, named := tokens[i+2].name()
		if end := i + 3; named && end < len(tokens) && tokens[end].text == "." {
			return nil, fmt.Sprintf("%s.%s.… has too many parts: write columns without their table's name", schema, name)
		}
		if !named { // operator(schema.+), or a text that PostgreSQL will refuse
			for _, t := range tokens[i+2:] {
				if t.kind != other || strings.ContainsAny(t.text, "()[],.:") {
					break
				}
				name += t.text
			}
		}
		names = append(names, qualifiedName{schema, name})
	}
	return names, ""
}

// name returns the name that a token denotes.
func (t token) name() (string, bool) {
	switch t.kind {
	case word:
		return strings.ToLower(t.text), true
	case quoted:
		return strings.ReplaceAll(t.text[1:len(t.text)-1], `""`, `"`), true
	default:
		return "", false
	}
}

// oneLine replaces every run of white space outside texts and quoted names by one space.
func oneLine(sql string) (string, string) {
	tokens, problem := scan(sql)
	if problem != "" {
		return "", problem
	}
	var line strings.Builder
	for i, t := range tokens {
		if end := line.Len(); i > 0 && end > 0 && t.start > tokens[i-1].start+len(tokens[i-1].text) {
			line.WriteByte(' ')
		}
		line.WriteString(t.text)
	}
	return line.String(), ""
}

// Conjuncts splits a canonical condition at its ANDs: the condition is true of a row if all parts are.
func Conjuncts(sql string) []string {
	parts := split(sql)
	if len(parts) == 1 {
		return parts
	}
	var all []string
	for _, part := range parts {
		all = append(all, Conjuncts(part)...)
	}
	return all
}

// split splits (a AND b AND c); any other text is one part.
func split(sql string) (parts []string) {
	whole := []string{sql}
	tokens, problem := scan(sql)
	last := len(tokens) - 1
	if problem != "" || last < 2 || tokens[0].text != "(" {
		return whole
	}
	depth, from := 0, 1
	for i, t := range tokens {
		switch {
		case t.kind == other && (t.text == "(" || t.text == "["):
			depth++
		case t.kind == other && (t.text == ")" || t.text == "]"):
			if depth--; depth == 0 && i < last {
				return whole
			}
		case t.kind == word && depth == 1 && (t.text == "CASE" || t.text == "OR"):
			return whole
		case t.kind == word && depth == 1 && t.text == "AND":
			parts = append(parts, strings.TrimSpace(sql[tokens[from].start:t.start]))
			from = i + 1
		}
	}
	if len(parts) == 0 {
		return whole
	}
	return append(parts, strings.TrimSpace(sql[tokens[from].start:tokens[last].start]))
}
