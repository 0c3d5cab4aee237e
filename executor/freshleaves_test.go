package executor

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"time"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// Fresh leaves are checked together between two looks, and each again by its batch. Whatever their owner does in between, a leaf with code
// that is not trusted loses no row, and no row goes that is not due.
func TestWhatTheOwnerDoesAroundTheChecksOfFreshLeavesIsNoticed(t *testing.T) {
	t.Parallel()
	const attached = `create table more (like events including all); insert into more values (9, now() - interval '40 days'), (10, now()); `
	const attach = `alter table events attach partition more for values in (9, 10)`
	const spy = `create function spy(bigint) returns bigint immutable language plpgsql as 'begin return $1; end'; `
	const fires = `create function fires() returns trigger language plpgsql as 'begin return old; end'; `
	all := []struct {
		name string
		then string // what the owner does while the executor waits for this table of the catalog
		ddl  string
		left string // a table whose due rows stay; the others' go where nothing stops the policy
		stop bool   // the policy must be stopped; where something is left it may be
	}{
		{"a partition is attached", "examined", attached + attach, "", false},
		{"one with code in an index is attached", "examined", attached + spy + "create index on more (spy(id)); " + attach, "more", true},
		{"a trigger comes", "examined", fires + "create trigger x before delete on events_3 for each row execute function fires()", "events_3", true},
		{"one with code in an index is attached after the look", "run", attached + spy + "create index on more (spy(id)); " + attach, "more", false}, // the next look finds it
		{"code comes into an index after the look", "run", spy + "create index on events_2 (spy(id))", "events_2", true},
		{"a trigger comes above after the look", "run", fires + "create trigger x after delete on events for each row execute function fires()", "events", true},
	}
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		for i, c := range all {
			schema := fmt.Sprintf("s%d", i)
			db.Exec(t, "create schema "+schema+" authorization "+appRole)
			in := "set search_path = " + schema + "; "
			owned(t, db, in+"create table events (id bigint primary key, at timestamptz) partition by list (id)")
			for n := 1; n <= 3; n++ {
				owned(t, db, in+fmt.Sprintf("create table events_%d partition of events for values in (%[1]d, %d)", n, 100+n))
			}
			owned(t, db, in+"insert into events select n, case when n > 100 then now() else now() - interval '40 days' end from unnest(array[1, 2, 3, 101, 102, 103]) n")
			arm(t, db, policies(policy(schema, schema+".events")))
			free := lockedAgainstWriters(t, db, "examined")
			done := make(chan error, 1)
			e := newExecutor(t, db)
			e.pruneAt = time.Now().Add(time.Hour) // it would wait for the same tables
			go func() {
				_, err := e.Once(t.Context(), []schemas.PolicyName{schemas.PolicyName(schema)})
				done <- err
			}()
			awaited(t, db, "examined", "acquaint")
			if c.then == "run" { // which is written to before the look too
				checked := free
				free = lockedAgainstWriters(t, db, "run")
				checked()
				awaited(t, db, "run", "open_run")
			}
			owned(t, db, in+c.ddl)
			free()
			err := <-done
			if stopped := err != nil; c.stop && !stopped || stopped && c.left == "" {
				t.Errorf("%s: %v", c.name, err)
			}
			due := map[string]int{}
			for _, table := range []string{"events", "events_1", "events_2", "events_3", cmp.Or(c.left, "events")} {
				due[table] = one[int](t, db, "select count(*)::int from "+schema+"."+table+" where at < now() - interval '30 days'")
			}
			live := one[int](t, db, "select count(*)::int from "+schema+".events where at > now() - interval '1 day'")
			if left := due[c.left]; live < 3 || (c.left != "") != (left > 0) || err == nil && due["events"] != left || c.left == "events" && due["events"] < 3 {
				t.Errorf("%s: %d rows that are not due are left, and due ones: %v", c.name, live, due)
			}
		}
	})
}

// lockedAgainstWriters locks a table of the catalog until free is called.
func lockedAgainstWriters(t *testing.T, db *pgtest.DB, table string) (free func()) {
	t.Helper()
	hold, err := db.Connect(t).Begin(t.Context())
	if err == nil {
		_, err = hold.Exec(t.Context(), "lock table lapse."+table+" in share mode")
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := hold.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// awaited waits until a call of a function waits for the lock of a table of the catalog.
func awaited(t *testing.T, db *pgtest.DB, table, function string) {
	t.Helper()
	eventually(t, "lapse."+function+" waits for lapse."+table, func() bool {
		return one[bool](t, db, `
			select exists (select from pg_locks l join pg_stat_activity a using (pid)
			                where l.relation = $1::regclass and not l.granted and a.datname = current_database() and position($2 in a.query) > 0)`, "lapse."+table, "lapse."+function+"(")
	})
}

// What checks a leaf is compared before it runs: what changed checks let pass would be known as checked from then on.
func TestALeafIsNotCheckedByChangedFunctions(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 60, 30)
		arm(t, db, policies(policy("p", "public.sessions")))
		const known = "select count(*) from lapse.examined"
		before := one[int](t, db, known)
		for name, change := range map[string][2]string{
			"lapse.acquaint":     {"perform lapse.follow_holds();", "perform lapse.follow_holds( );"},
			"lapse.keep":         {"return query", "return  query"},
			"lapse.examine":      {"stranger is not null", "stranger is null and false"},
			"lapse.intruders":    {"return query", "return; return query"},
			"lapse.surroundings": {"return query", "return; return query"},
		} {
			db.Exec(t, rewrite(name, change[0], change[1]))
			s, err := newExecutor(t, db).Once(t.Context(), nil)
			var tampered *batch.TamperedError
			if !errors.As(err, &tampered) || tampered.Function != name || only(t, s).Outcome != Stopped {
				t.Errorf("%s: got %+v, %v; want a stopped policy", name, s.Policies, err)
			}
			if after := one[int](t, db, known); after != before {
				t.Errorf("%s: %d leaves are known, and were %d", name, after, before)
			}
			db.Exec(t, rewrite(name, change[1], change[0]))
		}
	})
}
