package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/database"
)

// The eight faults are of this database alone: the roles are shared with the other tests' databases.
var eightFaults = []struct{ plant, named string }{
	{`alter database {} set track_counts = off`, "track_counts is not on"},
	{`alter database {} set session_replication_role = replica`, "session_replication_role is not origin"},
	{`alter database {} set default_transaction_read_only = on`, "default_transaction_read_only is not off"},
	{`create function public.f() returns trigger language plpgsql as 'begin return null; end';
	  create trigger spy after delete on public.visits for each row execute function public.f()`, "trigger spy on public.visits"},
	{`drop index public.visits_at_id_idx`, "no index on public.visits_all begins with at"},
	{`create table public.child (visit int, at timestamptz, foreign key (visit, at) references public.visits on delete set null)`, "no index serves foreign key"},
	{`alter table public.visits_all replica identity full`, "the deletes of public.visits_all cannot be published"},
	{`grant delete on public.visits to public`, "without the deletion functions"},
}

func TestWhatTheDoctorPrintsMendsEightFaults(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		db.Exec(t, `create table public.visits (id int, at timestamptz, primary key (id, at)) partition by range (at);
			create table public.visits_all partition of public.visits default; create index on public.visits (at, id)`)
		d := newDesk(t, db, db.URL)
		file := filepath.Join(t.TempDir(), "policies.yaml")
		if err := os.WriteFile(file, []byte("policies: [{ name: visits, table: public.visits, expire: { column: at, after: 30 days } }]"), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, log := d.lapse("apply", "--yes", "-f", file); code != exitDone {
			t.Fatal(log)
		}
		if code, out, log := d.lapse("doctor"); code != exitDone || !strings.Contains(out, ", 0 failed\n") {
			t.Fatalf("a sound database: exit code %d\n%s%s", code, out, log)
		}
		var plants []string
		for _, f := range eightFaults {
			plants = append(plants, strings.ReplaceAll(f.plant, "{}", db.Name))
		}
		db.Exec(t, append([]string{`set session_replication_role = origin`}, plants[3:]...)...)
		db.Exec(t, plants[:3]...)
		code, out, log := d.lapse("doctor")
		if code != exitPerson {
			t.Errorf("with faults: exit code %d\n%s%s", code, out, log)
		}
		for _, f := range eightFaults {
			if !strings.Contains(out, f.named) {
				t.Errorf("not named: %s\n%s", f.plant, out)
			}
		}
		person, err := pgx.Connect(t.Context(), db.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer database.Close(person)
		for _, line := range strings.Split(out, "\n") {
			sql, printed := strings.CutPrefix(line, "        ")
			if !printed || strings.HasPrefix(sql, "--") || strings.Contains(sql, "max_slot_wal_keep_size") || strings.Contains(sql, "pg_logical_emit_message") {
				continue // these two belong to the server, which the other tests share
			}
			if _, err := person.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
				t.Errorf("%s: %v", sql, err)
			}
		}
		if code, out, _ = d.lapse("doctor"); code != exitDone {
			t.Errorf("after the fixes: exit code %d\n%s", code, out)
		}
		for _, f := range eightFaults {
			if strings.Contains(out, f.named) {
				t.Errorf("still there: %s", f.named)
			}
		}
		code, out, _ = d.lapse("doctor", "--json")
		var answer struct {
			Failed   bool
			Findings []struct{ Check, Grade, Text string }
		}
		if err := resultIn(out, &answer); err != nil || code != exitDone || answer.Failed || len(answer.Findings) < 15 {
			t.Errorf("as JSON: exit code %d, %v\n%s", code, err, out)
		}
	})
}
