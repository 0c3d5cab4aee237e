// Package site is a database that Lapse is installed in: its schema lapse, which is made and migrated (catalog.go, migration.go), checked before
// anything in it is called (schema.go) and read (installation.go), and a session over it. Session.Locked never waits for a lock on a user's
// table for longer than 250 ms at a time, Session.Gated keeps batches out beside that, and publish.go changes what is published.
//
// It refuses a schema "lapse" that is not Lapse's, before anything in it is touched (SchemaError, FunctionError), a catalog of a
// newer program, or one with a version that was made from other files (CatalogError), and keys that are not those of the
// installation (KeysError).
package site
