package planner

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/planner/expiry"
	"lapse/planner/record"
	"lapse/schemas"
)

// says lets a person say something about the first policy in force.
func (w *world) says(what func(*record.InForce) change.Change) change.Change {
	w.t.Helper()
	c := what(&w.inForce()[0])
	must(w.t, w.write(&c))
	return c
}

// resumes is what `lapse policy resume` does.
func (w *world) resumes() change.Change {
	w.t.Helper()
	return w.says(func(p *record.InForce) change.Change {
		c, err := change.Resume(w.t.Context(), w.admin, p)
		must(w.t, err)
		return c
	})
}

// prunes applies a file and drops what is not in it.
func (w *world) prunes(file string) []change.Change {
	w.t.Helper()
	changes, err := w.difference(file, true)
	must(w.t, err)
	for i := range changes {
		must(w.t, w.write(&changes[i]))
	}
	return changes
}

// opens lets the auditor pass the position of every arming policy.
func (w *world) opens() {
	w.t.Helper()
	for _, p := range w.inForce() {
		if p.State == schemas.Arming {
			w.arm(p.ID)
		}
	}
}

// heldNow is what is in force: "p 1 armed, 2 held back".
func (w *world) heldNow() string {
	w.t.Helper()
	var all []string
	for _, p := range w.inForce() {
		text := fmt.Sprintf("%s %d %s", p.Name, p.Version, p.State)
		if p.HeldVersion != 0 {
			text += fmt.Sprintf(", %d held back", p.HeldVersion)
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// named is a policy file of one entry on shop.sessions.
func named(name, after string, more ...string) string {
	return strings.Replace(policyText("shop.sessions", "last_seen", after, more...), "name: p", "name: "+name, 1)
}

const (
	isArmed     = "    state: armed"
	isPaused    = "    state: paused"
	isObserving = "    state: observing"
	otherBatch  = "    batch: 10"
)

// step is one application of a file, and what is in force afterwards. The auditor follows it at once.
type step struct{ file, want string }

func (w *world) walks(steps ...step) {
	w.t.Helper()
	for i, s := range steps {
		changes := w.prunes(s.file)
		w.opens()
		if got := w.heldNow(); got != s.want {
			w.t.Fatalf("step %d: in force is %q, want %q; the change was\n%s", i+1, got, s.want, changes[len(changes)-1].Diff())
		}
	}
}

func TestAFileDoesNotArmAVersionByWhichMoreFallsDue(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.walks(
			step{named("p", "30 days", isArmed), "p 1 armed"}, // a new policy is armed by its file
			step{named("p", "29 days", isArmed), "p 1 armed, 2 held back"},
			step{named("p", "29 days", isArmed), "p 1 armed, 2 held back"}, // not by repetition
			step{named("p", "29 days"), "p 1 armed, 2 held back"},
			step{named("p", "29 days", isArmed, otherBatch), "p 3 armed, 4 held back"}, // the batch waits for nobody
			step{named("p", "28 days", otherBatch), "p 3 armed, 5 held back"},
			step{named("p", "30 days", isArmed, otherBatch), "p 3 armed"}, // taken back
			step{named("p", "1 hour", isArmed), "p 6 armed, 7 held back"},
			step{named("p", "1 hour", isPaused), "p 7 paused"},
			step{named("p", "1 hour", isArmed), "p 7 observing, 7 held back"}, // by way of a pause neither
			step{named("p", "1 hour", isObserving), "p 7 observing"},
			step{named("p", "1 hour", isArmed), "p 7 observing, 7 held back"},
			step{named("p", "2 hours", isArmed), "p 8 observing, 8 held back"},
			step{named("p", "60 days", isArmed), "p 9 armed"},
			step{named("p", "30 days", isArmed), "p 9 armed, 10 held back"}, // the last that was armed is version 9
			step{named("p", "30 days", isObserving), "p 10 observing"},      // stops at once
		)
		if reasons := valueOn[int](t, w.admin, `select count(*) from lapse.policy_state where version in (2, 4, 5, 7, 8, 10) and state in ('arming', 'armed')`); reasons != 0 {
			t.Errorf("%d times a version was armed that is held back", reasons)
		}
	})
}

func TestAYesArmsWhatIsHeldBack(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		held := named("p", "1 day", isArmed)
		w.walks(step{named("p", "30 days", isArmed), "p 1 armed"}, step{held, "p 1 armed, 2 held back"})
		w.says(change.Arm)
		if got := w.heldNow(); got != "p 2 arming" {
			t.Errorf("lapse policy arm: %s", got)
		}
		w.walks(step{held, "p 2 armed"}, step{named("p", "1 hour", isArmed), "p 2 armed, 3 held back"})
		if c := w.says(change.Arm); c.Kind != change.Restated {
			t.Errorf("lapse policy arm: %s", c.Kind)
		}
		if c := w.says(change.Arm); c.Kind != change.Unchanged {
			t.Errorf("lapse policy arm again: %s", c.Kind)
		}

		// apply --arm, with the change and afterwards.
		arm := func(file, want string) {
			t.Helper()
			changes, err := w.difference(file, false)
			must(t, err)
			must(t, changes[0].Arm())
			must(t, w.write(&changes[0]))
			if got := w.heldNow(); got != want {
				t.Errorf("lapse apply --arm: %s, want %s", got, want)
			}
			w.opens()
		}
		arm(named("p", "1 minute", isArmed), "p 4 arming")
		w.walks(step{named("p", "1 second", isArmed), "p 4 armed, 5 held back"})
		arm(named("p", "1 second", isArmed), "p 5 arming")
		arm(named("p", "00:00:00.5"), "p 6 arming") // the file says nothing: it was armed
		w.walks(step{named("p", "00:00:00.5", isObserving), "p 6 observing"})
		arm(named("p", "00:00:00.4"), "p 7 observing") // and here it was not
	})
}

