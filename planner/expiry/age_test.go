package expiry

import (
	"fmt"
	"testing"
	"time"

	"lapse/internal/pgtest"
)

// Every day of two years and more, every number of months up to fourteen: the bound that serves the index loses no due row. The
// days that the bound gives away are needed, all but one.
func TestTheIndexBoundLosesNoMonthEnd(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t, pgtest.Newest(t)).Connect(t)
	must(t, run(conn, `set timezone = 'UTC'`))
	worst := time.Duration(0)
	for months := range int32(14) {
		d := Age{Moment{Column: "v", Type: Timestamptz}, Interval{Months: months + 1, Microseconds: 1}}
		beyond := valueOn[float64](t, conn, fmt.Sprintf(`
			select coalesce(max(extract(epoch from t.v - (%s))), -1e9)::float8
			  from generate_series('2023-01-01'::timestamptz, '2025-04-01', '1 day') c(cutoff),
			       lateral (select c.cutoff - interval '%s' + n * interval '6 hours' as v from generate_series(-20, 20) n) t
			 where %s`, d.Bound("c.cutoff").Value, d.After, d.Due("c.cutoff", "'infinity'")))
		if beyond > 0 {
			t.Errorf("%s: a due row lies %s above the bound", d.After, time.Duration(beyond)*time.Second)
		}
		worst = max(worst, 4*24*time.Hour+time.Duration(beyond)*time.Second)
	}
	if worst < 2*24*time.Hour {
		t.Errorf("at most %s of the slack are used: the test looks in the wrong place", worst)
	}
	t.Logf("%s of the slack are used", worst)
}

func TestTheIndexBoundLosesNoZone(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t, pgtest.Newest(t)).Connect(t)
	must(t, run(conn, `set timezone = 'UTC'`))
	worst := time.Duration(0)
	for _, zone := range []string{"Etc/GMT-14", "Etc/GMT+12", "Pacific/Apia", "Pacific/Kwajalein", "Europe/Berlin", "Asia/Kathmandu"} {
		for _, of := range []ColumnType{Timestamp, Date} {
			d := Age{Moment{Column: "v", Type: of, Zone: zone}, Interval{Days: 1}}
			beyond := valueOn[float64](t, conn, fmt.Sprintf(`
				select coalesce(max(extract(epoch from t.v::timestamp - (%s)::timestamp)), -1e9)::float8
				  from generate_series('2011-01-01'::timestamptz, '2012-06-01', '13 hours') c(cutoff),
				       lateral (select ((c.cutoff at time zone 'UTC') - interval '1 day' + n * interval '1 hour')::%s as v from generate_series(-30, 30) n) t
				 where %s`, d.Bound("c.cutoff").Value, of, d.Due("c.cutoff", "'infinity'")))
			if beyond > 0 {
				t.Errorf("%s in %s: a due row lies %s above the bound", of, zone, time.Duration(beyond)*time.Second)
			}
			worst = max(worst, 2*24*time.Hour+time.Duration(beyond)*time.Second)
		}
	}
	if worst < 12*time.Hour {
		t.Errorf("at most %s of the slack are used: the test looks in the wrong place", worst)
	}
	t.Logf("%s of the slack are used", worst)
}
