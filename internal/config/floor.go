package config

import (
	"fmt"
	"regexp"

	"lapse/internal/yamldoc"
)

// Floor is the minimum time for which rows of some tables are kept, whatever a policy file says.
type Floor struct {
	Table  string // a pattern of schema.table, with * and ?
	Least  string // a duration, which PostgreSQL reads
	Reason string
	// TrustColumn allows a column of such a table to say when a row is deleted: a due time, or the row's own ttl.
	TrustColumn bool
}

func (f *file) floors(node yamldoc.Node) {
	entries, ok := node.List()
	if !ok {
		f.complain(node, "floors: want a list of entries with table, least and reason, not %s", kindOf(node))
		return
	}
	for _, entry := range entries {
		var floor Floor
		f.mapping(entry, "a floor",
			field{"table", f.checked(&floor.Table, checkTablePattern)},
			field{"least", f.text(&floor.Least)},
			field{"reason", f.text(&floor.Reason)},
			field{"trust_column", f.flag(&floor.TrustColumn)})
		if entry.Kind() == yamldoc.Mapping && (floor.Table == "" || floor.Least == "" || floor.Reason == "") {
			f.complain(entry, "a floor needs table, least and reason: {table: \"public.audit_*\", least: 90 days, reason: \"the law that says so\"}")
		}
		f.s.Floors = append(f.s.Floors, floor)
	}
}

var tablePattern = regexp.MustCompile(`^[^.]+\..+$`)

// checkTablePattern requires a schema: without one a pattern would mean a table of every schema, or of none.
func checkTablePattern(text string) error {
	if !tablePattern.MatchString(text) {
		return fmt.Errorf("%q names no schema: write schema.table, with * for any characters and ? for one", text)
	}
	return nil
}
