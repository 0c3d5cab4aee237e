package setup_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/fixture"
	"lapse/internal/pgtest"
)

// Roles belong to the cluster: a superuser's tables have one deleter in all its databases. The server is this test's alone:
// another test's MakeRoles, which locks pg_authid, would wait for the open transaction, and apply would wait behind it.
func TestADeleterThatIsMadeOrDroppedMeanwhileForAnotherDatabaseIsUsed(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		meanwhile(p, db.Connect(t), "app", func(deleter string) []string { return []string{`begin`, `create role ` + deleter + ` nologin`} })
		meanwhile(p, db.Connect(t), "shop", func(deleter string) []string {
			return []string{`create role ` + deleter + ` nologin`, `begin`, `drop role ` + deleter}
		})
	})
}

// meanwhile applies a policy on a table of owner while another transaction does something about its deleter.
func meanwhile(p *place, elsewhere *pgx.Conn, owner string, does func(deleter string) []string) {
	p.t.Helper()
	t := p.t
	owner, table := p.table(owner)
	for _, sql := range does(p.deleter(owner)) {
		if _, err := elsewhere.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	conn, applied := p.connect("postgres"), make(chan error, 1)
	go func() { applied <- p.apply(conn, table) }()
	fixture.Eventually(t, "apply waits for the other transaction", func() bool {
		select {
		case err := <-applied:
			t.Fatalf("apply did not wait: %v", err)
		default:
		}
		return one[bool](p, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`)
	})
	if _, err := elsewhere.Exec(t.Context(), `commit`); err != nil {
		t.Fatal(err)
	}
	p.must(<-applied)
	p.applied(owner, table, "postgres")
}
