package setup_test

import (
	"testing"

	"lapse/internal/fixture"
	"lapse/internal/pgtest"
)

// Roles belong to the cluster: a superuser's tables have one deleter in all its databases. The server is this test's alone:
// another test's MakeRoles, which locks pg_authid, would wait for the open transaction, and apply would wait behind it.
func TestADeleterThatIsMadeMeanwhileForAnotherDatabaseIsUsed(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		owner, table := p.table("app")
		elsewhere := db.Connect(t)
		if _, err := elsewhere.Exec(t.Context(), `begin; create role `+p.deleter(owner)+` nologin`); err != nil {
			t.Fatal(err)
		}
		conn, applied := p.connect("postgres"), make(chan error, 1)
		go func() { applied <- p.apply(conn, table) }()
		fixture.Eventually(t, "apply waits for the other transaction", func() bool {
			select {
			case err := <-applied:
				t.Fatalf("apply did not wait: %v", err)
			default:
			}
			return one[bool](p, `select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'transactionid')`)
		})
		if _, err := elsewhere.Exec(t.Context(), `commit`); err != nil {
			t.Fatal(err)
		}
		p.must(<-applied)
		p.applied(owner, table, "postgres")
	})
}
