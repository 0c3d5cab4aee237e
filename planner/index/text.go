package index

import (
	"regexp"
	"strings"
)

// normal is an expression in a spelling in which two can be compared: without redundant spaces and parentheses, and without the qualifications that
// PostgreSQL omits when it prints an expression. Equal ones mean the same. Different ones may do so too: PostgreSQL prints every operation in
// parentheses, and (a ->> 'b') is not recognized as a ->> 'b' inside another operation.
type normal string

var sqlToken = regexp.MustCompile(`(?s)\s+|e?'(?:[^'\\]|''|\\.)*'|"(?:[^"]|"")*"|[\pL_][\pL\pN_$]*|[0-9][0-9.]*|::|[(),.\[\];]|[-+*/<>=~!@#%^&|` + "`" + `?:]+`)

var plainName = regexp.MustCompile(`^"[a-z_][a-z0-9_$]*"$`)

// tokenise cuts SQL into its words. Names that need no quotes have none.
func tokenise(sql string) (tokens []string) {
	for _, token := range sqlToken.FindAllString(lowerOutsideQuotes(sql), -1) {
		switch {
		case strings.TrimSpace(token) == "":
		case plainName.MatchString(token):
			tokens = append(tokens, strings.Trim(token, `"`))
		default:
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// lowerOutsideQuotes folds what PostgreSQL folds.
func lowerOutsideQuotes(sql string) string {
	var b strings.Builder
	var quote rune
	for _, r := range sql {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '\'' || r == '"':
			quote = r
		case r >= 'A' && r <= 'Z':
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// term is a token, or a group in parentheses.
type term struct {
	token string
	group []term // if token is ""
}

// normalise reads an expression. The alias t of a policy's table, and the schema pg_catalog, are left out.
func normalise(sql string) normal {
	terms, _ := parseTerms(tokenise(sql))
	return spell(terms)
}

func spell(terms []term) normal {
	for len(terms) == 1 && terms[0].token == "" {
		terms = terms[0].group
	}
	return normal(strings.Join(words(terms), " "))
}

// conjuncts are the parts of a condition that AND joins; none for "".
func conjuncts(sql string) (all []normal) {
	terms, _ := parseTerms(tokenise(sql))
	return conjunctsOf(terms)
}

func conjunctsOf(terms []term) (all []normal) {
	for len(terms) == 1 && terms[0].token == "" {
		terms = terms[0].group
	}
	if len(terms) == 0 {
		return nil
	}
	for _, t := range terms {
		if t.token == "between" || t.token == "case" || t.token == "or" {
			return []normal{spell(terms)} // what AND joins there is not the whole
		}
	}
	var parts [][]term
	from := 0
	for i, t := range terms {
		if t.token == "and" {
			parts, from = append(parts, terms[from:i]), i+1
		}
	}
	if len(parts) == 0 {
		return []normal{spell(terms)}
	}
	for _, part := range append(parts, terms[from:]) {
		all = append(all, conjunctsOf(part)...)
	}
	return all
}

func parseTerms(tokens []string) (terms []term, rest []string) {
	for len(tokens) > 0 {
		token := tokens[0]
		tokens = tokens[1:]
		last := len(terms) - 1
		switch {
		case token == "(":
			var group []term
			group, tokens = parseTerms(tokens)
			if last >= 0 && terms[last].token == "operator" && len(group) > 0 {
				terms[last] = group[len(group)-1] // operator(pg_catalog.=)
				continue
			}
			terms = append(terms, term{group: group})
		case token == ")":
			return terms, tokens
		case token == "." && last >= 0 && (terms[last].token == "t" || terms[last].token == "pg_catalog"):
			terms = terms[:last]
		case token == "text" && last >= 1 && terms[last].token == "::" && strings.Contains(terms[last-1].token, "'"):
			terms = terms[:last] // a literal that PostgreSQL took for a text
		default:
			terms = append(terms, term{token: token})
		}
	}
	return terms, nil
}

// words writes terms without the parentheses around one word or around another pair. It keeps those of a function's arguments.
func words(terms []term) (all []string) {
	for i, t := range terms {
		if t.token != "" {
			all = append(all, t.token)
			continue
		}
		group := t.group
		for len(group) == 1 && group[0].token == "" {
			group = group[0].group
		}
		inner := words(group)
		if len(inner) == 1 && !callable(terms, i) {
			all = append(all, inner...)
			continue
		}
		all = append(all, "(")
		all = append(append(all, inner...), ")")
	}
	return all
}

// callable reports whether the term before terms[i] is a word, so that the parentheses may be a call's.
func callable(terms []term, i int) bool {
	if i == 0 {
		return false
	}
	before := terms[i-1].token
	return before != "" && (before[0] == '_' || before[0] == '"' || before[0] >= 'a' && before[0] <= 'z' || before[0] >= 0x80)
}
