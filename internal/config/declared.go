package config

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"lapse/internal/yamldoc"
)

// Declared says for how long copies that Lapse cannot see are kept, as declared by those who keep them. The log and the reports repeat it.
type Declared struct{ WALArchive, Backups string }

const maxDeclared = 200

func (f *file) declared(node yamldoc.Node) {
	f.mapping(node, "declared",
		field{"wal_archive", f.checked(&f.s.Declared.WALArchive, checkDeclared)},
		field{"backups", f.checked(&f.s.Declared.Backups, checkDeclared)})
}

// checkDeclared requires a line that fits into a report's.
func checkDeclared(text string) error {
	if utf8.RuneCountInString(text) > maxDeclared || strings.ContainsFunc(text, unicode.IsControl) {
		return fmt.Errorf("want one line of %d characters at most, such as \"35 days\"", maxDeclared)
	}
	return nil
}
