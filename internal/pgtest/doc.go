// Package pgtest gives each test a database of its own on a real PostgreSQL server.
//
// A test binary that uses it says so once:
//
//	func TestMain(m *testing.M) { pgtest.Main(m, pgtest.Template(installCatalog)) }
//
// and a test names the versions it is about:
//
//	func TestARowThatIsNotDueStays(t *testing.T) {
//		t.Parallel()
//		pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
//			db.Exec(t, `create table s (id int primary key)`)
//			…
//		})
//	}
//
// It promises:
//
//   - one server per major version and test binary, started when the first test asks for it, gone when the binary ends,
//     whatever ends it;
//   - a database per test, copied from a template that is made once per server, and dropped afterwards with its
//     connections, its replication slots and the roles made through NewRole;
//   - sessions that do not say what they want get it wrong: the servers' TimeZone and DateStyle are unusual on purpose;
//   - a version that is not there is a skipped test with its reason, and with CI=true a failed one. LAPSE_PG=15,18 narrows
//     the versions; what it leaves out is not missing;
//   - Packaged is the distribution's own server, in which expensive statements are compiled (JIT), as in most databases.
//     The servers of make servers have no compiler;
//   - the logs of the servers stay, in .servers/logs, when a test has failed.
//
// Roles and slots belong to the server, not to the database: parallel tests must not share their names. NewRole makes a
// name for one database; DB.Name is a good part of a slot's name. A test that stops or kills its server, changes its
// settings or counts its slots wants Solo. So does one that changes its history: restores a copy, clones, promotes.
package pgtest
