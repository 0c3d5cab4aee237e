package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

func TestWhatNobodyForesawStopsThePolicyAndNotTheProcess(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"XX001", "58030", "ZZ999"} {
		t.Run(state, func(t *testing.T) {
			pgtest.On(t, []int{14}, func(t *testing.T, db *pgtest.DB) {
				sessions(t, db, 20, 5)
				owned(t, db, "create table others (id bigint primary key, at timestamptz)", "create index on others (at, id)",
					"insert into others select g, now() - interval '31 days' from generate_series(1, 30) g")
				arm(t, db, policies(policy("a", "public.sessions"), policy("b", "public.others")))
				plant(t, db, "raise exception 'topsecret' using errcode = '"+state+"';")
				e := newExecutor(t, db)
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- e.Run(ctx) }()
				eventually(t, "the other policy's rows are deleted", func() bool { return one[int](t, db, "select count(*) from others") == 0 })
				eventually(t, "readiness names the stopped policy", func() bool {
					err := e.Ready()
					return err != nil && strings.Contains(err.Error(), "policy a is stopped") && strings.Contains(err.Error(), state) &&
						!strings.Contains(err.Error(), "topsecret")
				})
				stop()
				if err := <-ended; err != nil {
					t.Errorf("the process ended: %v", err)
				}
				if got := one[int](t, db, "select count(*) from sessions"); got != 25 {
					t.Errorf("%d rows are left, want all 25", got)
				}
			})
		})
	}
}

func TestATableThatIsGoneOrAnotherIsAStoppedPolicyByName(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"dropped":    "drop table sessions",
		"made again": "drop table sessions; create table sessions (id bigint primary key, at timestamptz, note text); insert into sessions values (1, '2000-01-01')",
		"swapped":    "alter table sessions rename to away; create table sessions (id bigint primary key, at timestamptz, note text); insert into sessions values (1, '2000-01-01')",
	} {
		t.Run(name, func(t *testing.T) {
			pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
				sessions(t, db, 20, 5)
				arm(t, db, policies(policy("p", "public.sessions")))
				owned(t, db, change)
				s, err := newExecutor(t, db).Once(t.Context(), nil)
				var changed *run.SchemaChangedError
				if !errors.As(err, &changed) || only(t, s).Outcome != Stopped || !strings.Contains(err.Error(), "lapse apply") {
					t.Errorf("Once did %+v, %v; want a stopped policy", s.Policies, err)
				}
				if name != "dropped" && one[int](t, db, "select count(*) from sessions") != 1 {
					t.Error("the other table lost its row")
				}
				e := newExecutor(t, db)
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- e.Run(ctx) }()
				eventually(t, "readiness names it", func() bool {
					err := e.Ready()
					return err != nil && strings.Contains(err.Error(), "policy p is stopped: ") && strings.Contains(err.Error(), "public.sessions is") &&
						!strings.Contains(err.Error(), "policy p: ")
				})
				if got := counted(t, e, "lapse_policy_state", "stopped"); got != 1 {
					t.Errorf("the metric of a stopped policy is %v", got)
				}
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestWithForeignKeysTurnedOffNothingIsDeleted(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 20, 5)
		owned(t, db, "create table notes (session bigint references sessions)", "create index on notes (session)",
			"insert into notes select id from sessions")
		arm(t, db, policies(policy("p", "public.sessions")))
		db.Exec(t, "alter database "+db.Name+" set session_replication_role = replica")
		_, err := newExecutor(t, db).Once(t.Context(), nil)
		var server *ServerError
		if !errors.As(err, &server) || server.SQLState != schemas.SQLStateReplica || !strings.Contains(err.Error(), "alter role") {
			t.Errorf("got %v, want a refusal that says how to turn it off", err)
		}
		if got := one[int](t, db, "select count(*) from notes n where not exists (select from sessions s where s.id = n.session)"); got != 0 {
			t.Errorf("%d orphans", got)
		}
	})
}

