// Package expiry says when a row is due. A kind is one way to say it, and one file: age.go (column, column + after), ttl.go
// (column + a ttl of the row's own), epoch.go (a Unix time), iso8601.go (a date as text), instant.go (a number or a text), bucket.go
// (column + span + after), sidecar.go (a time in a second table). value.go and path.go read a value from a column or
// inside a document, moment.go a column that is an instant, and zone.go loads a zone by its name. All SQL about a policy's rows uses a
// Condition: due, and where, and not held.
//
// # What it promises
//
//   - The due test is exact, and no value raises in it: NULL, ±infinity, instants before 4713 BC, ttls that are
//     negative or beyond six thousand years, numbers that are no Unix time and texts that are no date are never due.
//     Only an expression or where that a policy's author wrote may raise an error.
//   - A bound is a superset of what is due. It changes how fast a row is found, never whether. An index that a kind wants
//     never makes the application's inserts fail; one on an expression may, and a warning says so.
//   - The SQL is a pure function of the kind's values. Two equal values give the same text.
//   - MoreThan returns false only if it is certain that no more rows fall due.
//   - A kind is read back from lapse.policy as it was stored; one that a newer program stored is refused.
//
// # What it refuses
//
// An entry of the policy file whose keys exclude each other, columns that do not exist or whose type the kind does not read, zones and
// durations that PostgreSQL does not know. Each is a Problem with its key.
//
// # The life of an entry
//
//	Check            Entry → problems                    pure; the keys go together
//	Read             Entry → Kind                        PostgreSQL reads the durations
//	Kind.Resolve     the columns, against the catalog    reads; number and type of each
//	Record           Kind ↔ JSON of lapse.policy.spec
//	Kind.Recall      Entry → Kind without the catalog    the columns of the version on record
//
// # A new kind
//
// One file with a type that is a Kind, its family (keys, check, read, load), and one line in families. The template of the
// deletion function takes the rest from the Condition: a kind may join further relations, whose rows the pick locks with
// the policy's; it may have no bound; and the bound's type need not be the column's. Kinds that read another relation also
// need it in lapse.check_leaf, lapse.inspect and lapse.same_table, which check only the policy's table.
//
// Whatever the kind, the rows that holds keep are a part of every Condition (condition.go).
package expiry
