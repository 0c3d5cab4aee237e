package expiry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Meaning is what determines the result of an expression over a column, apart from the name of its type, as lapse.meaning writes it: the labels
// of its enums by their oids, and under "" a digest of everything else, empty for a type of PostgreSQL's own. "" is unknown.
type Meaning string

func (m Meaning) parts() map[string]string {
	parts := map[string]string{}
	if json.Unmarshal([]byte(m), &parts) != nil {
		return nil
	}
	return parts
}

// agrees reports whether every value that both know means the same under both: one has everything that the other has, and perhaps
// further labels.
func (m Meaning) agrees(with Meaning) bool {
	if m == "" || with == "" || m == with {
		return true
	}
	few, many := m.parts(), with.parts()
	if len(few) > len(many) {
		few, many = many, few
	}
	for key, text := range few {
		if other, there := many[key]; !there || other != text {
			return false
		}
	}
	return len(few) > 0
}

// same reports whether two columns are one, and its values mean the same.
func (c Column) same(as Column) bool {
	return c.Name == as.Name && c.Number == as.Number && c.Type == as.Type && c.Means.agrees(as.Means)
}

// Text is a column for a person: name, type, number and what its values can be.
func (c Column) Text() string {
	text := fmt.Sprintf("%s %s (%d)", c.Name, c.Type, c.Number)
	parts := c.Means.parts()
	if digest := parts[""]; digest != "" {
		text += " meaning " + digest[:min(8, len(digest))]
	}
	delete(parts, "")
	var labels []string
	for _, oid := range slices.SortedFunc(maps.Keys(parts), func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) }) {
		labels = append(labels, parts[oid])
	}
	if len(labels) > 0 {
		text += ": " + strings.Join(labels, ", ")
	}
	return text
}

// Texts are columns for a person.
func Texts(columns []Column) string {
	all := make([]string, 0, len(columns))
	for _, c := range columns {
		all = append(all, c.Text())
	}
	return strings.Join(all, "; ")
}
