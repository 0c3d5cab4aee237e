package planner

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

// past fills the sessions with rows of 1 to 60 days of age.
const past = `insert into sessions select n, now() - n * interval '1 day' - interval '1 hour' from generate_series(1, 60) n`

// heldWorld is a world with 30 days armed and a version of 7 days held back.
func heldWorld(t *testing.T, db *pgtest.DB) *world {
	t.Helper()
	w := newWorld(t, db, sessions, past)
	w.walks(step{named("p", "30 days", isArmed), "p 1 armed"}, step{named("p", "7 days", isArmed), "p 1 armed, 2 held back"})
	return w
}

func (w *world) left() int {
	w.t.Helper()
	return value[int](w, `select count(*) from sessions`)
}

// The version that was armed goes on deleting what it deletes, and the ledger says that it did. The other one's function is there, so that
// a yes needs nothing of the table, and deletes nothing before it.
func TestOfTwoVersionsOneDeletes(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := heldWorld(t, db)
		if got := w.functions(); got != "delete_1_1 delete_1_2 due_1_1 due_1_2 find_1_1 find_1_2 survey_1_1 survey_1_2" {
			t.Errorf("functions are %s", got)
		}
		p := w.inForce()[0]
		waiting := *p.Waiting()
		if waiting.Version != 2 || p.Version != 1 {
			t.Fatalf("in force is %d, and %d waits", p.Version, waiting.Version)
		}
		r := w.open(&p)
		b := w.lease(p, r)
		for what, change := range map[string]func(*batch){
			"its own claim":            func(b *batch) { b.Policy, b.Claim.PolicyVersion = waiting, 2 },
			"the claim of the other":   func(b *batch) { b.Policy = waiting },
			"the other by its claim":   func(b *batch) { b.Claim.PolicyVersion = 2 },
			"a run of its own, forged": func(b *batch) { b.Policy, b.Claim.PolicyVersion, b.Shard = waiting, 2, b.Shard+1 },
		} {
			_, err := w.call(b, change)
			if got := schemas.StateOf(err); got != "LP002" {
				t.Errorf("the function of the version that is held back, with %s: %v", what, err)
			}
		}
		if _, err := run.Open(t.Context(), w.exec, &waiting, time.Now, run.Options{}); err == nil {
			t.Errorf("a run of the version that is held back: %v", err)
		}
		if got := w.deleteAll(p, r, 100); got.Deleted != 31 || w.left() != 29 {
			t.Errorf("%d rows are deleted, and %d left", got.Deleted, w.left())
		}
		w.walks(step{named("p", "7 days", isArmed), "p 1 armed, 2 held back"})
		if n := valueOn[int](t, w.admin, `select count(*) from lapse.batch where policy_version <> 1`); n != 0 {
			t.Errorf("%d batches are under another version's name", n)
		}
		w.says(change.Arm)
		w.opens()
		if got := w.heldNow() + "; " + w.functions(); got != "p 2 armed; delete_1_2 due_1_2 find_1_2 survey_1_2" {
			t.Errorf("after the yes: %s", got)
		}
		if _, err := w.call(b, nil); schemas.StateOf(err) != schemas.SQLStateUndefinedFunction {
			t.Errorf("the function of the former version: %v", err)
		}
		p = w.inForce()[0]
		if got := w.deleteAll(p, w.open(&p), 100); got.Deleted != 23 || w.left() != 6 {
			t.Errorf("%d rows are deleted, and %d left", got.Deleted, w.left())
		}
	})
}

