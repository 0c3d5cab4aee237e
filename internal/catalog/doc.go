// Package catalog makes what Lapse needs inside a database: the roles, the schema "lapse", and for each owner of tables with
// policies the role that owns the functions for them (the deleter).
//
// It knows nothing of policies, publications or slots: internal/setup puts those together, and tests that need a catalog use
// it alone. Everything in it may be repeated: what is there stays, what is missing is made, and two that run at once wait for
// each other. It refuses
//
//   - a schema "lapse" that is not Lapse's, before anything in it is touched (CheckSchema);
//   - roles that can do too much (CheckRoles);
//   - keys that are not those of the installation (KeysError);
//   - an owner of tables that would own the catalog (CircleError).
//
// What the session may not do itself is an error with the statement that somebody else must run (GrantError); GrantsSQL has
// all of them.
//
//	crash while the roles are made         the next call makes the rest
//	crash while the catalog is made        nothing of that migration is there; the next call begins it again
//	crash while a deleter is made          nothing of it is there
//	crash before a deleter is dropped      it is on record in lapse.deleter; the next apply drops it
package catalog
