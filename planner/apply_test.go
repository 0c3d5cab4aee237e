package planner

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/planner/run"
	"lapse/schemas"
)

// standing is what is in force: "p: version 1, observing".
func (w *world) standing() string {
	w.t.Helper()
	var all []string
	for _, p := range w.inForce() {
		all = append(all, fmt.Sprintf("%s: version %d, %s", p.Name, p.Version, p.State))
	}
	return strings.Join(all, "; ")
}

func (w *world) functions() string {
	w.t.Helper()
	return valueOn[string](w.t, w.admin, `
		select coalesce(string_agg(proname, ' ' order by proname), '') from pg_proc
		 where pronamespace = 'lapse'::regnamespace and proname ~ '^(delete|find|survey|due)_'`)
}

func TestStatesFollowTheFileAndTheCaution(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `alter table sessions add other timestamptz`)
		file := func(after string, more ...string) string {
			return policyText("shop.sessions", "last_seen", after, more...)
		}
		arm := func() { w.arm(w.inForce()[0].ID) }
		yes := func() {
			w.says(change.Arm)
			arm()
		}
		for _, step := range []struct {
			does, file string
			kind       change.Kind
			want       string
			more       bool
			then       func()
		}{
			{"a policy begins observing", file("30 days"), change.New, "p: version 1, observing", false, nil},
			{"the same again", file("P30D", "    every: 60 minutes", "    batch: 5000"), change.Unchanged, "p: version 1, observing", false, nil},
			{"the file arms it", file("30 days", "    state: armed"), change.Restated, "p: version 1, arming", false, nil},
			{"arming is on its way", file("30 days", "    state: armed"), change.Unchanged, "p: version 1, arming", false, arm},
			{"it is armed", file("30 days", "    state: armed"), change.Unchanged, "p: version 1, armed", false, nil},
			{"the file says nothing", file("30 days"), change.Unchanged, "p: version 1, armed", false, nil},
			{"less falls due", file("31 days"), change.Changed, "p: version 2, arming", false, arm},
			{"it keeps its state", file("31 days"), change.Unchanged, "p: version 2, armed", false, nil},
			{"more falls due", file("29 days"), change.Changed, "p: version 2, armed", true, nil},
			{"more, and the file says armed", file("28 days", "    state: armed"), change.Changed, "p: version 2, armed", true, yes},
			{"another batch", file("28 days", "    batch: 10"), change.Changed, "p: version 5, arming", false, arm},
			{"hours for days", file("672 hours", "    batch: 10"), change.Changed, "p: version 6, arming", false, arm},
			{"a month may be longer", file("1 mon", "    batch: 10"), change.Changed, "p: version 7, observing", true, nil},
			{"the file alone does not arm it", file("1 mon", "    batch: 10", "    state: armed"), change.Unchanged, "p: version 7, observing", false, yes},
			{"another column", policyText("shop.sessions", "other", "1 mon", "    batch: 10"), change.Changed, "p: version 8, observing", true, nil},
			{"paused", policyText("shop.sessions", "other", "1 mon", "    batch: 10", "    state: paused"), change.Restated, "p: version 8, paused", false, nil},
			{"a pause lasts", policyText("shop.sessions", "other", "2 mon", "    batch: 10"), change.Changed, "p: version 9, paused", false, nil},
			{"without a state in the file it lasts, although more falls due", policyText("shop.sessions", "other", "1 mon"), change.Changed, "p: version 10, paused", true, nil},
		} {
			change := w.apply(step.file)[0]
			if change.Kind != step.kind || change.MoreFallDue != step.more || w.standing() != step.want {
				t.Fatalf("%s: got %s, more %t, and then %s; want %s, more %t, %s", step.does, change.Kind, change.MoreFallDue, w.standing(), step.kind, step.more, step.want)
			}
			if step.then != nil {
				step.then()
			}
		}
		if got := w.functions(); got != "delete_1_10 due_1_10 find_1_10 survey_1_10" {
			t.Errorf("functions are %s, want those of the version in force only", got)
		}
		if n := valueOn[int](t, w.admin, `select count(*) from lapse.policy`); n != 10 {
			t.Errorf("%d versions are on record, want 10", n)
		}
		history := valueOn[string](t, w.admin, `select string_agg(version || ' ' || state, ', ' order by changed_at) from lapse.policy_state`)
		if !strings.HasPrefix(history, "1 observing, 1 arming, 1 arming, 1 armed, 2 arming") {
			t.Errorf("the history of states is %s", history)
		}
	})
}

