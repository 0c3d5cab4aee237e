package access

import (
	"fmt"
	"strings"

	"lapse/schemas"
)

// GrantError has the statement that somebody with the right to do so must run before a policy can be applied.
type GrantError struct {
	SQL   string
	Why   string
	Cause error // what PostgreSQL said when this session tried, or nil
	Login bool  // it is what this login lacks: a superuser's `lapse apply` meets no such error
	Apart bool  // no session of Lapse runs it, not even a superuser's, and the script of --grants does not contain it
}

// Error ends with the statement.
func (e *GrantError) Error() string {
	if e.Apart {
		return fmt.Sprintf("%s, and Lapse does not change that by itself: have a superuser run: %s", e.Why, e.SQL)
	}
	return fmt.Sprintf("%s, and this login may not change that: have a superuser run: %s; or what `lapse apply --grants -f FILE` prints",
		e.Why, e.SQL)
}

// Unwrap returns what PostgreSQL said.
func (e *GrantError) Unwrap() error { return e.Cause }

// CircleError says that the owner of a policy's table is a member of the catalog's owner: the deleter, a member of the
// table's owner, would then own the catalog.
type CircleError struct{ Owner, Table, CatalogOwner string }

// Error says how to come out of the circle.
func (e *CircleError) Error() string {
	if e.Owner == e.CatalogOwner {
		return fmt.Sprintf("%s owns %s, so that the functions that delete from it would own the catalog: give the table to the "+
			"application's role: alter table %[2]s owner to …", schemas.Identifier(e.Owner), e.Table)
	}
	return fmt.Sprintf("%s owns %s and is a member of %s, so that the functions that delete for it would own the catalog: %s, then %s",
		schemas.Identifier(e.Owner), e.Table, schemas.Identifier(e.CatalogOwner), "have a superuser run: "+leaveRoles(e.CatalogOwner)+schemas.Identifier(e.Owner), circleRecipe(e.CatalogOwner))
}

// circleRecipe is the way out if the login that applies policies owns the tables.
func circleRecipe(catalogOwner string) string {
	return fmt.Sprintf("take three logins that own no tables, in lapse.yaml: database: { owner: postgres://%[1]sapply@HOST/DATABASE, "+
		"executor: postgres://%[1]srun@HOST/DATABASE, auditor: postgres://%[1]saudit@HOST/DATABASE }; "+
		"have a superuser run what `lapse apply --grants -f FILE` prints with it; and go on with these logins", prefixOf(catalogOwner))
}

// leaveRoles begins the statement that revokes the roles from a login.
func leaveRoles(catalogOwner string) string {
	r := schemas.RolesFor(prefixOf(catalogOwner))
	return fmt.Sprintf("revoke %s, %s, %s from ", schemas.Identifier(r.Owner), schemas.Identifier(r.Executor), schemas.Identifier(r.Auditor))
}

func prefixOf(catalogOwner string) string { return strings.TrimSuffix(catalogOwner, "owner") }
