package planner

import (
	"fmt"
	"testing"

	"lapse/internal/fixture/definitions"
	"lapse/internal/pgtest"
	"lapse/planner/expiry"
	"lapse/planner/functions"
)

// Some programs write the least value of a type where no time is set, into millions of rows. A batch whose candidates are all
// due does not read them: it would do nothing else until its statement's time is over.
func TestRowsBelowTheCalendarAreNoCandidates(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		w.do(`create table never (id int primary key, v1 timestamptz, v2 timestamp, v3 date, v4 bigint, v5 numeric, v6 float8, v7 jsonb, v8 float4)`)
		w.do(`insert into never select g, '-infinity', '-infinity', '-infinity', -9223372036854775808, -1e30, '-infinity', '{"at": -9223372036854775808}', '-infinity'
			from generate_series(1, 100) g`)
		w.do(`insert into never select g, '1970-01-02', '1970-01-02', '1970-01-02', 86400, 86400, 86400, '{"at": 86400}', 86400 from generate_series(101, 103) g`)
		epoch := func(column string, number int16, of expiry.ColumnType, path, unit string) expiry.Kind {
			return &expiry.Epoch{Kind: "epoch", Value: expiry.Value{Column: column, Number: number, Type: of, Path: path}, Unit: unit}
		}
		for _, kind := range []expiry.Kind{
			definitions.Age("v1", 2, expiry.Timestamptz, "", expiry.Interval{}), definitions.Age("v2", 3, expiry.Timestamp, "", expiry.Interval{Days: 1}),
			definitions.Age("v3", 4, expiry.Date, "", expiry.Interval{}),
			&expiry.Bucket{Kind: "bucket", Moment: expiry.Moment{Column: "v1", Number: 2, Type: expiry.Timestamptz}},
			epoch("v4", 5, "bigint", "", "s"), epoch("v4", 5, "bigint", "", "ms"), epoch("v5", 6, "numeric", "", "s"), epoch("v6", 7, "double precision", "", "ms"),
			epoch("v7", 8, "jsonb", "at", "s"), epoch("v8", 9, "real", "", "s"),
			&expiry.Expression{Kind: "expression", SQL: "t.v1", Immutable: true},
		} {
			d := functions.Definition{Expire: kind}
			c, bound := d.Condition(), kind.Bound("clock_timestamp()")
			if !c.Certain() {
				t.Errorf("%+v: a candidate need not be due", kind)
			}
			seen := valueOn[int](t, w.owner, fmt.Sprintf(`select count(*) from shop.never t where %s`, c.Narrow("clock_timestamp()", "("+bound.Value+")")))
			if seen != 3 {
				t.Errorf("%+v: %d rows are candidates, want the three that are due", kind, seen)
			}
		}
	})
}
