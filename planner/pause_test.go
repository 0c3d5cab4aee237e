package planner

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/internal/yamldoc"
	"lapse/planner/change"
	"lapse/planner/expiry"
	"lapse/schemas"
)

// unfits are what may become of a policy's table, with a word of what apply says then.
var unfits = map[string]struct{ ddl, says string }{
	"a trigger":                 {`create trigger look before delete on sessions for each row execute function look()`, "trigger look on shop.sessions would run"},
	"no primary key":            {`alter table sessions drop constraint sessions_pkey`, "has no primary key"},
	"no column":                 {`alter table sessions drop column last_seen`, `has no column "last_seen"`},
	"another type":              {`alter table sessions alter column last_seen type text`, "is of type text"},
	"gone":                      {`drop table sessions`, "there is no table shop.sessions"},
	"renamed":                   {`alter table sessions rename to visits`, "there is no table shop.sessions"},
	"unlogged":                  {`alter table sessions set unlogged`, "is unlogged"},
	"another, without a key":    {`drop table sessions; create table sessions (id bigint, last_seen timestamptz)`, "has no primary key"},
	"a view of that name":       {`alter table sessions rename to visits; create view sessions as select * from visits`, "is not a table"},
	"a foreign key back":        {`alter table sessions add column up bigint references sessions on delete cascade`, "leads back to it"},
	"a replica identity of all": {`alter table sessions replica identity full`, "replica identity is full"},
}

const others = "  - name: q\n    table: shop.others\n    expire: { column: last_seen, after: 30 days }\n"

// both is a policy file of p on shop.sessions and q on shop.others, with more for p.
func both(after string, more ...string) string { return named("p", after, more...) + others }

//lapse:long
func TestAPolicyOnATableThatNoLongerFitsCanBePausedLengthenedAndDropped(t *testing.T) {
	t.Parallel()
	for name, became := range unfits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, pgtest.New(t, pgtest.Newest(t)), sessions,
				`create function look() returns trigger language plpgsql as 'begin return old; end'`,
				`create table others (id bigint primary key, last_seen timestamptz)`)
			w.walks(step{both("30 days", isArmed), "p 1 armed; q 1 observing"})
			must(t, w.script(`set role "`+w.app+`"; set search_path = shop; `+became.ddl+`; reset role; reset search_path`))

			// Nothing changed for p: a warning, and the other policy is applied.
			unchanged := strings.Replace(both("30 days", isArmed), "shop.others", "shop.others\n    batch: 7", 1)
			w.walks(step{unchanged, "p 1 armed; q 2 observing"})
			changes, err := w.difference(unchanged, false)
			must(t, err)
			if p := changes[0]; p.Kind != change.Unchanged || !p.Unfit || !strings.Contains(strings.Join(p.Warnings, "; "), became.says) {
				t.Errorf("an unchanged entry: got %s, unfit %t, warnings %q", p.Kind, p.Unfit, p.Warnings)
			}
			w.walks(
				step{both("30 days", isPaused), "p 1 paused; q 3 observing"},
				step{both("30 days", isObserving), "p 1 observing; q 3 observing"},
				step{both("31 days", otherBatch), "p 2 observing; q 3 observing"},
				step{both("40 days", isPaused), "p 3 paused; q 3 observing"},
				step{"policies:\n" + others, "q 3 observing"},
			)
		})
	}
}

func TestWhatIsNewOrDeletesMoreOnATableThatDoesNotFitIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pgtest.New(t, pgtest.Newest(t)), sessions, `create table others (id bigint primary key, last_seen timestamptz)`)
	w.walks(step{both("30 days", isArmed), "p 1 armed; q 1 observing"})
	w.do(`alter table sessions drop constraint sessions_pkey`)
	for what, file := range map[string]string{
		"more":               both("29 days", isArmed),
		"more, observing":    both("29 days", isObserving),
		"more, paused":       both("29 days", isPaused),
		"another zone":       strings.Replace(both("30 days"), "after: 30 days }", "after: 30 days, zone: Europe/Berlin }", 1),
		"new":                strings.Replace(both("30 days", isArmed), "name: p", "name: r", 1),
		"a duration too bad": both("30 dys", isPaused),
		"before any time":    both("9000 years", isPaused),
	} {
		changes, err := w.difference(file, true)
		var refused yamldoc.Errors
		if !errors.As(err, &refused) {
			t.Errorf("%s: got %v, %v", what, changes, err)
		}
	}
	// To arm it is refused too; what is paused stays so without harm.
	w.prunes(both("30 days", isPaused))
	var refused yamldoc.Errors
	if _, err := w.difference(both("30 days", isArmed), true); !errors.As(err, &refused) {
		t.Errorf("to arm it again: got %v", err)
	}
	if changes, err := w.difference(both("30 days"), true); err != nil || changes[0].Kind != change.Unchanged || changes[0].Unfit {
		t.Errorf("to leave it paused: got %v, %v", changes, err)
	}
}

