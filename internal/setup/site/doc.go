// Package site is a database with Lapse installed: its schema lapse, which this package makes and migrates (catalog.go, migration.go), checks before
// anything in it is called (schema.go) and reads (installation.go), and a session over it. Session.Locked never waits for a lock on a user's
// table for longer than 250 ms at a time, Session.Gated also keeps batches out, and publish.go changes what is published.
//
// It refuses, before it touches anything in it, a schema "lapse" that is not Lapse's (SchemaError, FunctionError), a catalog of a newer program, or
// one with a version that was made from other files (CatalogError), and keys that are not those of the installation (KeysError).
package site
