package planner

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
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

		survey, err := SurveyInForce(t.Context(), w.exec, &p, time.Time{})
		must(t, err)
		if survey.Due != 5000 || survey.Oldest == nil || !survey.Oldest.Equal(oldest) || survey.Method != Sequential || survey.Index != "" {
			t.Errorf("as the executor: %+v", survey)
		}
		if survey.Explain != "" || !strings.Contains(survey.ExplainNote, "owner") || survey.PaceFrom != Stated || survey.Estimate != 100*time.Millisecond {
			t.Errorf("as the executor: explain %q, %q; pace from %s, estimate %s", survey.Explain, survey.ExplainNote, survey.PaceFrom, survey.Estimate)
		}
		w.do(`create index sessions_by_age on sessions (last_seen, id)`)
		w.do(`analyze sessions`)
		survey, err = SurveyInForce(t.Context(), w.exec, &p, oldest.Add(30*24*time.Hour+2500*time.Millisecond))
		must(t, err)
		if survey.Due != 3 || survey.Method != IndexOrder || survey.Index != "shop.sessions_by_age" {
			t.Errorf("at an earlier time: %+v", survey)
		}
		survey, err = SurveyInForce(t.Context(), w.admin, &p, time.Time{})
		must(t, err)
		if survey.Due != 5000 || survey.Method != IndexOrder || survey.Index != "sessions_by_age" || !strings.Contains(survey.Explain, "LockRows") {
			t.Errorf("as a superuser: %+v", survey)
		}
		if len(survey.Shards) != 1 || survey.Shards[0].Name != "shop.sessions" || strings.Join(survey.Order, ", ") != "last_seen, id" {
			t.Errorf("shards %v, order %v", survey.Shards, survey.Order)
		}
	})
}

func TestAPolicyThatIsOnlyInAFileIsSurveyedToo(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		makeMoments(w)
		partitioned(w)
		w.do(`insert into events select n, (array['eu','us','mars'])[n % 3 + 1], now() - n * interval '1 day' from generate_series(1, 60) n`)
		w.do(`insert into day select n, current_date - n from generate_series(1, 60) n`)
		for _, c := range []struct {
			p    Policy
			due  int64
			many int
		}{
			{Policy{Name: "e", Table: "shop.events", Expire: Expire{Column: "last_seen", After: "31 days"}, Every: "1 hour", Batch: 10}, 30, 3},
			{Policy{Name: "d", Table: "shop.day", Expire: Expire{Column: "v", After: "30 days", Zone: "Etc/GMT+12"}, Every: "1 hour", Batch: 10}, 30, 1},
			{Policy{Name: "u", Table: "shop.without_zone", Expire: Expire{Column: "v", After: "1 mon", Zone: "Europe/Berlin"}, Every: "1 hour", Batch: 10}, 0, 1},
		} {
			r, err := Resolve(t.Context(), w.admin, "f", c.p)
			must(t, err)
			at := valueOn[time.Time](t, w.admin, `select current_date::timestamp at time zone 'UTC' + interval '23:59'`)
			if c.p.Name == "e" {
				at = time.Time{}
			}
			survey, err := SurveyResolved(t.Context(), w.owner, r, at)
			must(t, err)
			if survey.Version != 0 || survey.Due < c.due-1 || survey.Due > c.due+1 || len(survey.Shards) != c.many || survey.Explain == "" {
				t.Errorf("%s: got %+v", c.p.Name, survey)
			}
		}
	})
}

func TestTheSpeedIsTakenFromTheLedger(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	w := newWorld(t, db, sessions)
	w.fill("sessions", 2000)
	p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
	b := w.lease(p, w.open(&p))
	b.Limit = 1000
	_, err := w.call(b, nil)
	must(t, err)
	survey, err := SurveyInForce(t.Context(), w.exec, &p, time.Time{})
	must(t, err)
	if survey.PaceFrom != Measured || survey.RowsPerSecond <= 0 || survey.Due != 1000 || survey.Estimate <= 0 {
		t.Errorf("got %+v", survey)
	}
}

var costs = regexp.MustCompile(`  \(cost=.*\)`)

// The plan of the pick is the same on every major: a change to it is a change to what a batch costs.
func TestThePickIsPlannedAsAnIndexScanInOrder(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions,
			`create table orders (tenant text, id int, closed_at timestamp, primary key (tenant, id))`,
			`create table visits (id int primary key, day date)`)
		w.do(`insert into sessions select n, '2025-01-01'::timestamptz + n * interval '1 minute' from generate_series(1, 20000) n`)
		w.do(`insert into orders select 't' || n % 7, n, '2015-01-01'::timestamp + n * interval '1 minute' from generate_series(1, 20000) n`)
		w.do(`insert into visits select n, '2025-01-01'::date + n / 20 from generate_series(1, 20000) n`)
		w.do(`create index sessions_by_age on sessions (last_seen, id)`)
		w.do(`create index orders_by_age on orders (closed_at)`)
		must(t, run(w.admin, `vacuum analyze`))
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for name, p := range map[string]Policy{
			"whole_index":  {Table: "shop.sessions", Expire: Expire{Column: "last_seen", After: "30 days"}, Batch: 500},
			"column_index": {Table: "shop.orders", Expire: Expire{Column: "closed_at", After: "7 years", Zone: "Europe/Berlin"}, Batch: 500},
			"no_index":     {Table: "shop.visits", Expire: Expire{Column: "day", After: "1 mon 2 days"}, Batch: 500},
		} {
			p.Name, p.Every = "p", "1 hour"
			r, err := Resolve(t.Context(), w.admin, "f", p)
			must(t, err)
			survey, err := SurveyResolved(t.Context(), w.owner, r, at)
			must(t, err)
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