func TestAPolicyThatIsNotInTheFileIsDroppedOnlyWithPrune(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		r := w.open(&p)
		if kind := w.apply("policies: []")[0].Kind; kind != change.Missing || w.standing() != "p: version 1, armed" {
			t.Errorf("got %s, and then %s", kind, w.standing())
		}
		renamed := strings.Replace(policyText("shop.sessions", "last_seen", "30 days"), "name: p", "name: q", 1)
		if _, err := w.difference(renamed, false); err == nil || !strings.Contains(err.Error(), "--prune drops it") {
			t.Errorf("two policies on one table: got %v", err)
		}
		changes, err := w.difference(renamed, true)
		must(t, err)
		if len(changes) != 2 || changes[0].Kind != change.Removed || changes[1].Kind != change.New {
			t.Fatalf("got %+v", changes)
		}
		for i := range changes {
			must(t, w.write(&changes[i]))
		}
		if got := w.standing() + "; " + w.functions(); got != "q: version 1, observing; delete_2_1 due_2_1 find_2_1 survey_2_1" {
			t.Errorf("in force is %s", got)
		}
		if n := valueOn[int](t, w.admin, `select count(*) from lapse.shard where run = $1`, r.ID); n != 0 {
			t.Errorf("%d shards of the dropped policy are left", n)
		}
		changes, err = w.difference(policyText("shop.sessions", "last_seen", "30 days"), true)
		must(t, err)
		for i := range changes {
			must(t, w.write(&changes[i]))
		}
		if got := w.standing() + "; " + w.functions(); got != "p: version 2, observing; delete_1_2 due_1_2 find_1_2 survey_1_2" {
			t.Errorf("a name keeps its id and goes on counting: in force is %s", got)
		}
	})
}

func TestAChangeIsPrintedForPeopleAndPrograms(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	w := newWorld(t, db, sessions)
	w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
	changes, err := w.difference(policyText("shop.sessions", "last_seen", "20 days", `    daily: "03:00 Europe/Berlin"`, "    owner: web"), false)
	must(t, err)
	want := `~ policy p on shop.sessions: version 1 → 2, armed → arming
    ~ expire.after: 30 days → 20 days
    - every: 01:00:00
    + daily: 03:00 Europe/Berlin
    + owner: web
    more rows may fall due than under the version in force
    version 3 is held back: ` + "`lapse policy arm p --version 3`" + ` says yes, and version 2 goes on until then
    warning: no index on shop.sessions begins with last_seen, so that every batch reads the whole of it: create index concurrently sessions_idx_48a9cac8 on shop.sessions ("last_seen", "id");
`
	if got := changes[0].Diff(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	text, err := json.Marshal(changes[0])
	must(t, err)
	for _, want := range []string{
		`"kind":"changed"`, `"policy":"p"`, `"from_version":1`, `"to_version":2`, `"to_state":"arming"`, `"held_back":3`,
		`{"field":"expire.after","from":"30 days","to":"20 days"}`, `"more_fall_due":true`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
}

func TestTwoWhoApplyAtOnceDoNotMixTheirChanges(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		fresh, err := w.difference(policyText("shop.sessions", "last_seen", "30 days"), false)
		must(t, err)
		w.apply(policyText("shop.sessions", "last_seen", "40 days"))
		if err := w.write(&fresh[0]); !errors.Is(err, change.ErrChangedMeanwhile) {
			t.Errorf("a second new version: got %v", err)
		}
		stale, err := w.difference(policyText("shop.sessions", "last_seen", "50 days"), false)
		must(t, err)
		w.apply(policyText("shop.sessions", "last_seen", "60 days"))
		if err := w.write(&stale[0]); !errors.Is(err, change.ErrChangedMeanwhile) {
			t.Errorf("a version that was compared with another: got %v", err)
		}
		if got := w.standing(); got != "p: version 2, observing" {
			t.Errorf("in force is %s", got)
		}
	})
}

func TestATableThatWasMadeAgainIsAnotherTable(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		w.do(`drop table sessions`)
		w.do(sessions)
		made := w.apply(policyText("shop.sessions", "last_seen", "30 days"))[0]
		if made.Kind != change.Changed || !made.MoreFallDue || w.standing() != "p: version 2, observing" {
			t.Errorf("got %s, more %t, and then %s", made.Kind, made.MoreFallDue, w.standing())
		}
		w.do(`alter table sessions rename to visits`)
		made = w.apply(policyText("shop.visits", "last_seen", "30 days"))[0]
		if made.Kind != change.Changed || made.MoreFallDue {
			t.Errorf("the same table under another name: got %s, more %t", made.Kind, made.MoreFallDue)
		}
	})
}

