package planner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/internal/setup/apply"
	"lapse/internal/yamldoc"
	"lapse/planner/change"
	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/planner/policyfile"
	"lapse/planner/resolve"
	"lapse/planner/schedule"
	"lapse/planner/survey"
	"lapse/schemas"
)

// bare is a database without a catalog, with an application's schema "shop".
type bare struct {
	*world
	login string // who asks
	hear  *warned
}

// newBare asks as login; "" is the application itself.
func newBare(t testing.TB, db *pgtest.DB, login string, ddl ...string) *bare {
	t.Helper()
	db.Exec(t, "drop schema lapse cascade", "grant temporary on database "+db.Name+" to public")
	w := &world{t: t, db: db, app: db.NewRole(t, "app")}
	w.admin = db.Connect(t)
	db.Exec(t, fmt.Sprintf("create schema shop authorization %s", w.app))
	w.owner = db.ConnectAs(t, w.app)
	w.do("set search_path = shop")
	for _, sql := range ddl {
		w.do(sql)
	}
	if login == "" {
		login = w.app
	}
	return &bare{w, login, nil}
}

// draft asks with SessionSettings, and calls meanwhile once the tables have been checked, before they are counted.
func (b *bare) draft(meanwhile func()) *database.Draft {
	sessions := 0
	return &database.Draft{
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			if sessions++; sessions == 2 && meanwhile != nil {
				meanwhile()
			}
			parsed, err := pgx.ParseConfig(b.db.As(b.login))
			if err != nil {
				return nil, err
			}
			schemas.PinSession(parsed.RuntimeParams, schemas.SessionSettings())
			if b.hear != nil {
				parsed.OnNotice = b.hear.add
			}
			return pgx.ConnectConfig(ctx, parsed)
		},
		Roles: testRoles,
	}
}

// proposal is a policy of a file, compared with the database.
type proposal struct {
	Policy   policyfile.Policy
	Resolved *resolve.Resolved // nil where something is wrong with it
	Errors   yamldoc.Errors
}

// proposals are the policies of a file, in its order.
func (b *bare) proposals(file string) (all []proposal) {
	b.t.Helper()
	f, err := policyfile.Parse("policies.yaml", []byte(file))
	must(b.t, err)
	must(b.t, change.DraftDifference(b.t.Context(), b.draft(nil), f, apply.Fit, nil, func(_ pgx.Tx, changes []change.Change, err error) error {
		var wrong yamldoc.Errors
		if err != nil && !errors.As(err, &wrong) {
			return err
		}
		for _, policy := range f.Policies {
			p := proposal{Policy: policy}
			for _, c := range changes {
				if c.Policy == policy.Name {
					p.Resolved = c.Resolved
				}
			}
			for _, e := range wrong {
				if e.Policy == string(policy.Name) {
					p.Errors = append(p.Errors, e)
				}
			}
			all = append(all, p)
		}
		return nil
	}))
	return all
}

// survey is of a file's first policy.
func (b *bare) survey(file string, ask survey.Ask) *survey.Survey {
	b.t.Helper()
	all := b.proposals(file)
	if len(all[0].Errors) > 0 {
		b.t.Fatal(all[0].Errors)
	}
	s, err := change.SurveyDraft(b.t.Context(), b.draft(nil), ask, all[0].Resolved)
	must(b.t, err)
	return s
}

var untilSessions = policyText("shop.sessions", "last_seen", "30 days")

func TestAPolicyIsSurveyedWithoutACatalogByALoginThatMayRead(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		b := newBare(t, db, "", sessions, `create index on sessions (last_seen, id)`)
		b.fill("sessions", 500)
		reader, stranger, member := db.NewRole(t, "reader"), db.NewRole(t, "stranger"), db.NewRole(t, "member", "in role "+b.app)
		b.do("grant usage on schema shop to " + reader + ", " + stranger)
		b.do("grant select on sessions to " + reader)
		for _, login := range []string{"postgres", b.app, reader, member} {
			b.login = login
			s := b.survey(untilSessions, survey.Ask{AtMost: 1000})
			if s.Trouble != "" || s.Due != 500 || s.DueIs != survey.Exact || s.Oldest == nil || s.Newest == nil || s.Index != "sessions_last_seen_id_idx" {
				t.Errorf("as %s: %+v", login, s)
			}
		}
		b.login = stranger
		if s := b.survey(untilSessions, survey.Ask{}); !strings.HasSuffix(s.Trouble, "grant select on shop.sessions to "+schemas.Identifier(stranger)) || s.DueIs != "" {
			t.Errorf("as one who may not read: %+v", s)
		}
		db.Exec(t, "revoke temporary on database "+db.Name+" from public")
		err := change.DraftDifference(t.Context(), b.draft(nil), &policyfile.File{}, apply.Fit, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "grant temporary on database") || !strings.Contains(err.Error(), stranger) {
			t.Errorf("without TEMPORARY: %v", err)
		}
		b.login = "postgres"
		if s := b.survey(untilSessions, survey.Ask{}); s.Due != 500 {
			t.Errorf("of an owner who may make no temporary objects, as a superuser: %+v", s)
		}
		if left := valueOn[string](t, b.admin, `select coalesce(string_agg(rolname, ' '), '') from pg_roles where rolname like 'lapse\_plan%'`) +
			valueOn[string](t, b.admin, `select coalesce(string_agg(p.proname, ' '), '') from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname like 'pg\_temp%'`); left != "" {
			t.Errorf("%s is left", left)
		}
	})
}

func TestAMistakeInOnePolicyHidesNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	b := newBare(t, db, "postgres", sessions, `create table others (id int primary key, last_seen timestamptz)`)
	b.fill("sessions", 5)
	all := b.proposals(`policies:
  - {name: gone, table: shop.nothing, expire: {column: last_seen, after: 30 days}}
  - {name: p, table: shop.sessions, expire: {column: last_seen, after: 30 days}}
  - {name: q, table: shop.others, expire: {column: last_saw, after: 30 days}}
`)
	if len(all) != 3 || all[0].Resolved != nil || all[2].Resolved != nil || all[1].Resolved == nil || len(all[0].Errors) != 1 || len(all[2].Errors) != 1 {
		t.Fatalf("got %+v", all)
	}
	s, err := change.SurveyDraft(t.Context(), b.draft(nil), survey.Ask{}, all[1].Resolved)
	must(t, err)
	if s.Due != 5 || s.Version != 0 {
		t.Errorf("got %+v", s)
	}
}

// family is sessions with what hangs on it: clicks and their marks go along, by two ways; replies to replies; notes and what is
// another's keep rows or are not counted.
func family(w *world) {
	for _, sql := range []string{
		`create table clicks (id bigint, session bigint references sessions on delete cascade, primary key (id, session)) partition by hash (id)`,
		`create table clicks_0 partition of clicks for values with (modulus 2, remainder 0)`,
		`create table clicks_1 partition of clicks for values with (modulus 2, remainder 1)`,
		`create table marks (id bigint primary key, click bigint, session bigint, also bigint references sessions on delete cascade,
		                     foreign key (click, session) references clicks on delete cascade)`,
		`create table replies (id bigint primary key, session bigint references sessions on delete cascade, parent bigint references replies on delete cascade)`,
		`create table notes (id bigint primary key, session bigint constraint noted references sessions)`,
		`create table labels (id bigint primary key, mark bigint constraint labelled references marks on delete restrict)`,
		`insert into clicks select n, n % 10 + 1 from generate_series(1, 100) n`,
		`insert into marks select n, n, n % 10 + 1, null from generate_series(1, 50) n union all select 100 + n, null, null, n from generate_series(1, 8) n
		 union all select 201, 1, 2, 2`,
		`insert into replies select n, case when n <= 10 then n end, case when n > 10 then n - 10 end from generate_series(1, 40) n`,
	} {
		w.do(sql)
	}
}

func TestWhatGoesAlongIsCountedPerTableToAnyDepth(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.do(`insert into sessions select n, now() - interval '40 days' + case when n > 5 then interval '30 days' else '0' end from generate_series(1, 10) n`)
		family(w)
		w.apply(untilSessions)
		p := w.inForce()[0]
		seen, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
		must(t, err)
		want := map[string]int64{}
		must(t, expiry.Attempt(t.Context(), w.admin, func(tx pgx.Tx) error { // what PostgreSQL itself takes along
			for _, child := range []string{"clicks", "marks", "replies"} {
				want["shop."+child] = fixtureCount(t, tx, child)
			}
			_, err := tx.Exec(t.Context(), `delete from shop.sessions where last_seen <= now() - interval '30 days'`)
			must(t, err)
			for _, child := range []string{"clicks", "marks", "replies"} {
				want["shop."+child] -= fixtureCount(t, tx, child)
			}
			return nil
		}))
		got := map[string]int64{}
		for _, c := range seen.Cascades {
			if c.Rows == nil || c.RowsAre != survey.Exact {
				t.Errorf("%s: %+v", c.Table, c)
				continue
			}
			got[c.Table] = *c.Rows
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || want["shop.replies"] != 20 || want["shop.marks"] == 0 {
			t.Errorf("got %v, PostgreSQL takes %v", got, want)
		}
		for _, name := range []string{"noted", "labelled"} {
			if !strings.Contains(strings.Join(seen.Warnings, "\n"), "(constraint "+name+") cannot be deleted") {
				t.Errorf("no warning of %s: %q", name, seen.Warnings)
			}
		}
	})
}