// A version that is held back beside the one that goes on is no news of the policy's state: nothing waits for the auditor, and its runs are
// measured as before.
func TestWhatGoesOnIsNotBegunAnew(t *testing.T) {
	t.Parallel()
	w := heldWorld(t, pgtest.New(t, pgtest.Newest(t)))
	states := func() int { return valueOn[int](t, w.admin, `select count(*) from lapse.policy_state`) }
	since, before := w.inForce()[0].Since, states()
	p := w.inForce()[0]
	r := w.open(&p)
	w.walks(
		step{named("p", "6 days", isArmed), "p 1 armed, 3 held back"},
		step{named("p", "30 days", isArmed), "p 1 armed"},
		step{named("p", "6 days", isArmed), "p 1 armed, 4 held back"},
	)
	if p := w.inForce()[0]; !p.Since.Equal(since) || states() != before || p.Unfinished == nil || p.Unfinished.ID != r.ID {
		t.Errorf("armed since %s, and %d states; before %s, %d; its run is %+v", p.Since, states(), since, before, p.Unfinished)
	}
	// On its way: the position that the auditor must pass stays.
	w.walks(step{named("p", "30 days", isArmed), "p 1 armed"})
	must(t, w.write(ptr(change.Pause(&w.inForce()[0]))))
	w.resumes()
	_ = valueOn[string](t, w.exec, `select lapse.advance_arming(1)`)
	w.apply(named("p", "5 days", isArmed))
	if got := valueOn[bool](t, w.admin, `select arming_lsn is not null and state = 'arming' and held_back = 5 from lapse.gate`); !got {
		t.Errorf("the policy is on its way again: %s", w.heldNow())
	}
	// It is opened between the comparison and the write.
	changes, err := w.difference(named("p", "4 days", isArmed), false)
	must(t, err)
	w.opens()
	must(t, w.write(&changes[0]))
	if got := w.heldNow(); got != "p 1 armed, 6 held back" {
		t.Errorf("in force is %s", got)
	}
}

func ptr[T any](v T) *T { return &v }

// What goes on only while all that it deletes would be deleted by the other one, by the same action, table and triggers.
//
//lapse:long
func TestOnlyWhatTheOtherWouldDeleteTooGoesOn(t *testing.T) {
	t.Parallel()
	const trusted, where = "    triggers: trusted", "    where: kind = 'a'"
	for name, steps := range map[string][]step{
		"another column":    {{policyText("shop.sessions", "other", "1 day", isArmed), "p 2 observing, 2 held back"}},
		"another action":    {{named("p", "7 days", isArmed, "    action: { soft: { column: other } }"), "p 2 observing, 2 held back"}},
		"trusted triggers":  {{named("p", "7 days", isArmed, trusted), "p 2 observing, 2 held back"}},
		"another table":     {{policyText("shop.visits", "last_seen", "7 days", isArmed), "p 2 observing, 2 held back"}},
		"a where, and less": {{named("p", "7 days", isArmed, where), "p 2 observing, 2 held back"}},
		"a where, and then none": {
			{named("p", "30 days", isArmed, where), "p 2 armed"},
			{named("p", "30 days", isArmed), "p 2 armed, 3 held back"},
			{named("p", "40 days", isArmed), "p 4 observing, 4 held back"}, // of neither is it certain
			{named("p", "30 days", isArmed, where), "p 5 armed"},
		},
		"months and days":  {{named("p", "1 mon", isArmed), "p 2 observing, 2 held back"}},
		"the same, sooner": {{named("p", "29 days 23 hours", isArmed), "p 1 armed, 2 held back"}},
		"the file says stop": {
			{named("p", "7 days", isArmed), "p 1 armed, 2 held back"},
			{named("p", "7 days", isObserving), "p 2 observing"},
			{named("p", "7 days", isArmed), "p 2 observing, 2 held back"},
		},
		"what waits makes way for what is certainly less": {
			{named("p", "7 days", isArmed), "p 1 armed, 2 held back"},
			{named("p", "31 days", isArmed), "p 3 armed"},
		},
		"pruned, and back": {
			{named("p", "7 days", isArmed), "p 1 armed, 2 held back"},
			{"policies: []", ""},
			{named("p", "7 days", isArmed), "p 3 observing, 3 held back"},
			{named("p", "30 days", isArmed), "p 4 armed"},
		},
		"another name": {
			{named("p", "7 days", isArmed), "p 1 armed, 2 held back"},
			{named("q", "7 days", isArmed), "q 1 observing, 1 held back"},
		},
		"limits, schedule and batch wait for nobody": {
			{named("p", "7 days", isArmed, "    rate: 5", "    every: 2 hours", "    max_rows_per_run: 9", "    batch: 3"), "p 2 armed, 3 held back"},
			{named("p", "7 days", isArmed, "    rate: 6", "    every: 2 hours", "    max_rows_per_run: 9", "    batch: 3"), "p 4 armed, 5 held back"},
			{named("p", "7 days", isArmed, "    rate: 6", "    every: 2 hours", "    max_rows_per_run: 9", "    batch: 3"), "p 4 armed, 5 held back"},
			{named("p", "30 days", isArmed, "    max_rows_per_run: 1%"), "p 6 armed"},
			{named("p", "30 days", isArmed, "    max_rows_per_run: 100%"), "p 7 armed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, pgtest.New(t, pgtest.Newest(t)), sessions, `alter table sessions add other timestamptz, add kind text`,
				`create table visits (id bigint primary key, last_seen timestamptz, other timestamptz)`)
			w.walks(append([]step{{named("p", "30 days", isArmed), "p 1 armed"}}, steps...)...)
		})
	}
}

