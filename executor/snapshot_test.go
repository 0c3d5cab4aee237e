package executor

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/planner/survey"
)

// snapshots are the rows of lapse.snapshot in a few words.
func snapshots(t *testing.T, db *pgtest.DB) []string {
	t.Helper()
	rows, err := db.Connect(t).Query(t.Context(), `
		select concat_ws(' ', s.policy, s.version, s.step, case when s.seen is not null then 'seen' end, s.due, s.overdue, s.held, s.quarantined, 'over ' || s.oldest_over, s.not_counted)
		  from lapse.snapshot s order by s.number`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// What is due, overdue, held and quarantined is counted once for each version, and once a day.
func TestWhatIsDueIsCountedInASnapshot(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		db.Exec(t, "insert into sessions select 1000 + g, now() - interval '60 days' from generate_series(1, 3) g")
		arm(t, db, policies(policy("p", "public.sessions", "latitude: 11 days")))
		placeHold(t, holdSession(t, db), byKeys("public.sessions", "1", "2"))
		db.Exec(t, `insert into lapse.quarantine (policy_id, leaf, digest, key, sqlstate, retry_at) select 1, 'sessions'::regclass, sha256('7'), '{7}', '23503', now() + interval '1 day'`)
		e := newExecutor(t, db)
		takes := func() {
			t.Helper()
			if err := e.takeSnapshots(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		takes()
		if got := snapshots(t, db); len(got) > 0 {
			t.Errorf("without an audit there are %q", got)
		}
		db.Exec(t, "update lapse.installation set audit_required = true")
		takes()
		takes()
		want := []string{"p 1 begun", "p 1 taken seen", "p 1 counted 51 3 2 1 over 2592000"}
		if got := snapshots(t, db); !slices.Equal(got, want) {
			t.Errorf("counted %q, want %q", got, want)
		}
		apply(t, db, policies(policy("p", "public.sessions", "latitude: 1 day")))
		takes()
		want = append(want, "p 2 begun", "p 2 taken seen", "p 2 counted 51 51 2 1 over 2592000")
		if got := snapshots(t, db); !slices.Equal(got, want) {
			t.Errorf("for the next version counted %q, want %q", got, want)
		}
	})
}

// What is committed after the snapshot was taken is not in its count, wherever the count is in the log; and who keeps it from counting is told.
func TestACountSeesItsSnapshotAndNothingLater(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 5, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		// As soon as the snapshot is published, somebody deletes.
		db.Exec(t, "update lapse.installation set audit_required = true",
			`create function delete_one() returns trigger language plpgsql as $$ begin delete from public.sessions where id = 1; return null; end $$`,
			`create trigger deletes after insert on lapse.snapshot for each row when (new.step = 'taken') execute function delete_one()`,
			"grant delete, select on sessions to lapse_owner")
		e := newExecutor(t, db)
		session, err := batch.Connect(t.Context(), e.config.Database, "test", time.Second, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		policies, err := record.LoadInForce(t.Context(), session.Control)
		if err != nil {
			t.Fatal(err)
		}
		count := func() {
			t.Helper()
			if _, err := survey.Snapshot(t.Context(), session.Batches, session.Control, &policies[0], 0, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		count()
		count() // there is a younger one
		db.Exec(t, `do $$ begin
			perform set_config('session_replication_role', 'replica', true);
			update lapse.snapshot set at = at - interval '1 hour';
		end $$`)
		locker := db.Connect(t)
		if _, err := locker.Exec(t.Context(), "begin; lock table sessions in access exclusive mode"); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, "drop trigger deletes on lapse.snapshot")
		count()
		got := snapshots(t, db)
		want := []string{"p 1 begun", "p 1 taken seen", "p 1 counted 5 5 0 0 over 604800", "p 1 begun", "p 1 taken seen", "p 1 counted error 55P03"}
		if !slices.Equal(got, want) {
			t.Errorf("counted %q, want %q", got, want)
		}
	})
}