func fixtureCount(t *testing.T, tx pgx.Tx, table string) (n int64) {
	t.Helper()
	must(t, tx.QueryRow(t.Context(), `select count(*) from shop.`+table).Scan(&n))
	return n
}

func TestWhatIsAnothersOrInACircleIsNamedAndNotCounted(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	b := newBare(t, db, "postgres", sessions)
	b.fill("sessions", 5)
	other := db.NewRole(t, "other")
	b.do(`create table foreigners (id bigint primary key, session bigint references sessions on delete cascade)`)
	b.do(`create table a (id bigint primary key, session bigint references sessions on delete cascade, b bigint)`)
	b.do(`create table b (id bigint primary key, a bigint references a on delete cascade)`)
	b.do(`alter table a add foreign key (b) references b on delete cascade`)
	db.Exec(t, "alter table shop.foreigners owner to "+other)
	s := b.survey(untilSessions, survey.Ask{})
	var text []string
	for _, c := range s.Cascades {
		text = append(text, fmt.Sprintf("%s %v %s", c.Table, c.Rows, c.NotCounted))
	}
	const want = "shop.a <nil> it is reached through a table that cannot be counted, or in a circle of foreign keys, or may not be read\n" +
		"shop.b <nil> it is reached through a table that cannot be counted, or in a circle of foreign keys, or may not be read\n" +
		"shop.foreigners <nil> it belongs to another role"
	if got := strings.Join(text, "\n"); got != want || s.Due != 5 {
		t.Errorf("got\n%s\n%+v", got, s)
	}
}

func TestBeyondALimitACountIsAnEstimateAndSaysSo(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	b := newBare(t, db, "", sessions, `create table clicks (id bigint primary key, session bigint references sessions on delete cascade)`)
	b.do(`insert into sessions select n, now() - interval '40 days' + n * interval '1 second' from generate_series(1, 30000) n`)
	b.do(`insert into clicks select n, n % 30000 + 1 from generate_series(1, 60000) n`)
	b.do(`create index on sessions (last_seen, id)`)
	must(t, runSQL(b.admin, `vacuum analyze`))
	oldest := value[time.Time](b.world, `select min(last_seen) from sessions`)
	s := b.survey(untilSessions, survey.Ask{AtMost: 15000})
	if s.DueIs != survey.Estimated || s.Due < 28000 || s.Due > 32000 || s.Oldest == nil || !s.Oldest.Equal(oldest) || s.Newest != nil {
		t.Errorf("got %+v", s)
	}
	if len(s.Cascades) != 1 || s.Cascades[0].RowsAre != survey.Estimated || *s.Cascades[0].Rows < 54000 || *s.Cascades[0].Rows > 66000 {
		t.Errorf("cascades %+v", s.Cascades)
	}
	if s = b.survey(untilSessions, survey.Ask{}); s.DueIs != survey.Exact || s.Due != 30000 || *s.Cascades[0].Rows != 60000 || s.Newest == nil {
		t.Errorf("without a limit: %+v", s)
	}
	b.do(`truncate sessions cascade`)
	must(t, runSQL(b.admin, `vacuum analyze`))
	b.do(`alter table sessions set (autovacuum_enabled = false)`)
	b.do(`insert into sessions select n, now() - interval '40 days' from generate_series(1, 30000) n`)
	if s = b.survey(untilSessions, survey.Ask{AtMost: 20000}); s.DueIs != survey.MoreThan || s.Due != 20000 {
		t.Errorf("where PostgreSQL expects less: %+v", s)
	}
}

