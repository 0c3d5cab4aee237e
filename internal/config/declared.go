package config

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"lapse/internal/yamldoc"
)

// Declared is for how long copies are kept that Lapse cannot see: as their keeper says. It goes into the log, and into reports.
type Declared struct{ WALArchive, Backups string }

const maxDeclared = 200

func (f *file) declared(node yamldoc.Node) {
	f.mapping(node, "declared",
		field{"wal_archive", f.checked(&f.s.Declared.WALArchive, checkDeclared)},
		field{"backups", f.checked(&f.s.Declared.Backups, checkDeclared)})
}

// checkDeclared wants a line that fits a report's.
func checkDeclared(text string) error {
	if utf8.RuneCountInString(text) > maxDeclared || strings.ContainsFunc(text, unicode.IsControl) {
		return fmt.Errorf("want one line of %d characters at most, such as \"35 days\"", maxDeclared)
	}
	return nil
}