func TestADeleterThatMayNotIsMadeAMemberOrTheStatementIsNamed(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		other := db.NewRole(t, "other")
		changes, err := w.difference(policyText("shop.sessions", "last_seen", "30 days"), false)
		must(t, err)

		superuser := w.admin
		w.admin = db.ConnectAs(t, testRoles.Owner)
		err = w.write(&changes[0])
		if grantSQL(err) == "" {
			t.Fatalf("as the catalog's owner: got %v, want a GrantError", err)
		}
		for range 5 { // the role, its memberships, the schema
			sql := grantSQL(err)
			if sql == "" {
				break
			}
			must(t, runSQL(superuser, sql))
			err = w.write(&changes[0])
		}
		must(t, err)
		if got := w.standing(); got != "p: version 1, observing" {
			t.Errorf("in force is %s", got)
		}

		// A table in a partition of somebody else's.
		w.admin = superuser
		partitioned(w)
		w.do(`alter table events_us owner to current_user`)
		must(t, runSQL(superuser, `alter table shop.events_us owner to `+other))
		changes, err = w.difference(strings.Replace(policyText("shop.events", "last_seen", "30 days"), "name: p", "name: q", 1), false)
		must(t, err)
		err = w.write(&changes[0])
		if grantSQL(err) != fmt.Sprintf("alter table shop.events_us owner to %q", w.app) {
			t.Errorf("a partition of another owner's: got %v", err)
		}
		must(t, runSQL(superuser, `drop owned by `+other))
	})
}

func TestRowSecurityThatWouldBlindTheDeleterIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `alter table sessions enable row level security`, `create policy fresh on sessions using (last_seen > now() - interval '30 days')`)
		w.fill("sessions", 10)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		if total := w.deleteAll(p, w.open(&p), 100); total.Deleted != 10 {
			t.Errorf("deleted %d rows under row security, want 10", total.Deleted)
		}
		w.fillMore("sessions")
		w.do(`alter table sessions force row level security`)
		_, err := w.call(w.lease(p, w.open(&p)), nil)
		wantState(t, err, "42501")
		if s, err := surveyInForce(t.Context(), w.exec, &p, time.Time{}); err != nil || !strings.HasPrefix(s.Trouble, "row security applies to ") || !strings.HasSuffix(s.Trouble, " bypassrls") {
			t.Errorf("the survey says %q, %v", s.Trouble, err)
		}
		changes, err := w.difference(policyText("shop.sessions", "last_seen", "31 days"), false)
		must(t, err)
		if err = w.write(&changes[0]); !strings.Contains(grantSQL(err), "bypassrls") {
			t.Errorf("got %v, want the statement that lifts it", err)
		}
	})
}

func (w *world) fillMore(table string) {
	w.t.Helper()
	w.do(`insert into ` + table + ` (id, last_seen) select 100000 + n, now() - interval '40 days' from generate_series(1, 10) n`)
}

// Membership in a superuser would give away everything: the deleter gets the rights on the table instead.
func TestASuperusersTableIsGrantedByItself(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		partitioned(w)
		for _, table := range []string{"events", "events_eu", "events_us", "events_rest", "events_rest_all"} {
			must(t, runSQL(w.admin, `alter table shop.`+table+` owner to postgres`))
		}
		w.owner = db.Connect(t)
		w.do(`set search_path = shop`)
		w.do(`insert into events values (1, 'eu', now() - interval '1 year'), (2, 'us', now() - interval '1 year'), (3, 'us', now())`)
		p := w.armed(policyText("shop.events", "last_seen", "30 days", "    state: armed"))
		if valueOn[bool](t, w.admin, `select pg_has_role($1, 'postgres', 'member')`, testRoles.Deleter(10)) {
			t.Error("the deleter is a member of the superuser")
		}
		if total := w.deleteAll(p, w.open(&p), 100); total.Deleted != 2 {
			t.Errorf("deleted %d rows, want 2", total.Deleted)
		}
		w.do(`create table events_mars partition of events for values in ('mars')`)
		w.do(`insert into events values (4, 'mars', now() - interval '1 year')`)
		r := w.open(&p)
		must(t, runSQL(w.admin, `update lapse.shard set done = leaf <> $1`, w.oid("events_mars")))
		_, err := w.call(w.lease(p, r), nil)
		wantState(t, err, "42501")
		if kind := w.apply(policyText("shop.events", "last_seen", "30 days"))[0].Kind; kind != change.Unchanged {
			t.Errorf("got %s, want an unchanged policy whose rights are seen to", kind)
		}
		if _, err := w.call(w.lease(p, r), nil); err != nil {
			t.Errorf("after apply: %v", err)
		}
	})
}

func TestAnArmingPolicyWaitsForTheAuditor(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	w := newWorld(t, db, sessions)
	must(t, runSQL(w.admin, `update lapse.installation set audit_required = true`))
	p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
	if p.State != schemas.Arming {
		t.Errorf("without an auditor the policy is %s, want arming", p.State)
	}
	var refused *run.NotInForceError
	if _, err := run.Open(t.Context(), w.exec, &p, time.Now, run.Options{}); !errors.As(err, &refused) {
		t.Errorf("a run of an arming policy: got %v", err)
	}
}
