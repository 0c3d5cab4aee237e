package executor

import (
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// underHold is a table of ten due rows and five that are not, with children, their children and answers to these. Rows of the last
// three with the word secret are held.
func underHold(t testing.TB, db *pgtest.DB) {
	t.Helper()
	sessions(t, db, 10, 5)
	owned(t, db, "create table notes (id bigint primary key, session bigint references sessions on delete cascade, word text)", "create index on notes (session)",
		"insert into notes select id, id, 'open' from sessions",
		"create table marks (id bigint primary key, note bigint references notes on delete cascade, up bigint references marks on delete cascade, word text)",
		"create index on marks (note)", "create index on marks (up)",
		"insert into marks select id, id, null, 'open' from sessions", "insert into marks select 100 + id, null, id, 'open' from sessions",
		"insert into marks select 200 + id, null, 100 + id, 'open' from sessions")
	s := holdSession(t, db)
	placeHold(t, s, byWhere("public.notes", "word = 'secret'"))
	placeHold(t, s, byWhere("public.marks", "word = 'secret'"))
}

// What comes under a hold in a transaction of the application's, which a batch meets before it commits, stays: whichever row the batch
// would wait for.
func TestARowThatComesUnderAHoldWhileABatchRunsIsNotTakenAlong(t *testing.T) {
	t.Parallel()
	changes := map[string]string{ // of what belongs to session 7
		"a child":                     "update notes set word = 'secret' where id = 7",
		"a child that is new":         "insert into notes values (50, 7, 'secret')",
		"a child that was another's":  "update notes set session = 7, word = 'secret' where id = 12",
		"a child and its parent":      "update notes set word = 'secret' where id = 7; update sessions set note = 'x' where id = 7",
		"a grandchild":                "update marks set word = 'secret' where id = 7",
		"a grandchild that is new":    "insert into marks values (50, 7, null, 'secret')",
		"an answer to an answer":      "update marks set word = 'secret' where id = 207",
		"an answer that is new":       "insert into marks values (50, null, 207, 'secret')",
		"an answer that moves":        "update marks set up = 207, word = 'secret' where id = 12",
		"a parent and its grandchild": "update sessions set note = 'x' where id = 7; update marks set word = 'secret' where id = 7",
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
				underHold(t, db)
				arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
				w := open(t, db, "p")
				w.a.Limits.Lock = 250 * time.Millisecond
				app := db.Connect(t)
				if _, err := app.Exec(t.Context(), "begin; "+change); err != nil {
					t.Fatal(err)
				}
				batch := make(chan error, 1)
				go func() {
					_, err := w.batch(t, 10)
					batch <- err
				}()
				eventually(t, "the batch waits, or is over", func() bool {
					return len(batch) > 0 || one[bool](t, db, "select exists (select from pg_stat_activity where application_name like 'lapse: p %' and wait_event_type = 'Lock')")
				})
				if _, err := app.Exec(t.Context(), "commit"); err != nil {
					t.Fatal(err)
				}
				if err := <-batch; err != nil && schemas.StateOf(err) != schemas.SQLStateLockNotAvailable {
					t.Error(err)
				}
				db.Exec(t, expireLeases)
				once(t, newExecutor(t, db), "p")
				if got := one[int](t, db, "select (select count(*) from notes where word = 'secret') + (select count(*) from marks where word = 'secret')"); got != 1 {
					t.Errorf("%d held rows are left, want 1", got)
				}
				if got := ids(t, db, "sessions where id <= 10"); got != "7" {
					t.Errorf("of the due rows %s are left, want 7", got)
				}
			})
		})
	}
}
