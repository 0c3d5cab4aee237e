package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"lapse/executor/batch"
	"lapse/executor/guard"
	"lapse/internal/fixture"
	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/schemas"
)

// idlers are policies p0, p1 … on tables t0, t1 … in which nothing is due, and a worker that has looked at each once.
func idlers(t testing.TB, db *pgtest.DB, n int, more ...string) (*worker, []*turn) {
	t.Helper()
	var file []string
	for i := range n {
		owned(t, db, fmt.Sprintf("create table t%d (id bigint primary key, at timestamptz)", i), fmt.Sprintf("create index on t%d (at, id)", i),
			fmt.Sprintf("insert into t%d select g, now() from generate_series(1, 10) g", i))
		file = append(file, policy(fmt.Sprintf("p%d", i), fmt.Sprintf("public.t%d", i), more...))
	}
	arm(t, db, policies(file...))
	w := newTestWorker(t, db)
	began := time.Now()
	w.now = func() time.Time { return began } // no look is too long for others to share it, however busy the machine is
	if err := w.connect(t.Context(), forever); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	list, err := record.LoadInForce(t.Context(), w.session.Control)
	if err != nil {
		t.Fatal(err)
	}
	turns := make([]*turn, n)
	for i := range list {
		turns[i] = newTurn(&list[i], w.memory(&list[i]))
		if _, end, err := w.look(t.Context(), turns[i]); err != nil || end != turnFinished || !turns[i].memory.quiet.mayShare(w.now()) {
			t.Fatalf("the first look of %s ends with %v, %v", list[i].Name, end, err)
		}
	}
	return w, turns
}

// together makes the looks together, and returns the policies that get turns of their own for it.
func (w *worker) together(t testing.TB, turns []*turn) (alone []string) {
	t.Helper()
	w.looks(t.Context(), turns)
	for _, turn := range turns {
		if !turn.memory.quiet.mayShare(w.now()) {
			alone = append(alone, string(turn.policy.Name))
		}
		if turn.memory.quiet.mayShare(w.now()) != (turn.workers == 1) { // a turn that is over without one more list was not left
			t.Errorf("the turn of %s has %d workers", turn.policy.Name, turn.workers)
		}
		turn.workers, turn.end = 1, turnGoesOn
		turn.memory.quiet.share(true, w.now())
		turn.memory.quiet.apart = time.Time{}
	}
	return alone
}

// What looks find one by one they find together, and what one meets is its own policy's.
func TestLooksTogetherFindWhatTheyFindAlone(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w, turns := idlers(t, db, 5)
		for _, c := range []struct{ what, then, undo, alone string }{
			{"nothing happened", "", "", "[]"},
			{"a row is due", "insert into t1 values (0, now() - interval '31 days')", "delete from t1 where id = 0", "[p1]"},
			{
				"rows are due in two", "insert into t0 values (0, now() - interval '31 days'); update t4 set at = now() - interval '1 year' where id = 3",
				"delete from t0 where id = 0; delete from t4 where id = 3", "[p0 p4]",
			},
			{"an index came", "create index extra on t2 (id)", "", "[p2]"},
			{"a table is gone", "alter table t3 rename to t33", "alter table t33 rename to t3", "[p3]"},
		} {
			if c.then != "" {
				owned(t, db, c.then)
			}
			if got := fmt.Sprint(w.together(t, turns)); got != c.alone {
				t.Errorf("%s: %s get turns of their own, want %s", c.what, got, c.alone)
			}
			if c.undo != "" {
				owned(t, db, c.undo)
			}
			for _, turn := range turns { // in turns of their own they find nothing again
				if _, end, err := w.look(t.Context(), turn); err != nil || end != turnFinished {
					t.Fatalf("%s: after it the look of %s ends with %v, %v", c.what, turn.policy.Name, end, err)
				}
			}
		}
		locker, err := db.ConnectAs(t, appRole).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locker.Exec(t.Context(), "lock table t2 in access exclusive mode"); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(w.together(t, turns)); got != "[p2]" {
			t.Errorf("a table is locked: %s get turns of their own", got)
		}
		if err := locker.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// None of many looks runs if a function is not ours, of any of them.
func TestLooksTogetherByAFunctionThatIsNotOursAreNotMade(t *testing.T) {
	t.Parallel()
	const signature = "lapse.due_2_1(timestamptz, bigint[])"
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w, turns := idlers(t, db, 3)
		for what, change := range map[string][2]string{
			"the caller's rights":  {"alter function " + signature + " security invoker", "alter function " + signature + " security definer"},
			"for everybody":        {"grant execute on function " + signature + " to public", "revoke execute on function " + signature + " from public"},
			"checks that see less": {rewrite("lapse.familiar", "if e.signature = ", "if true or e.signature = "), rewrite("lapse.familiar", "if true or e.signature = ", "if e.signature = ")},
		} {
			db.Exec(t, change[0])
			var searches []batch.Search
			for _, turn := range turns {
				f, err := turn.memory.programs.looks()
				if err != nil {
					t.Fatal(err)
				}
				searches = append(searches, batch.Search{Policy: turn.policy, Functions: f})
			}
			if _, err := w.session.FindAllDue(t.Context(), searches); !errors.Is(err, batch.ErrFunctionsChanged) {
				t.Errorf("%s: %v", what, err)
			}
			if got := w.together(t, turns); len(got) != len(turns) {
				t.Errorf("%s: only %s get turns of their own", what, got)
			}
			stopped := 0
			for _, turn := range turns {
				if _, _, err := w.look(t.Context(), turn); err != nil {
					stopped++
				}
			}
			if want := map[bool]int{true: 3, false: 1}[strings.HasPrefix(what, "checks")]; stopped != want {
				t.Errorf("%s: %d policies stop, want %d", what, stopped, want)
			}
			db.Exec(t, change[1])
			for _, turn := range turns {
				if _, end, err := w.look(t.Context(), turn); err != nil || end != turnFinished {
					t.Fatalf("without %s: %v, %v", what, end, err)
				}
			}
		}
	})
}