func TestLockedDueRowsThatAreLeftAreSaidAndLookedForSoon(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		for _, locked := range []int{5, 20} { // some, and all
			owned(t, db, "drop table if exists sessions")
			sessions(t, db, 20, 5)
			arm(t, db, "policies:\n  - {name: p, table: public.sessions, expire: {column: at, after: 30 days}, state: armed, daily: \"03:00\"}\n")
			err := pgx.BeginFunc(t.Context(), db.Connect(t), func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), fmt.Sprintf("select from sessions where id <= %d for update", locked)); err != nil {
					return err
				}
				s, err := newExecutor(t, db).Once(t.Context(), []schemas.PolicyName{"p"})
				if err != nil || !only(t, s).LeftBehind || only(t, s).Deleted != int64(20-locked) {
					t.Errorf("%d rows locked: Once did %+v, %v; want it to say that rows are left", locked, s.Policies, err)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			next := one[time.Time](t, db, "select now()")
			for _, p := range inForce(t, db) {
				if next, err = p.NextRun(); err != nil {
					t.Fatal(err)
				}
			}
			if soon := one[time.Time](t, db, "select now() + interval '6 minutes'"); next.After(soon) {
				t.Errorf("%d rows locked: the next run is at %v, want it within minutes", locked, next)
			}
			s := once(t, newExecutor(t, db), "p")
			if only(t, s).LeftBehind || only(t, s).Deleted != int64(locked) {
				t.Errorf("with nothing locked Once did %+v", only(t, s))
			}
		}
	})
}

// The application locks a child's row and then wants the parent's; a batch has the parent's and comes to wait for the child's.
// The application waits first, so that its deadlock_timeout ends first. Another session holds the batch up until it does.
func TestTheApplicationIsNeverTheDeadlocksVictim(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 20, 5)
		owned(t, db, "create table notes (session bigint references sessions on delete cascade, text text)", "create index on notes (session)",
			"insert into notes select id from sessions")
		arm(t, db, policies(policy("p", "public.sessions", "batch: 20")))
		w := open(t, db, "p")
		w.a.Limits.Lock = 250 * time.Millisecond // at gentle pace it would give up before one could look
		app, other := db.Connect(t), db.Connect(t)
		do := func(conn *pgx.Conn, sql string) error {
			_, err := conn.Exec(t.Context(), sql)
			return err
		}
		waits := func(which string) func() bool {
			return func() bool {
				return one[bool](t, db, "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and "+which+")")
			}
		}
		for range 3 {
			for conn, session := range map[*pgx.Conn]string{app: "10", other: "15"} {
				if err := errors.Join(do(conn, "begin"), do(conn, "update notes set text = 'x' where session = "+session)); err != nil {
					t.Fatal(err)
				}
			}
			batch, update := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := w.batch(t, 20)
				batch <- err
			}()
			eventually(t, "the batch has the parents and waits for a child, or has given up", func() bool {
				return waits("application_name like 'lapse: p %'")() || len(batch) > 0
			})
			go func() { update <- do(app, "update sessions set note = 'x' where id = 10") }()
			eventually(t, "the application waits, or the batch has given up", func() bool {
				return waits("query like 'update sessions%'")() || len(batch) > 0
			})
			if err := do(other, "rollback"); err != nil {
				t.Fatal(err)
			}
			if err := <-update; err != nil {
				t.Errorf("the application was the victim: %v", err)
			}
			if err := do(app, "rollback"); err != nil {
				t.Fatal(err)
			}
			if err := <-batch; schemas.StateOf(err) != schemas.SQLStateLockNotAvailable || grade(err, circumstances{limit: 20, own: true}) != Retry {
				t.Errorf("the batch got %v, want that it gives the lock up and tries again", err)
			}
		}
	})
}

// inForce lists the policies as the executor sees them.
func inForce(t testing.TB, db *pgtest.DB) []record.InForce {
	t.Helper()
	list, err := record.LoadInForce(t.Context(), db.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	return list
}
