// Package schemas holds every format that more than one part of Lapse must agree on, and imports nothing of Lapse.
//
//	migrations/     the catalog: schema "lapse" in the user's database, as SQL, a file per subject. For a function lapse.f search them for
//	                "function lapse.f("
//	claim.go        the ledger row's canonical bytes and its MAC: written by the executor, checked by the audit
//	state.go        the states of a policy
//	sqlstate.go     the refusals of a deletion function, one SQLSTATE each
//	*.schema.json   JSON Schemas of the policy file, of lapse.yaml, of events, of log records, of reports and of --json
//	golden/         one example of each, byte for byte
//
// These are contracts between processes that may run different versions of Lapse at the same time. A format changes by getting a new
// number, never in place.
package schemas