// The limits of an edit that waits are in force at once, and the rows of the version before.
func TestWhatLetsNoMoreFallDueIsInForceAtOnce(t *testing.T) {
	t.Parallel()
	w := heldWorld(t, pgtest.New(t, pgtest.Newest(t)))
	file := named("p", "7 days", isArmed, "    rate: 5", "    batch: 3", `    window: "01:00-02:00 UTC"`, "    owner: web")
	w.walks(step{file, "p 3 armed, 4 held back"})
	p := w.inForce()[0]
	if p.Limits.Rate != 5 || p.Batch != 3 || p.Schedule.Window == nil || p.Spec.Owner != "web" {
		t.Errorf("in force is %+v, batches of %d, within %v", p.Limits, p.Batch, p.Schedule.Window)
	}
	if p.Waiting().Limits.Rate != 5 {
		t.Errorf("held back is %+v", p.Waiting().Limits)
	}
	r := w.open(&p)
	if got := w.deleteAll(p, r, 3); got.Deleted != 31 {
		t.Errorf("%d rows are deleted", got.Deleted)
	}
	entry := valueOn[string](t, w.admin, `select entry from lapse.policy where version = 3`)
	if !strings.Contains(entry, "after: 30 days") || strings.Contains(entry, "7 days") {
		t.Errorf("its entry on record is\n%s", entry)
	}
	record, err := record.Load(t.Context(), w.exec, "p")
	must(t, err)
	if v := record.At(3); v.MoreDue || v.Spec.HeldAgainst != 0 || record.At(4).Spec.HeldAgainst != 3 || !record.At(4).MoreDue || record.ReplacedAt(1) == nil || record.ReplacedAt(2) != nil {
		t.Errorf("on record: %+v; %+v", v, record.At(4))
	}
}

// A yes is to the version that was shown.
func TestAYesIsToTheVersionThatItNames(t *testing.T) {
	t.Parallel()
	w := heldWorld(t, pgtest.New(t, pgtest.Newest(t)))
	p := w.inForce()[0]
	shown, err := change.ArmVersion(&p, 2)
	must(t, err)
	w.walks(step{named("p", "1 hour", isArmed), "p 1 armed, 3 held back"})
	if err := w.write(&shown); !errors.Is(err, change.ErrChangedMeanwhile) {
		t.Errorf("a yes to a version that is another by now: %v", err)
	}
	again := w.inForce()[0]
	if _, err := change.ArmVersion(&again, 2); err == nil || !strings.Contains(err.Error(), "in force is version 1, and version 3 is held back") {
		t.Errorf("a yes to version 2: %v", err)
	}
	if c, err := change.ArmVersion(&again, 1); err != nil || c.Writes() || c.HeldVersion != 3 {
		t.Errorf("a yes to what is in force: %+v, %v", c, err)
	}
	must(t, w.write(ptr(change.Pause(&again))))
	paused := w.inForce()[0]
	c, err := change.ArmVersion(&paused, 1)
	must(t, err)
	must(t, w.write(&c))
	w.opens()
	if got := w.heldNow(); got != "p 1 armed, 3 held back" {
		t.Errorf("in force is %s", got)
	}
}