func TestTheBreakerAndTheRateAreForetold(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	b := newBare(t, db, "", sessions)
	b.fill("sessions", 500)
	limited := func(limits policyfile.Limits) *survey.Survey {
		resolved := b.proposals(untilSessions)[0].Resolved
		resolved.Spec.Limits = limits
		s, err := change.SurveyDraft(t.Context(), b.draft(nil), survey.Ask{}, resolved)
		must(t, err)
		return s
	}
	fractions := func(table string) {
		t.Helper()
		if s := limited(policyfile.Limits{MaxFraction: 0.4}); !s.Breaker.WouldTrip {
			t.Errorf("half of the rows of %s are due: %+v", table, s.Breaker)
		}
		if s := limited(policyfile.Limits{MaxFraction: 0.6}); s.Breaker != (survey.Breaker{}) {
			t.Errorf("half of the rows of %s are due: %+v", table, s.Breaker)
		}
	}
	fractions("a table that nobody has analyzed")
	if s := limited(policyfile.Limits{MaxPercent: 10}); s.Runs != 0 || s.RowsPerRun != 0 || s.Limit != "10%" {
		t.Errorf("a share of a table that nobody has counted: %+v", s)
	}
	must(t, runSQL(b.admin, `vacuum analyze shop.sessions`))
	fractions("a table that is analyzed")
	if s := limited(policyfile.Limits{Rate: 50}); s.SpeedFrom != survey.Rated || s.Estimate != 10*time.Second || s.Beside != s.Estimate || s.Runs != 0 {
		t.Errorf("got %+v", s)
	}
	if s := limited(policyfile.Limits{MaxRows: 200}); s.Runs != 3 || !s.Gentle || s.RowsPerSecond != defaultSpeed*survey.QuietShare || s.Windows != 0 {
		t.Errorf("got %+v", s)
	}
	if s := limited(policyfile.Limits{MaxPercent: 10}); s.Runs != 5 || s.RowsPerRun != 100 || s.Limit != "10%" {
		t.Errorf("in tenths of 1000 rows: %+v", s)
	}
	if s := limited(policyfile.Limits{Pace: policyfile.PaceUnlimited}); s.Gentle || s.RowsPerSecond != defaultSpeed {
		t.Errorf("at unlimited pace: %+v", s)
	}
	window, err := schedule.ParseWindow(time.Now().UTC().Add(12 * time.Hour).Format("15:07-15:08 UTC")) // for a minute, in which 60 rows are deleted
	must(t, err)
	resolved := b.proposals(untilSessions)[0].Resolved
	resolved.Spec.Limits, resolved.Spec.Window = policyfile.Limits{Rate: 1}, &window
	s, err := change.SurveyDraft(t.Context(), b.draft(nil), survey.Ask{}, resolved)
	must(t, err)
	if s.Windows != 9 || s.Window != window.String() {
		t.Errorf("500 rows, one a second, a minute each night: %+v", s)
	}
}

// A partition that cannot hold due rows is in use, exclusively: the survey does not wait for it, and locks none of those.
func TestASurveyLocksNoPartitionThatCannotHoldDueRows(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db,
			`create table visits (id bigint, at timestamptz not null, primary key (id, at)) partition by range (at)`,
			`create table visits_old partition of visits for values from (minvalue) to ('2021-01-01')`,
			`create table visits_new partition of visits for values from ('2021-01-01') to (maxvalue)`,
			`create table visits_none partition of visits default`)
		w.do(`insert into visits values (1, '2020-05-05'), (2, '2020-06-06')`)
		w.do(`insert into visits select n, '2022-01-01' from generate_series(10, 5000) n`) // the largest
		must(t, runSQL(w.admin, `vacuum analyze`))
		text := policyText("shop.visits", "at", "30 days")
		w.apply(text)
		p := w.inForce()[0]
		at := time.Date(2020, 8, 1, 0, 0, 0, 0, time.UTC)
		holder := w.db.ConnectAs(t, w.app)
		must(t, runSQL(holder, `begin`))
		must(t, runSQL(holder, `lock table shop.visits_new in access exclusive mode`))
		for what, survey := range map[string]func() (*survey.Survey, error){
			"in force": func() (*survey.Survey, error) { return surveyInForce(t.Context(), w.exec, &p, at) },
			"a draft": func() (*survey.Survey, error) {
				b := &bare{w, "postgres", nil}
				return b.survey(text, survey.Ask{At: at}), nil
			},
		} {
			must(t, runSQL(w.exec, `set lock_timeout = '2s'`))
			s, err := survey()
			must(t, err)
			if s.Trouble != "" || s.Due != 2 || len(s.Shards) != 3 || !strings.Contains(s.Statement, "visits_old") {
				t.Errorf("%s: %+v", what, s)
			}
		}
	})
}

// The keys of the JSON are a contract.
func TestTheJSONOfASurveyHasTheKeysThatProgramsRead(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	b := newBare(t, db, "", sessions)
	b.fill("sessions", 5)
	text, err := json.Marshal(b.survey(untilSessions, survey.Ask{}))
	must(t, err)
	var keys map[string]any
	must(t, json.Unmarshal(text, &keys))
	for _, key := range strings.Fields("policy table at due due_is oldest_due newest_due cascades method order shards slices rows_per_second pace_from estimate_seconds breaker statement warnings") {
		if _, there := keys[key]; !there {
			t.Errorf("%s is missing in %s", key, text)
		}
	}
}
