package planner

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/planner/survey"
	"lapse/schemas"
)

// What is asked does not read the table, and is worth it where much is due.
func TestLeavesWithMuchThatIsDueAreCutEvenly(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create table visits (id int primary key, "the Day" date) partition by range (id)`,
			`create table visits_few partition of visits for values from (0) to (1000)`,
			`create table "visits Many" partition of visits for values from (1000) to (1000000)`,
			`create index on sessions (last_seen, id)`, `create index on visits ("the Day", id)`)
		w.armed(`policies:
  - {name: sessions, table: shop.sessions, expire: {column: last_seen, after: 30 days}, batch: 500, state: armed}
  - {name: visits, table: shop.visits, expire: {column: the Day, after: 30 days}, batch: 500, state: armed}
`)
		ask := func(name schemas.PolicyName) []survey.Cut {
			t.Helper()
			p := w.named(name)
			b, err := survey.ReadBacklog(t.Context(), w.exec, &p, time.Now(), &survey.Judgement{})
			must(t, err)
			cuts := b.Cuts
			// What a judgement has counted says it without another call.
			j, err := survey.Judge(t.Context(), w.exec, w.admin, &p, time.Now())
			must(t, err)
			if known, err := survey.ReadBacklog(t.Context(), nil, &p, time.Now(), &j); err != nil || !slices.Equal(known.Cuts, cuts) {
				t.Errorf("%s: after a judgement the cuts are %v, %v, want %v", name, known.Cuts, err, cuts)
			}
			survey, err := survey.Ask{AtMost: 10}.InForce(t.Context(), w.exec, &p)
			must(t, err)
			if survey.Trouble != "" || survey.Ranges != len(cuts)+1 {
				t.Errorf("%s: the survey says %d ranges, and %q", name, survey.Ranges, survey.Trouble)
			}
			return cuts
		}
		w.do(`alter table sessions set (autovacuum_enabled = off)`)
		w.do(`alter table "visits Many" set (autovacuum_enabled = off)`)
		w.do(`insert into sessions select -n, now() from generate_series(101, 15000) n`) // a large tie, but it is not due
		w.do(`insert into sessions select n, now() - interval '31 days' - n * n * interval '1 millisecond' from generate_series(1, 40000) n`)
		w.do(`insert into sessions select -n, '0001-01-01 BC' from generate_series(1, 100) n`)
		w.do(`insert into visits select n, current_date - 40 - n / 1000 from generate_series(1, 30000) n`)
		if cuts := ask("sessions"); len(cuts) != 0 {
			t.Errorf("without statistics: %v", cuts)
		}
		w.do(`analyze sessions`)
		w.do(`analyze visits`)
		for name, share := range map[schemas.PolicyName]string{
			"sessions": `select count(*)::int from shop.sessions where last_seen > $1 and last_seen <= $2`,
			"visits":   `select count(*)::int from shop."visits Many" where "the Day" > $1::timestamptz and "the Day" <= $2::timestamptz`,
		} {
			cuts, from := ask(name), time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
			if len(cuts) != 7 {
				t.Errorf("%s is cut at %v", name, cuts)
			}
			for _, c := range cuts {
				if got := value[int](w, share, from, c.At); got < 2000 || got > 8000 {
					t.Errorf("%s: %d rows are in the range up to %s", name, got, c.At)
				}
				from = c.At
			}
		}
		w.do(`delete from sessions where id % 40 > 0 and id > 0`)
		w.do(`analyze sessions`)
		if cuts := ask("sessions"); len(cuts) != 0 {
			t.Errorf("with little that is due: %v", cuts)
		}
	})
}

func TestCutsAreAskedForOnlyWhereMuchMayBeDue(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	last := func(version schemas.PolicyVersion, ago time.Duration) *record.Run {
		return &record.Run{Version: version, StartedAt: now.Add(-ago)}
	}
	raw := functions.Definition{Expire: &expiry.Age{Moment: expiry.Moment{Column: "at", Type: expiry.Timestamptz}}}
	hashed := raw
	hashed.Slices = []expiry.Column{{Name: "id"}}
	for what, c := range map[string]struct {
		p    record.InForce
		want bool
	}{
		"the first run":        {record.InForce{Version: 2, Definition: raw}, true},
		"another version":      {record.InForce{Version: 2, Definition: raw, LastRun: last(1, time.Second)}, true},
		"a day ago":            {record.InForce{Version: 2, Definition: raw, LastRun: last(2, 24*time.Hour)}, true},
		"just now":             {record.InForce{Version: 2, Definition: raw, LastRun: last(2, time.Hour), LastPicked: 19999}, false},
		"with much":            {record.InForce{Version: 2, Definition: raw, LastRun: last(2, time.Hour), LastPicked: 20000}, true},
		"with less than much":  {record.InForce{Version: 2, Definition: raw, LastRun: last(2, time.Hour), LastPicked: 20000, Batch: 5000}, false},
		"a run that goes on":   {record.InForce{Version: 2, Definition: raw, Unfinished: last(2, time.Hour)}, false},
		"hash slices":          {record.InForce{Version: 2, Definition: hashed}, false},
		"no instant of a type": {record.InForce{Version: 2, Definition: functions.Definition{Expire: &expiry.Epoch{}}}, false},
	} {
		if got := survey.MuchMayBeDue(&c.p, now); got != c.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}

// The plan of a range's pick is the same on every major: it reads the range of the index, and no more.
func TestARangeIsReadFromTheIndexInOrder(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.do(`create index sessions_by_age on sessions (last_seen, id)`)
		w.do(`insert into sessions select n, '2025-01-01'::timestamptz + n * interval '1 minute' from generate_series(1, 20000) n`)
		w.do(`analyze sessions`)
		w.apply(policyText("shop.sessions", "last_seen", "30 days"))
		d := w.named("p").Definition
		w.do(`set timezone = 'UTC'`)
		w.do(`set datestyle = 'ISO'`)
		above, upTo := d.Within(`timestamptz '2025-01-02'`, `timestamptz '2025-01-06'`)
		pick := strings.Join([]string{
			d.PickSelect("shop.sessions", "timestamptz '2026-01-01'", "timestamptz '2025-12-02'", ""), "   and " + d.PickAfter([]string{`timestamptz '2025-01-03'`}), "   and " + above, "   and " + upTo, d.PickTail("500"),
		}, "\n")
		rows, err := w.owner.Query(context.Background(), "explain (costs off) "+pick)
		must(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		must(t, err)
		got, file := pick+"\n\n"+strings.Join(lines, "\n")+"\n", filepath.Join("testdata", "explain", "range.txt")
		if *update && db.Major == pgtest.Newest(t) {
			must(t, os.WriteFile(file, []byte(got), 0o600))
		}
		want, err := os.ReadFile(file)
		must(t, err)
		if got != string(want) {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}