// Two who apply at once, and one who says yes between: the first one's holds.
func TestAVersionThatIsHeldBackIsNotMixedWithAnothers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pgtest.New(t, pgtest.Newest(t)), sessions, past)
	w.walks(step{named("p", "30 days", isArmed), "p 1 armed"})
	for i, file := range []string{named("p", "5 days", isArmed), named("p", "30 days", isArmed, otherBatch), named("p", "30 days", isArmed)} {
		slow, err := w.difference(file, false)
		must(t, err)
		w.apply(named("p", fmt.Sprintf("%d days", 20-i), isArmed))
		if slow[0].Writes() {
			if err := w.write(&slow[0]); !errors.Is(err, change.ErrChangedMeanwhile) {
				t.Errorf("what was compared before: %v", err)
			}
		}
	}
	taken, err := w.difference(named("p", "30 days", isArmed), false)
	must(t, err)
	w.says(change.Arm)
	if err := w.write(&taken[0]); !errors.Is(err, change.ErrChangedMeanwhile) {
		t.Errorf("taken back after the yes: %v", err)
	}
	if got := w.heldNow(); got != "p 4 arming" {
		t.Errorf("in force is %s", got)
	}
}

// The table changes while a version waits: what goes on is made again where it can be, and otherwise nothing goes.
//
//lapse:long
func TestATableThatChangesWhileAVersionWaits(t *testing.T) {
	t.Parallel()
	file := named("p", "7 days", isArmed)
	for name, c := range map[string]struct{ ddl, want string }{
		"another name":            {`alter table sessions rename to seats`, "p 3 armed, 4 held back"},
		"a column more":           {`alter table sessions add more int`, "p 1 armed, 2 held back"},
		"another key":             {`alter table sessions drop constraint sessions_pkey, add other bigint generated always as identity primary key`, "p 3 armed, 4 held back"},
		"the column made again":   {`alter table sessions drop last_seen; alter table sessions add last_seen timestamptz`, "p 3 observing, 3 held back"},
		"the column's other type": {`alter table sessions alter last_seen type timestamp`, "p 3 observing, 3 held back"},
		"a function that is gone": {`drop function lapse.delete_1_2`, "p 1 armed, 3 held back"},
		"one of what goes on":     {`drop function lapse.delete_1_1`, "p 3 armed, 4 held back"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := heldWorld(t, pgtest.New(t, pgtest.Newest(t)))
			must(t, w.script("set search_path = shop; "+c.ddl))
			text := file
			if strings.Contains(c.ddl, "seats") {
				text = strings.ReplaceAll(file, "shop.sessions", "shop.seats")
			}
			w.walks(step{text, c.want}, step{text, c.want})
			p := w.inForce()[0]
			if p.State != schemas.Armed {
				return
			}
			must(t, w.script("set search_path = shop; update "+p.TableName+" set last_seen = last_seen"))
			if got := w.deleteAll(p, w.open(&p), 100); got.Deleted != 31 {
				t.Errorf("%d rows are deleted", got.Deleted)
			}
		})
	}
}

// A table that no longer fits keeps nobody from taking the change back, nor from making it smaller.
func TestAVersionThatWaitsIsChangedWithoutItsTable(t *testing.T) {
	t.Parallel()
	w := heldWorld(t, pgtest.New(t, pgtest.Newest(t)))
	w.do(`alter table sessions drop constraint sessions_pkey`)
	for _, s := range []step{
		{named("p", "7 days", isArmed), "p 1 armed, 2 held back"},
		{named("p", "8 days", isArmed), "p 1 armed, 3 held back"},
		{named("p", "30 days", isArmed), "p 1 armed"},
	} {
		changes, err := w.difference(s.file, false)
		must(t, err)
		if !changes[0].Unfit {
			t.Errorf("%s: the table is fit", s.want)
		}
		if err := changes[0].Arm(); changes[0].HeldVersion != 0 && err == nil {
			t.Errorf("%s: --arm arms what does not fit", s.want)
		}
		must(t, w.write(&changes[0]))
		if got := w.heldNow(); got != s.want {
			t.Errorf("in force is %s, want %s", got, s.want)
		}
	}
	if _, err := w.difference(named("p", "6 days", isArmed), false); err == nil {
		t.Error("more, on a table that does not fit, is not refused")
	}
}
