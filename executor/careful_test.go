package executor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/executor/guard"
	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/schemas"
)

// One transaction has 2 % of the children locked. All other rows are deleted, at any pace, in batches that are as large as they would be, and no row
// is in quarantine.
//
//lapse:long
func TestLockedChildrenKeepNothingElse(t *testing.T) {
	t.Parallel()
	for name, does := range map[string]string{"cascade": "cascade", "set null": "set null"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
				sessions(t, db, 2000, 5)
				owned(t, db, "create table logins (id bigint primary key, session bigint references sessions on delete "+does+")", "create index on logins (session)",
					"insert into logins select id, id from sessions", "create table clicks (login bigint references logins on delete "+does+")", "create index on clicks (login)",
					"insert into clicks select id from sessions", "analyze")
				arm(t, db, policies(policy("p", "public.sessions")))
				e := newExecutor(t, db)
				app := db.Connect(t)
				err := pgx.BeginFunc(t.Context(), app, func(tx pgx.Tx) error {
					if _, err := tx.Exec(t.Context(), "select from logins where session % 50 = 0 for update"); err != nil {
						return err
					}
					s := once(t, e)
					if p := only(t, s); p.Deleted != 1960 || !p.LeftBehind {
						t.Errorf("with 40 rows' children locked: %+v", p)
					}
					for _, m := range e.known {
						if by := m.locks.by(); by.process != int32(app.PgConn().PID()) || by.String() == "" { // #nosec G115 -- a process id
							t.Errorf("the rows are locked by %+v, want process %d", by, app.PgConn().PID())
						}
					}
					list, err := record.LoadInForce(t.Context(), connectTo(t, db))
					if err != nil {
						return err
					}
					lines := e.newWorker(0, newScheduler(endless{e}, e.memory, e.now)).reportLines(list, &guard.Answer{})
					said := lines[len(lines)-1]
					if want := fmt.Sprintf("in the last run process %d", app.PgConn().PID()); said.held != schemas.HeldByLock || !strings.HasPrefix(said.reason, want) {
						t.Errorf("status hears %+v, want who has the rows locked", said)
					}
					t.Logf("1,960 of 2,000 rows went in %.1f s", only(t, s).Whole.Seconds)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if got := one[int](t, db, "select count(*) from lapse.quarantine"); got != 0 {
					t.Errorf("%d rows are in quarantine", got)
				}
				if s := once(t, e, "p"); only(t, s).Deleted != 40 || only(t, s).LeftBehind {
					t.Errorf("with nothing locked: %+v", only(t, s))
				}
			})
		})
	}
}

// thread is a table of comments, each with what it answers, and what becomes of its due ones.
type thread struct {
	answers string // of the foreign key
	rows    string // SQL that makes rows beside 5,000 that are free
	batch   int
	stay    int // due rows that stay, for they are referred to by what stays
}

// Comments of one thread go together, however long it is, and what stays keeps only what it answers.
//
//lapse:long
func TestThreadsOfCommentsGo(t *testing.T) {
	t.Parallel()
	const chain = "insert into comments select 10000 + g, now() - interval '100 days' + g * interval '1 minute', nullif(10000 + g - 1, 10000) from generate_series(1, %d) g"
	const replies = `insert into comments select 10000 + g, now() - interval '100 days' + g * interval '1 second' from generate_series(1, 150) g;
		insert into comments select 20000 + g, now(), 10000 + g from generate_series(1, 150) g`
	threads := map[string]thread{
		"a chain":                     {"", fmt.Sprintf(chain, 300), 5000, 0},
		"a chain of several batches":  {"", fmt.Sprintf(chain, 300), 40, 0},
		"a chain that restricts":      {"on delete restrict", fmt.Sprintf(chain, 300), 100, 0},
		"a chain that is deferred":    {"deferrable initially deferred", fmt.Sprintf(chain, 300), 100, 0},
		"a chain that is set null":    {"on delete set null", fmt.Sprintf(chain, 300), 100, 0},
		"a circle":                    {"deferrable", fmt.Sprintf(chain, 90) + "; update comments set up = 10090 where id = 10001", 100, 0},
		"a chain with a live end":     {"", fmt.Sprintf(chain, 80) + "; update comments set at = now() where id = 10080", 30, 79},
		"live replies to the oldest":  {"", replies, 5000, 150},
		"live replies, small batches": {"", replies, 20, 150},
		"one with many answers": {"", `insert into comments values (10000, now() - interval '1 year');
			insert into comments select 10000 + g, now() - interval '40 days' - g * interval '1 second', 10000 from generate_series(1, 500) g`, 50, 0},
		"rows of another table": {"", `create table pins (comment bigint references comments); create index on pins (comment);
			insert into pins select g from generate_series(4901, 5000) g`, 500, 100},
	}
	for name, c := range threads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
				owned(t, db, "create table comments (id bigint primary key, at timestamptz, up bigint references comments "+c.answers+")",
					"create index on comments (at, id)", "create index on comments (up)",
					"insert into comments select g, now() - interval '40 days' - g * interval '1 second' from generate_series(1, 5000) g",
					"insert into comments select 6000 + g, now() from generate_series(1, 5) g", c.rows, "analyze")
				arm(t, db, policies(policy("p", "public.comments", fmt.Sprintf("batch: %d", c.batch), "pace: unlimited")))
				e := newExecutor(t, db)
				const due = "select count(*)::int from comments where at < now() - interval '30 days'"
				s, err := e.Once(t.Context(), []schemas.PolicyName{"p"})
				t.Logf("%d rows went in %.1f s, %d batches", only(t, s).Deleted, only(t, s).Whole.Seconds, only(t, s).Batches)
				if only(t, s).LeftBehind { // what was mixed with free rows is found by the next run
					s, err = e.Once(t.Context(), []schemas.PolicyName{"p"})
				}
				want := Finished
				if c.stay > 0 {
					want = Resisted
				}
				if p := only(t, s); p.Outcome != want || p.LeftBehind {
					t.Errorf("%+v, %v; want it %s", p, err, want)
				}
				if got := one[int](t, db, due); got != c.stay {
					t.Errorf("%d due rows are left, want %d", got, c.stay)
				}
				if got := one[int](t, db, "select count(*)::int from lapse.quarantine where referred"); got != c.stay {
					t.Errorf("%d rows are in quarantine, want %d", got, c.stay)
				}
				balanced(t, db)
				if c.stay == 0 {
					return
				}
				// What keeps them goes too: so do they.
				if owned(t, db, "update comments set at = now() - interval '31 days' where at > now() - interval '1 hour' and up is not null"); strings.Contains(c.rows, "pins") {
					owned(t, db, "drop table pins")
				}
				db.Exec(t, "update lapse.quarantine set retry_at = now()")
				for range 3 {
					if s, err = e.Once(t.Context(), []schemas.PolicyName{"p"}); err == nil && !only(t, s).LeftBehind {
						break
					}
				}
				if got := one[string](t, db, "select (select count(*) from comments where at < now() - interval '30 days') || ' ' || (select count(*) from lapse.quarantine)"); got != "0 0" {
					t.Errorf("due rows and entries left: %s, want 0 0: %+v, %v", got, only(t, s), err)
				}
			})
		})
	}
}
