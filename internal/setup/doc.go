// Package setup makes what Lapse needs inside a database: the four roles and the schema "lapse".
//
// It is used by `lapse init` and by tests that need the catalog. Everything in it may be repeated: what is there stays,
// what is missing is made, and two that run at once wait for each other.
//
//	crash while the roles are made     the next call makes the rest
//	crash while the catalog is made    nothing of that migration is there; the next call begins it again
package setup
