package catalog_test

import (
	"testing"

	"lapse/internal/pgtest"
)

// Roles belong to the cluster: a superuser's tables have one deleter in all its databases.
func TestADeleterThatIsMadeMeanwhileForAnotherDatabaseIsUsed(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		owner, table := p.table("app")
		elsewhere := db.Connect(t)
		if _, err := elsewhere.Exec(t.Context(), `begin; create role `+p.deleter(owner)+` nologin`); err != nil {
			t.Fatal(err)
		}
		conn, applied := p.connect("postgres"), make(chan error, 1)
		go func() { applied <- p.apply(conn, table) }()
		for waits := false; !waits; {
			select {
			case err := <-applied:
				t.Fatalf("apply did not wait: %v", err)
			default:
			}
			waits = one[bool](p, `select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'transactionid')`)
		}
		if _, err := elsewhere.Exec(t.Context(), `commit`); err != nil {
			t.Fatal(err)
		}
		p.must(<-applied)
		p.applied(owner, table, "postgres")
	})
}
