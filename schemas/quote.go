package schemas

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// Identifier quotes a name for SQL, and for the commands of the replication protocol. Several names make a qualified one:
// Identifier(schema, table).
func Identifier(names ...string) string { return pgx.Identifier(names).Sanitize() }

// Literal quotes a text for SQL, whatever standard_conforming_strings says.
func Literal(text string) string {
	quoted := "'" + strings.ReplaceAll(text, "'", "''") + "'"
	if strings.Contains(text, `\`) {
		return " E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}