// An application that holds the strongest lock blocks nobody of ours, and no lock is taken that could block it.
func TestPausingDroppingAndLengtheningTakeNoLockOnTheTable(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		partitioned(w)
		file := func(after string, more ...string) string {
			return policyText("shop.events", "last_seen", after, more...)
		}
		w.walks(step{file("30 days", isArmed), "p 1 armed"})
		w.do(`begin; insert into events values (1, 'eu', now()); lock table events in access exclusive mode`)
		must(t, runSQL(w.admin, `set lock_timeout = '100ms'`))
		must(t, runSQL(w.exec, `set lock_timeout = '100ms'`))
		for _, s := range []struct {
			file, want string
			prune      bool
		}{
			{file("31 days", isArmed, otherBatch), "p 2 arming", false},
			{file("31 days", isPaused, otherBatch), "p 2 paused", false},
			{file("31 days", isObserving, otherBatch), "p 2 observing", false},
			{file("32 days", isPaused, otherBatch, "    every: 2 hours", "    owner: somebody"), "p 3 paused", false},
			{"policies: []", "", true},
		} {
			changes, err := w.difference(s.file, s.prune)
			must(t, err)
			c := &changes[0]
			if !c.Careful() {
				t.Errorf("%s: it is not careful", s.want)
			}
			err = pgx.BeginFunc(t.Context(), w.admin, func(tx pgx.Tx) error {
				if err := writeIn(t.Context(), tx, c); err != nil {
					return err
				}
				var locks int
				err := tx.QueryRow(t.Context(), `
					select count(*)
					  from pg_locks l join pg_class c on c.oid = l.relation join pg_namespace n on n.oid = c.relnamespace
					 where l.pid = pg_backend_pid() and n.nspname = 'shop'`).Scan(&locks)
				if err == nil && locks > 0 {
					err = fmt.Errorf("%d locks on the application's relations", locks)
				}
				return err
			})
			if err != nil {
				t.Errorf("%s: %v", s.want, err)
			}
			if got := w.heldNow(); got != s.want {
				t.Errorf("in force is %s, want %s", got, s.want)
			}
		}
		w.do(`rollback`)
	})
}

// What apply found when it checked the table is kept where it was not checked again.
func TestALongerVersionHasTheColumnsOnRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pgtest.New(t, pgtest.Newest(t)), sessions)
	w.fill("sessions", 10)
	w.walks(step{named("p", "30 days", isArmed), "p 1 armed"})
	w.do(`create function look() returns trigger language plpgsql as 'begin return old; end';`)
	w.do(`create trigger look before delete on sessions for each row execute function look()`)
	changes := w.prunes(named("p", "31 days", otherBatch, "    latitude: 1 day", `    daily: "03:00 UTC"`))
	if c := changes[0]; c.Kind != change.Changed || !c.Unfit || c.ToState != schemas.Arming || c.Resolved != nil {
		t.Errorf("got %+v", c)
	}
	w.do(`drop trigger look on sessions`)
	w.opens()
	if changes = w.prunes(named("p", "31 days", otherBatch, "    latitude: 1 day", `    daily: "03:00 UTC"`)); changes[0].Kind != change.Unchanged || changes[0].Unfit {
		t.Errorf("on the fit table: got %+v", changes[0])
	}
	p := w.inForce()[0]
	if got := fmt.Sprintf("%s, %d, %s, %s", p.Definition.Expire.(*expiry.Age).After, p.Batch, p.Schedule.Daily, p.Spec.Latitude); got != "31 days, 10, 03:00 UTC, 1 day" {
		t.Errorf("in force is %s", got)
	}
	if total := w.deleteAll(p, w.open(&p), 10); total.Deleted != 10 {
		t.Errorf("deleted %d rows, want 10", total.Deleted)
	}
}

func TestAFallBackIsWhatNeedsNoTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pgtest.New(t, pgtest.Newest(t)), sessions)
	w.walks(step{named("p", "30 days", isArmed), "p 1 armed"})
	w.do(`create table clicks (id int primary key, session bigint references sessions on delete cascade)`)
	for _, c := range []struct {
		file string
		kind change.Kind
		left change.Kind // "": nothing
	}{
		{named("p", "30 days", isArmed), change.Changed, change.Unchanged},
		{named("p", "31 days", isArmed), change.Changed, change.Changed},
		{named("p", "30 days", isObserving), change.Changed, change.Restated},
		{named("p", "29 days", isArmed), change.Changed, ""},
	} {
		changes, err := w.difference(c.file, false)
		must(t, err)
		change := &changes[0]
		if change.Kind != c.kind || change.Careful() {
			t.Errorf("%s: got %s, careful %t", c.file, change.Kind, change.Careful())
		}
		switch fell := change.FallBack("because"); {
		case fell != (c.left != ""):
			t.Errorf("%s: fell back: %t", c.file, fell)
		case fell && (change.Kind != c.left || !change.Unfit || change.Resolved != nil || change.Warnings[0] != "because"):
			t.Errorf("%s: fell back to %+v", c.file, change)
		}
	}
}