// Each of these is a way around the last version that was armed.
func TestNeitherAnotherNameNorANameThatComesBackArmsMore(t *testing.T) {
	t.Parallel()
	const none = "policies: []"
	for name, steps := range map[string][]step{
		"another name, the first one pruned with it": {
			{named("p", "30 days", isArmed), "p 1 armed"},
			{named("q", "29 days", isArmed), "q 1 observing, 1 held back"},
			{named("q", "29 days", isArmed, otherBatch), "q 2 observing, 2 held back"},
			{named("q", "30 days", isArmed), "q 3 armed"},
		},
		"another name, the first one dropped before": {
			{named("p", "30 days", isArmed), "p 1 armed"},
			{none, ""},
			{named("q", "1 day", isArmed), "q 1 observing, 1 held back"},
			{none, ""},
			{named("r", "1 hour", isArmed), "r 1 observing, 1 held back"},
			{none, ""},
			{named("r", "31 days", isArmed), "r 2 armed"},
		},
		"a name that comes back": {
			{named("p", "30 days", isArmed), "p 1 armed"},
			{none, ""},
			{named("p", "29 days", isArmed), "p 2 observing, 2 held back"},
			{none, ""},
			{named("p", "30 days", isArmed), "p 3 armed"},
		},
		"a name that comes back after another": {
			{named("p", "30 days", isArmed), "p 1 armed"},
			{none, ""},
			{named("q", "60 days", isArmed), "q 1 armed"},
			{none, ""},
			{named("p", "30 days", isArmed), "p 2 observing, 2 held back"},
		},
		"a name that comes back to another table": {
			{named("p", "30 days", isArmed), "p 1 armed"},
			{none, ""},
			{policyText("shop.visits", "last_seen", "30 days", isArmed), "p 2 observing, 2 held back"},
		},
		"a policy that observed, and never was armed": {
			{named("p", "30 days"), "p 1 observing"},
			{named("p", "29 days", isArmed), "p 2 observing, 2 held back"},
			{named("p", "29 days", isArmed, otherBatch), "p 3 observing, 3 held back"},
			{named("p", "30 days", isArmed), "p 4 armed"},
		},
		"a longer version that was paused in between": {
			{named("p", "30 days", isArmed), "p 1 armed"},
			{named("p", "60 days", isPaused), "p 2 paused"},
			{named("p", "45 days", isArmed), "p 3 observing, 3 held back"},
			{named("p", "45 days", isArmed, otherBatch), "p 4 observing, 4 held back"},
			{named("p", "45 days", isObserving, otherBatch), "p 4 observing"}, // and a person's word
			{named("p", "45 days", isArmed, otherBatch), "p 4 armed"},
		},
		"a policy that its file let observe": {
			{named("p", "30 days", isArmed), "p 1 armed"},
			{named("p", "31 days", isObserving), "p 2 observing"},
			{named("p", "31 days", isArmed), "p 2 armed"},
		},
		"another column": {
			{named("p", "30 days", isArmed), "p 1 armed"},
			{policyText("shop.sessions", "other", "90 days", isArmed), "p 2 observing, 2 held back"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, pgtest.New(t, pgtest.Newest(t)), sessions, `alter table sessions add other timestamptz`,
				`create table visits (id bigint primary key, last_seen timestamptz)`)
			w.walks(steps...)
		})
	}
}

func TestATableThatWasMadeAgainIsHeldBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pgtest.New(t, pgtest.Newest(t)), sessions)
	file := named("p", "30 days", isArmed)
	w.walks(step{file, "p 1 armed"})
	w.do(`drop table sessions`)
	w.do(sessions)
	w.walks(step{file, "p 2 observing, 2 held back"}, step{file, "p 2 observing, 2 held back"})
	w.says(change.Arm)
	w.walks(step{file, "p 2 armed"})
}

func TestAVersionThatIsHeldBackSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pgtest.New(t, pgtest.Newest(t)), sessions)
	w.walks(step{named("p", "30 days", isArmed), "p 1 armed"})
	for _, c := range []struct{ file, want string }{
		{named("p", "29 days", isArmed), ": version 2 is held back, version 1 goes on, armed\n    ~ expire.after: 30 days → 29 days\n    more rows may fall due than under the version in force\n    version 2 is held back: `lapse policy arm p --version 2` says yes, and version 1 goes on until then"},
		{named("p", "29 days", isArmed), "unchanged, armed\n    ~ expire.after: 30 days → 29 days\n    more rows may fall due than under the version in force\n    version 2 is held back: `lapse policy arm p --version 2` says yes"},
		{named("q", "20 days", isArmed), "more rows may fall due than under policy p, the last that was armed on this table\n    version 1 is held back: `lapse policy arm q --version 1` says yes, and nothing is deleted until then"},
	} {
		changes := w.prunes(c.file)
		if got := changes[len(changes)-1].Diff(); !strings.Contains(got, c.want) {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	}
}

// entryOf is a policy of the property test, by its parts.
type entryOf struct{ table, column, after, state string }

// dueBefore says whether every instant that is due under e is due under was: by trying, with PostgreSQL's arithmetic in UTC.
func (e entryOf) dueBefore(w *world, was entryOf) bool {
	if e.table != was.table || e.column != was.column {
		return false
	}
	return valueOn[bool](w.t, w.admin, `
		select bool_and(t + $1::text::interval >= t + $2::text::interval)
		  from generate_series('2023-12-25 22:00'::timestamp, '2024-04-01 00:00', '5 hours') t`, e.after, was.after)
}

