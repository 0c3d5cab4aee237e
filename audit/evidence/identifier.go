package evidence

import "strings"

// parseQualified reads a relation's name as PostgreSQL's format('%I.%I') writes it.
func parseQualified(text string) (schema, name string, ok bool) {
	schema, rest, ok1 := parseIdentifier(text)
	rest, ok2 := strings.CutPrefix(rest, ".")
	name, rest, ok3 := parseIdentifier(rest)
	return schema, name, ok1 && ok2 && ok3 && rest == ""
}

// parseIdentifier reads a name of SQL at the beginning of text, in double quotes or not.
func parseIdentifier(text string) (name, rest string, ok bool) {
	quoted, isQuoted := strings.CutPrefix(text, `"`)
	if !isQuoted {
		end := strings.IndexAny(text, `.,"`)
		if end < 0 {
			end = len(text)
		}
		return text[:end], text[end:], end > 0
	}
	for from := 0; ; {
		at := strings.IndexByte(quoted[from:], '"')
		if at < 0 {
			return "", "", false
		}
		at += from
		if !strings.HasPrefix(quoted[at+1:], `"`) {
			return strings.ReplaceAll(quoted[:at], `""`, `"`), quoted[at+1:], at > 0
		}
		from = at + 2
	}
}