// Code that runs in one look, as the owner of its table may have it, leaves nothing in the session for the next one.
func TestALookLeavesNothingToTheNextOne(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w, turns := idlers(t, db, 2)
		var said []string
		hear := func(_ *pgconn.PgConn, n *pgconn.Notice) { said = append(said, n.Message) }
		w.session.Close()
		w.config.Database.OnNotice = hear
		if err := w.connect(t.Context(), forever); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `
			create function public.asks(int) returns boolean language plpgsql immutable as $f$
			begin
			  raise warning '%', concat_ws(' ', current_setting('search_path'), current_setting('statement_timeout'), current_setting('lock_timeout'), current_setting('my.mark', true),
			    (select count(*) from pg_locks l where l.pid = pg_backend_pid() and l.locktype in ('advisory', 'relation') and l.relation is distinct from 'pg_locks'::regclass));
			  return true;
			end $f$;
			create function public.sets(int) returns boolean language plpgsql immutable as $f$
			begin
			  perform set_config('search_path', 'evil, pg_catalog', false), set_config('statement_timeout', '1h', false), set_config('lock_timeout', '1h', false),
			          set_config('my.mark', 'x', false), pg_advisory_xact_lock(4711);
			  raise warning 'set';
			  return true;
			end $f$;
			create index planted on public.t0 (id) where public.sets(1);
			create index planting on public.t1 (id) where public.asks(1)`)
		for range 8 { // until PostgreSQL keeps its plans: one that is made locks more
			for _, turn := range turns {
				if _, _, err := w.look(t.Context(), turn); err != nil {
					t.Fatal(err)
				}
			}
		}
		anew := func() { // the code runs where the look's own statement is planned: when PostgreSQL has counted other numbers of rows
			t.Helper()
			db.Exec(t, "insert into public.t0 select max(id) + 1, now() from public.t0", "insert into public.t1 select max(id) + 1, now() from public.t1", "analyze public.t0, public.t1")
		}
		anew()
		said = nil
		if _, _, err := w.look(t.Context(), turns[1]); err != nil {
			t.Fatal(err)
		}
		alone := said
		anew()
		said = nil
		if got := w.together(t, turns); len(got) != 0 {
			t.Fatalf("%s get turns of their own", got)
		}
		if len(alone) == 0 || !slices.Contains(said, "set") {
			t.Fatalf("the planted code never ran: the test shows nothing: %q, %q", alone, said)
		}
		if got := slices.DeleteFunc(said, func(s string) bool { return s == "set" }); !slices.Equal(got, alone) {
			t.Errorf("beside another look it sees %q, alone %q", got, alone)
		}
	})
}

