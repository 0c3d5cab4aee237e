//go:build long

package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/fixture"
	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/planner/database"
)

// estate is a database whose tables a framework's own migrations make, as a role that owns the database and is no superuser.
// Lapse is installed in it without a superuser where PostgreSQL allows that.
type estate struct {
	t      *testing.T
	db     *pgtest.DB
	broker *kafkaserver.Server
	m      *machine
	name   string // topics begin with it
	app    string // the owner
	dba    string // who runs the script of grants
	tables []estateTable
}

// estateTable is a table with a policy: SQL for a row's name, table and key as they are in the topics, and for "it is due".
type estateTable struct{ from, row, due string }

// firstWithRoles is the first PostgreSQL on which a role that is no superuser may make one with REPLICATION.
const firstWithRoles = 16

func newEstate(t *testing.T, db *pgtest.DB, folder string, tables ...estateTable) *estate {
	t.Helper()
	e := &estate{t: t, db: db, broker: kafkatest.Broker(t), name: kafkatest.Name(), app: db.NewRole(t, "site"), dba: "postgres", tables: tables}
	// Frameworks cannot read the date style of the tests' servers.
	db.Exec(t, fmt.Sprintf(`alter database %s owner to %s`, db.Name, e.app), fmt.Sprintf(`alter role %s set datestyle = 'ISO, MDY'`, e.app))
	if db.Major >= firstWithRoles {
		// It stays: it has granted roles that stay.
		e.dba = db.Name + "_dba"
		db.Exec(t, fmt.Sprintf(`create role %s login createrole replication`, e.dba), fmt.Sprintf(`grant %s to %s with admin option`, e.app, e.dba))
	}
	e.m = newMachine(t, fmt.Sprintf(`
database: %q
roles: { prefix: %s_ }
keys: keys
kafka: { brokers: %q }
topics: { system: %[4]s.system, user: %[4]s.user, log: %[4]s.log, partitions: 3 }
`, db.As(db.Name+"_lapse"), db.Name, e.broker.Addr(), e.name))
	policies, err := os.ReadFile(filepath.Join("testdata", folder, "policies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	e.m.write("policies.yaml", string(policies))
	return e
}

// runs runs a program of the application, connected as its role, and returns what it prints.
func (e *estate) runs(program string, args ...string) string {
	e.t.Helper()
	at, err := url.Parse(e.db.As(e.app))
	if err != nil {
		e.t.Fatal(err)
	}
	cmd := exec.CommandContext(e.t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "PGHOST="+at.Hostname(), "PGPORT="+at.Port(), "PGUSER="+e.app, "PGDATABASE="+e.db.Name)
	out, err := cmd.CombinedOutput()
	if err != nil {
		e.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// install goes the README's way: a first look that leaves nothing, the DBA's script, init, apply.
func (e *estate) install() {
	e.t.Helper()
	e.m.lapse("plan", "--database", e.db.As(e.app), "-f", "policies.yaml")
	conn := e.db.ConnectAs(e.t, e.dba)
	if n := fixture.One[int](e.t, conn, `select count(*)::int from pg_namespace where nspname = 'lapse'`); n != 0 {
		e.t.Error("plan -f left a schema behind")
	}
	script := strings.TrimPrefix(e.m.lapse("apply", "-f", "policies.yaml", "--grants"), stopOnError)
	if _, err := conn.PgConn().Exec(e.t.Context(), script).ReadAll(); err != nil {
		e.t.Fatalf("the DBA's script, run by %s: %v", e.dba, err)
	}
	e.m.lapse("init", "--keys", "keys")
	e.m.lapse("apply", "-f", "policies.yaml", "--yes")
	e.m.lapse("plan")
}

// read is all rows of the tables, or those that are due.
func (e *estate) read(due bool) map[string]bool {
	e.t.Helper()
	var parts []string
	for _, table := range e.tables {
		condition := "true"
		if due {
			condition = table.due
		}
		parts = append(parts, fmt.Sprintf("select %s from %s where %s", table.row, table.from, condition))
	}
	conn := e.db.Connect(e.t)
	defer database.Close(conn)
	rows, err := conn.Query(e.t.Context(), strings.Join(parts, " union all "))
	if err != nil {
		e.t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		e.t.Fatal(err)
	}
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all
}

// deletes serves until nothing is due, while the application does what it does besides, and stops.
func (e *estate) deletes(beside func()) {
	e.t.Helper()
	ctx, cancel := patience(e.t)
	defer cancel()
	d := e.m.serve()
	beside()
	conn := e.db.Connect(e.t)
	err := eventually(ctx, func() (bool, error) { return len(e.read(true)) == 0, d.alive() })
	if err != nil {
		e.t.Fatalf("wait until nothing is due: %v: %d rows are", err, len(e.read(true)))
	}
	e.confirmed(ctx, conn, d)
	d.stop()
}

// confirmed waits until the auditor has confirmed all that was committed before the call.
func (e *estate) confirmed(ctx context.Context, conn *pgx.Conn, d *daemon) {
	e.t.Helper()
	s := &shop{t: e.t, db: e.db}
	s.confirmed(ctx, conn, d)
}

// compare wants one event for each row that is gone: a user's for those that byUser has, and may have been the user's for those
// of mayBe; the system's for all others, which must have been due.
func (e *estate) compare(before, due map[string]bool, user func(row string) bool) (system, others int) {
	e.t.Helper()
	left, found := e.read(false), map[string][]string{}
	for _, topic := range []string{e.name + ".system", e.name + ".user"} {
		for _, record := range kafkatest.ReadAllOn(e.t, e.broker, topic) {
			if record.Header("lapse-op") != "fence" {
				table := record.Header("lapse-root")
				if table == "" {
					table = record.Header("lapse-table")
				}
				row := table + " " + string(record.Key)
				found[row] = append(found[row], record.Header("lapse-cause"))
			}
		}
	}
	missing := 0
	for row := range before {
		causes := found[row]
		switch {
		case left[row] && len(causes) > 0:
			e.t.Error("an event speaks of a row that is there")
		case left[row]:
		case len(causes) == 0:
			missing++
		case len(causes) > 1:
			e.t.Errorf("a row has events of causes %v", causes)
		case causes[0] == "system" && due[row]:
			system++
		case causes[0] == "user" && user(row):
			others++
		default:
			e.t.Errorf("a row that was due: %v, and that the application may have deleted: %v, has an event of cause %s", due[row], user(row), causes[0])
		}
		delete(found, row)
	}
	e.t.Logf("%d rows: %d the system's, %d the application's, %d left", len(before), system, others, len(left))
	if missing > 0 || len(found) > 0 {
		e.t.Errorf("%d rows are gone without an event, %d events speak of no row that was there", missing, len(found))
	}
	return system, others
}

// fetched runs a package manager, and skips the test by name where it, or what it fetches, is missing.
func fetched(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	if said, err := cmd.CombinedOutput(); err != nil {
		fixture.Missing(t, fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, said))
	}
}
