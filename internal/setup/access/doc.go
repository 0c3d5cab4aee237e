// Package access is who may do what: the three roles (roles.go), the logins that play them (logins.go), who else is a member of them
// (members.go), their rights in schema lapse (rights.go), and the deleters, one for each owner of tables (deleter.go). It says what is wrong with a
// deleter (faults.go), and takes away those that nobody needs (unused.go).
//
// What the session may not do itself is an error with the statement that somebody else must run (GrantError); GrantsSQL has all
// of them, and makes deleters as EnsureDeleter does: who changes one changes both. It refuses roles that can do
// too much (RoleError), and an owner of tables that would own the catalog (CircleError). It knows neither policies nor publications.
package access
