package planner

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/policyfile"
	"lapse/planner/survey"
	"lapse/schemas"
)

func TestASurveyCountsWhatIsDueAndSaysHowItIsFound(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table sessions (id bigint primary key, last_seen timestamptz, bound int, due text, at_cutoff date)`)
		w.fill("sessions", 5000)
		w.do(`insert into sessions (id, last_seen) values (-1, null), (-2, 'infinity'), (-3, '-infinity')`)
		w.apply(policyText("shop.sessions", "last_seen", "30 days"))
		p := w.inForce()[0]
		oldest := value[time.Time](w, `select last_seen from sessions where id = 1`)

		seen, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
		must(t, err)
		if seen.Due != 5000 || seen.Oldest == nil || !seen.Oldest.Equal(oldest) || seen.Method != survey.Sequential || seen.Index != "" {
			t.Errorf("without an index: %+v", seen)
		}
		if !strings.Contains(seen.Explain, "Seq Scan on sessions") || seen.SpeedFrom != survey.Stated || seen.Estimate != 200*time.Millisecond {
			t.Errorf("explain %q; pace from %s, estimate %s", seen.Explain, seen.SpeedFrom, seen.Estimate)
		}
		w.do(`create index sessions_by_age on sessions (last_seen, id)`)
		w.do(`analyze sessions`)
		seen, err = surveyInForce(t.Context(), w.exec, &p, oldest.Add(30*24*time.Hour+2500*time.Millisecond))
		must(t, err)
		if seen.Due != 3 || seen.Method == survey.Sequential || seen.Index != "sessions_by_age" || seen.Shape != functions.ShapeRange {
			t.Errorf("at an earlier time: %+v", seen)
		}
		if want := oldest.Add(2 * time.Second); seen.Newest == nil || !seen.Newest.Equal(want) {
			t.Errorf("the newest that is due is %v, want %s", seen.Newest, want)
		}
		for after, want := range map[time.Duration]int64{ // the third row's instant, and the microsecond before
			2 * time.Second: 3, 2*time.Second - time.Microsecond: 2, 0: 1, -time.Microsecond: 0, 4999 * time.Second: 5000, 4999*time.Second - time.Microsecond: 4999,
		} {
			seen, err = surveyInForce(t.Context(), w.exec, &p, oldest.Add(30*24*time.Hour+after))
			must(t, err)
			if seen.Due != want {
				t.Errorf("%s after the oldest row is due, %d rows are, want %d", after, seen.Due, want)
			}
		}
		seen, err = surveyInForce(t.Context(), w.exec, &p, time.Time{})
		must(t, err)
		if seen.Due != 5000 || seen.Method != survey.IndexOrder || seen.Index != "sessions_by_age" {
			t.Errorf("with an index: %+v", seen)
		}
		if len(seen.Shards) != 1 || seen.Shards[0].Name != "shop.sessions" || strings.Join(seen.Order, ", ") != "last_seen" {
			t.Errorf("shards %v, order %v", seen.Shards, seen.Order)
		}
	})
}

// The boundary is exact: a row is due at the microsecond at which column + after is the cutoff, and not one before.
func TestASurveyIsExactInEveryKindOfColumn(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		makeMoments(w)
		partitioned(w)
		w.do(`insert into events select n, (array['eu','us','mars'])[n % 3 + 1], '2025-03-31 12:00+00'::timestamptz - n * interval '1 day' from generate_series(1, 60) n`)
		w.do(`insert into day select n, '2025-03-31'::date - n from generate_series(1, 60) n`)
		w.do(`insert into without_zone select n, '2025-03-30 02:30'::timestamp - n * interval '1 hour' from generate_series(-30, 30) n`)
		w.apply(`policies:
  - {name: d, table: shop.day, expire: {column: v, after: 30 days, zone: Etc/GMT+12}}
  - {name: e, table: shop.events, expire: {column: last_seen, after: 31 days}}
  - {name: u, table: shop.without_zone, expire: {column: v, after: 1 mon, zone: Europe/Berlin}}
`)
		for _, c := range []struct {
			policy schemas.PolicyName
			at     string
			due    int64
			leaves int
		}{
			{"e", "2025-04-30T12:00:00Z", 60, 3},
			{"e", "2025-04-30T11:59:59.999999Z", 59, 3},
			{"d", "2025-04-29T12:00:00Z", 60, 1}, // midnight in that zone is noon
			{"d", "2025-04-29T11:59:59.999999Z", 59, 1},
			{"d", "2025-03-31T12:00:00Z", 31, 1},
			{"u", "2025-04-28T00:30:00Z", 0, 1},
			{"u", "2025-04-30T00:30:00Z", 31, 1},
			{"u", "2025-04-30T00:29:59.999999Z", 29, 1}, // 02:30 is skipped and the instant of 03:30, so that two rows fall due at once
			{"d", "2025-03-31T11:59:59.999999Z", 30, 1},
			{"u", "2020-01-01T00:00:00Z", 0, 1},
		} {
			at, err := time.Parse(time.RFC3339Nano, c.at)
			must(t, err)
			p := w.named(c.policy)
			kind := p.Definition.Expire.(*expiry.Age)
			want := value[int64](w, `select count(*) from `+p.TableName+` where shop.oracle(`+schemas.Identifier(kind.Column)+`, $1, $2::text::interval, $3)`,
				zoneOr(kind.Zone), kind.After.String(), at)
			survey, err := surveyInForce(t.Context(), w.exec, &p, at)
			must(t, err)
			if survey.Due != want || want != c.due || len(survey.Shards) != c.leaves || survey.Explain == "" || !survey.At.Equal(at) {
				t.Errorf("%s at %s: got %+v, the oracle says %d, want %d", c.policy, c.at, survey, want, c.due)
			}
		}
	})
}

func TestTheSpeedIsTakenFromTheLedger(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	w := newWorld(t, db, sessions)
	w.fill("sessions", 3000)
	p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
	b := w.lease(p, w.open(&p))
	b.Limit = 1000
	_, err := w.call(b, nil)
	must(t, err)
	// The batch of a thousand rows took two seconds. A week later it no longer counts.
	const took = `update lapse.batch_result r set finished_at = b.started_at + interval '2 s' from lapse.batch b where b.batch = r.batch`
	must(t, runSQL(w.admin, `set session_replication_role = replica`)) // the ledger is append-only by a trigger
	must(t, runSQL(w.admin, took))
	seen, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
	must(t, err)
	if seen.SpeedFrom != survey.Measured || seen.RowsPerSecond != 500 || !seen.Gentle || seen.Due != 2000 || seen.Estimate != 4*time.Second || seen.Beside != 0 {
		t.Errorf("got %+v", seen)
	}
	// The next batch began four seconds after it, and took no time to speak of.
	_, err = w.call(b, nil)
	must(t, err)
	must(t, runSQL(w.admin, `update lapse.batch b set started_at = now() - interval '1 hour' + o.n * interval '4 s'
		from (select batch, row_number() over (order by started_at) as n from lapse.batch) o where o.batch = b.batch`))
	must(t, runSQL(w.admin, `update lapse.batch_result r set finished_at = b.started_at + interval '1 ms' from lapse.batch b where b.batch = r.batch`))
	seen, err = surveyInForce(t.Context(), w.exec, &p, time.Time{})
	must(t, err)
	if math.Abs(seen.RowsPerSecond-500) > 1 {
		t.Errorf("with its pauses: got %+v", seen)
	}
	fast := p
	fast.Limits.Pace = policyfile.PaceUnlimited
	if seen, err = surveyInForce(t.Context(), w.exec, &fast, time.Time{}); err != nil || seen.SpeedFrom != survey.Stated {
		t.Errorf("at a pace at which nothing was deleted: got %+v: %v", seen, err)
	}
	must(t, runSQL(w.admin, `update lapse.batch set started_at = started_at - interval '7 days'`))
	must(t, runSQL(w.admin, took))
	seen, err = surveyInForce(t.Context(), w.exec, &p, time.Time{})
	must(t, err)
	if seen.SpeedFrom != survey.Stated || seen.RowsPerSecond != defaultSpeed*survey.QuietShare || seen.Estimate != 40*time.Millisecond {
		t.Errorf("by batches of a week ago: %+v", seen)
	}
}

var costs = regexp.MustCompile(`  \(cost=.*\)`)

// The plan of the pick is the same on every major: a change to it is a change to what a batch costs.
func TestThePickIsPlannedAsAnIndexScanInOrder(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions,
			`create table orders (tenant text, id int, closed_at timestamp, primary key (tenant, id))`,
			`create table visits (id int primary key, day date)`,
			`create table carts (id int primary key, opened timestamptz, ttl interval)`)
		w.do(`insert into sessions select n, '2025-01-01'::timestamptz + n * interval '1 minute' from generate_series(1, 20000) n`)
		w.do(`insert into orders select 't' || n % 7, n, '2015-01-01'::timestamp + n * interval '1 minute' from generate_series(1, 20000) n`)
		w.do(`insert into visits select n, '2025-01-01'::date + n / 20 from generate_series(1, 20000) n`)
		w.do(`insert into carts select n, '2025-01-01'::timestamptz + n * interval '1 minute', '10 years' from generate_series(1, 20000) n`)
		w.do(`create index carts_opened on carts (opened, id)`)
		w.do(`create index sessions_by_age on sessions (last_seen, id)`)
		w.do(`create index orders_by_age on orders (closed_at)`)
		must(t, runSQL(w.admin, `vacuum analyze`))
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		w.apply(`policies:
  - {name: whole_index, table: shop.sessions, expire: {column: last_seen, after: 30 days}, batch: 500}
  - {name: column_index, table: shop.orders, expire: {column: closed_at, after: 7 years, zone: Europe/Berlin}, batch: 500}
  - {name: no_index, table: shop.visits, expire: {column: day, after: 1 mon 2 days}, batch: 500}
  - {name: candidates, table: shop.carts, expire: {column: opened, ttl_column: ttl}, batch: 500}
`)
		for _, p := range w.inForce() {
			survey, err := surveyInForce(t.Context(), w.exec, &p, at)
			must(t, err)
			name := string(p.Name)
			got := survey.Statement + "\n\n" + costs.ReplaceAllString(survey.Explain, "") + "\nmethod: " + string(survey.Method) + " " + survey.Index + "\n"
			file := filepath.Join("testdata", "explain", name+".txt")
			if *update && db.Major == pgtest.Newest(t) {
				must(t, os.WriteFile(file, []byte(got), 0o600))
			}
			want, err := os.ReadFile(file)
			must(t, err)
			if got != string(want) {
				t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
			}
		}
	})
}

// What the breaker asks for is not worth following foreign keys.
func TestACountThatLooksForNothingElseFollowsNoCascade(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create table clicks (id bigint primary key, session bigint references sessions on delete cascade)`)
		w.fill("sessions", 10)
		w.do(`insert into clicks select n, n from generate_series(1, 10) n`)
		w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		for through, counted := range map[string]bool{"0": false, "1": true, "null": true} {
			if got := valueOn[bool](t, w.exec, `select due = 10 and cascades is not null from lapse.survey_1_1(now(), null, `+through+`)`); got != counted {
				t.Errorf("looking through %s rows, what cascades delete is counted: %t", through, got)
			}
		}
	})
}
