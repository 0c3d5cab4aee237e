package expression

import "regexp"

// plain are literals that name nobody: words, short numbers, dates, intervals.
var plain = regexp.MustCompile(`^(?i:[0-9]{1,3}(?:\.[0-9]*)?|\.[0-9]+|[a-z]?'(?:[^'@0-9]*|[0-9]{1,3}|[0-9]{4}-[0-9]{2}-[0-9]{2}[^@']*|[0-9: .]*(?:second|minute|hour|day|week|mon|month|year)s?)')$`)

// MayNamePeople reports whether a condition has a literal that may stand for a person: a long number, a text with digits or an @ that is no date
// and no interval. Who writes a condition knows better.
func MayNamePeople(text string) bool {
	tokens, problem := scan(text)
	if problem != "" {
		return false
	}
	for _, t := range tokens {
		if (t.kind == literal || t.kind == number) && !plain.MatchString(t.text) {
			return true
		}
	}
	return false
}