// A policy that shares its looks is paused, changed and dropped like any other, and its due rows go.
func TestAPolicyThatSharesItsLooksIsHeeded(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		const every = "every: 200 milliseconds"
		idlers(t, db, 4, every)
		e := newExecutor(t, db)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		shared := func(n int) {
			t.Helper()
			eventually(t, fmt.Sprintf("%d policies share their looks", n), func() bool {
				e.mu.Lock()
				defer e.mu.Unlock()
				share := 0
				for _, m := range e.known {
					if m.quiet.mayShare(e.now()) {
						share++
					}
				}
				return share == n
			})
		}
		insert := func(table, age string) {
			owned(t, db, fmt.Sprintf("insert into %s values (0, now() - interval '%s')", table, age))
		}
		left := func(table string) int { return one[int](t, db, "select count(*) from "+table+" where id = 0") }
		goes := func(table string) {
			t.Helper()
			eventually(t, "what is due in "+table+" goes", func() bool { return left(table) == 0 })
		}
		shared(4)
		insert("t0", "31 days")
		goes("t0")
		shared(4)

		db.Exec(t, "update lapse.gate set state = 'paused' where policy_id = 2")
		insert("t1", "31 days")
		insert("t2", "31 days") // which goes, and so did the turn that t1 would have had
		goes("t2")
		if left("t1") != 1 {
			t.Error("a paused policy has deleted")
		}
		db.Exec(t, "update lapse.gate set state = 'armed' where policy_id = 2")
		goes("t1")

		shared(4)
		arm(t, db, policies(policy("p0", "public.t0", every), policy("p2", "public.t2", every), fixture.Policy("p3", "public.t3", "at", "60 days", "state: armed", every)))
		insert("t3", "40 days")
		insert("t1", "31 days")
		shared(3)
		insert("t2", "31 days")
		goes("t2")
		if left("t3") != 1 || left("t1") != 1 {
			t.Error("a version that is not in force, or a dropped policy, has deleted")
		}
		owned(t, db, "update t3 set at = now() - interval '61 days' where id = 0")
		goes("t3")
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Looks that are shared are made from a list of any age; a turn of its own a policy gets from a list that was read after them. No
// policy is in two workers' hands.
func TestLooksThatAreSharedNeedNoNewList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policies := rapid.IntRange(1, 2*looksTogether).Draw(t, "policies")
		s, list := schedule(policies)
		sharing := make([]bool, policies)
		for i := range sharing {
			sharing[i] = rapid.Bool().Draw(t, "shares")
		}
		s.goal.(*always).idle = func(p *record.InForce) bool { return sharing[p.ID] }
		var busy []task
		reads, listed := 0, 0
		ended := map[schemas.PolicyID]int{} // how many lists had been begun when it ended otherwise than by a look
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			if len(busy) < 3 {
				switch next := s.next(true); {
				case next.read:
					reads++
					if err := s.list(list, guard.Answer{}); err != nil {
						t.Fatal(err)
					}
					listed = reads
				case next.turn != nil || next.looks != nil:
					for _, its := range append(slices.Clone(next.looks), next.turn) {
						if its == nil {
							continue
						}
						id := its.policy.ID
						if sharing[id] != (next.turn == nil) {
							t.Fatalf("policy %d, which shares: %v, got %+v", id, sharing[id], next)
						}
						if ended[id] >= listed && ended[id] > 0 {
							t.Fatalf("policy %d has a turn from list %d, and its last ended after list %d", id, listed, ended[id])
						}
						for _, other := range busy {
							if slices.ContainsFunc(append(slices.Clone(other.looks), other.turn), func(o *turn) bool { return o != nil && o.policy.ID == id }) {
								t.Fatalf("policy %d is in two hands", id)
							}
						}
					}
					busy = append(busy, next)
				}
			}
			if len(busy) == 0 || rapid.Bool().Draw(t, "nothing ends") {
				continue
			}
			over := busy[0]
			busy = busy[1:]
			if over.turn != nil {
				id := over.turn.policy.ID
				sharing[id] = rapid.Bool().Draw(t, "shares then")
				ended[id] = reads
				s.leave(over.turn, turnFinished)
				continue
			}
			alone := rapid.IntRange(0, len(over.looks)).Draw(t, "alone")
			for _, turn := range over.looks[:alone] {
				sharing[turn.policy.ID] = false
				ended[turn.policy.ID] = reads
				s.leave(turn, turnMore)
			}
			s.looked(over.looks[alone:])
		}
	})

	s, list := schedule(3)
	s.goal.(*always).idle = func(*record.InForce) bool { return true }
	if err := s.list(list, guard.Answer{}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		next := s.next(true)
		if len(next.looks) != 3 {
			t.Fatalf("got %+v, want the looks of all three", next)
		}
		s.looked(next.looks)
	}
	now := s.now().Add(s.goal.reread())
	s.now = func() time.Time { return now }
	if next := s.next(true); !next.read {
		t.Errorf("while looks are always due the list is never read: %+v", next)
	}
	if err := s.list(list, guard.Answer{}); err != nil {
		t.Fatal(err)
	}
	next := s.next(true)
	s.leave(next.looks[0], turnMore)
	s.looked(next.looks[1:])
	if next := s.next(true); !next.read {
		t.Errorf("after a turn that ended otherwise comes %+v, want a new list", next)
	}
	if next := s.next(true); len(next.looks) != 2 {
		t.Errorf("while it is read: %+v, want the looks of the other two", next)
	}
}
