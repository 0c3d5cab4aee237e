package schemas

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// Identifier quotes a name for SQL, also for the commands of the replication protocol. Of several names it makes a
// qualified one: Identifier(schema, table).
func Identifier(names ...string) string { return pgx.Identifier(names).Sanitize() }

// Literal quotes a text for SQL, whatever standard_conforming_strings says.
func Literal(text string) string {
	quoted := "'" + strings.ReplaceAll(text, "'", "''") + "'"
	if strings.Contains(text, `\`) {
		return " E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}