// No sequence of edits, pauses, drops and returns arms more than what was armed last on the table, without a person's yes.
//
//lapse:long
func TestNoSequenceOfAppliesArmsMoreThanWasArmedLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pgtest.New(t, pgtest.Newest(t)))
	world := 0
	rapid.Check(t, func(rt *rapid.T) {
		world++
		tables := []string{fmt.Sprintf("a%d", world), fmt.Sprintf("b%d", world)}
		for _, table := range tables {
			w.do(`create table ` + table + ` (id bigint primary key, seen timestamptz, other timestamptz)`)
		}
		names := []string{fmt.Sprintf("p%d", world), fmt.Sprintf("q%d", world)}
		w.prunes("policies: []")
		armed := map[uint32]entryOf{}  // what was armed last, by the table
		byName := map[string]entryOf{} // and by the name
		for range rapid.IntRange(3, 12).Draw(rt, "steps") {
			name := rapid.SampledFrom(names).Draw(rt, "name")
			switch action := rapid.IntRange(0, 9).Draw(rt, "action"); action {
			case 0:
				w.prunes("policies: []")
			case 1:
				for _, p := range w.inForce() {
					c := change.Pause(&p)
					must(w.t, w.write(&c))
				}
			case 2:
				for _, p := range w.inForce() {
					c, err := change.Resume(w.t.Context(), w.admin, &p)
					must(w.t, err)
					must(w.t, w.write(&c))
				}
			default:
				e := entryOf{
					rapid.SampledFrom(tables).Draw(rt, "table"), rapid.SampledFrom([]string{"seen", "seen", "seen", "other"}).Draw(rt, "column"),
					rapid.SampledFrom([]string{"27 days", "29 days", "30 days", "31 days", "1 mon", "45 days", "720 hours", "1 mon 1 day"}).Draw(rt, "after"),
					rapid.SampledFrom([]string{"", "observing", "paused", "armed", "armed", "armed"}).Draw(rt, "state"),
				}
				file := fmt.Sprintf("policies:\n  - name: %s\n    table: shop.%s\n    expire: { column: %s, after: %s }\n    batch: %d\n", name, e.table, e.column, e.after,
					rapid.IntRange(1, 3).Draw(rt, "batch"))
				if e.state != "" {
					file += "    state: " + e.state + "\n"
				}
				w.prunes(file)
			}
			for _, p := range w.inForce() {
				if p.State != schemas.Arming {
					continue
				}
				age := p.Definition.Expire.(*expiry.Age) // of the version in force: the file's may be held back
				now := entryOf{table: strings.TrimPrefix(p.TableName, "shop."), column: age.Column, after: age.After.String()}
				for what, was := range map[string]map[string]entryOf{
					"on its table": {"": armed[p.TableOID]}, "under its name": {"": byName[string(p.Name)]},
				} {
					if before := was[""]; before != (entryOf{}) && !now.dueBefore(w, before) {
						rt.Fatalf("%s is on its way to be armed with %+v, while %+v was armed last %s", p.Name, now, before, what)
					}
				}
				if rapid.Bool().Draw(rt, "the auditor follows") {
					w.arm(p.ID)
					armed[p.TableOID], byName[string(p.Name)] = now, now
				}
			}
		}
	})
}

func TestTheStateAfterAPauseIsTheOneBefore(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		pause := func(want string) {
			t.Helper()
			w.says(change.Pause)
			if c := w.says(change.Pause); c.Kind != change.Unchanged {
				t.Errorf("a second pause: %s", c.Kind)
			}
			if got := w.heldNow(); got != want {
				t.Errorf("paused: %s, want %s", got, want)
			}
		}
		resume := func(want string) change.Change {
			t.Helper()
			c := w.resumes()
			if got := w.heldNow(); got != want {
				t.Errorf("resumed: %s, want %s", got, want)
			}
			if again := w.resumes(); again.Kind != change.Unchanged {
				t.Errorf("a second resume: %s", again.Kind)
			}
			return c
		}
		w.walks(step{named("p", "30 days"), "p 1 observing"})
		pause("p 1 paused")
		resume("p 1 observing")
		w.walks(step{named("p", "30 days", isArmed), "p 1 armed"})
		pause("p 1 paused")
		resume("p 1 arming")
		pause("p 1 paused")
		resume("p 1 arming") // it was on its way
		w.opens()
		w.walks(step{named("p", "20 days", isArmed), "p 1 armed, 2 held back"})
		pause("p 1 paused, 2 held back")
		resume("p 1 arming, 2 held back")
		pause("p 1 paused, 2 held back")
		w.walks(
			step{named("p", "20 days"), "p 1 paused, 2 held back"},
			step{named("p", "20 days", isArmed), "p 1 armed, 2 held back"}, // a file that says armed ends a pause
			step{named("p", "30 days", isArmed), "p 1 armed"},
			step{named("p", "20 days", isPaused), "p 3 paused"}, // more falls due under what is paused
		)
		if c := resume("p 3 observing, 3 held back"); c.HeldAgainst != "version 1, the last that was armed" {
			t.Errorf("held against %q", c.HeldAgainst)
		}
		w.walks(step{named("p", "60 days", isPaused), "p 4 paused"})
		resume("p 4 observing")
		w.walks(step{named("p", "60 days", isArmed), "p 4 armed"})
		history := valueOn[string](t, w.admin, `select string_agg(distinct reason, ', ') from lapse.policy_state where state = 'paused'`)
		if history != "test" {
			t.Errorf("the reasons on record are %q", history)
		}
	})
}
