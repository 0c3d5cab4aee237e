// Package access decides who may do what: the three roles (roles.go), the logins that play them (logins.go), other members of them
// (members.go), their rights in schema lapse (rights.go), and the deleters, one for each owner of tables (deleter.go). It says what is
// wrong with a deleter (faults.go), and removes unneeded ones (unused.go).
//
// If the session may not do something itself, the error has the statement for somebody else to run (GrantError). GrantsSQL has all these
// statements, and makes deleters as EnsureDeleter does: change both together. The package refuses roles that can do too much (RoleError),
// and an owner of tables that would own the catalog (CircleError). It knows neither policies nor publications.
package access
