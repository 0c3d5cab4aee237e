package planner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"lapse/internal/pgtest"
	"lapse/internal/setup/apply"
	"lapse/internal/yamldoc"
	"lapse/planner/change"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/policyfile"
	"lapse/schemas"
)

// ttlOracle says in the words of the promise whether a row with a ttl of its own is due: a ttl without a negative part that is
// no longer than 6000 years is added to the column.
const ttlOracle = `
	create function shop.ttl_oracle(v anyelement, zone text, ttl interval, cutoff timestamptz) returns boolean language plpgsql
	set timezone = 'UTC' as $$
	begin
	  if ttl is null or ttl > '6000 years' or extract(year from ttl) < 0 or extract(month from ttl) < 0 or extract(day from ttl) < 0
	     or extract(hour from ttl) < 0 or extract(minute from ttl) < 0 or extract(second from ttl) < 0 then
	    return false;
	  end if;
	  return shop.oracle(v, zone, ttl, cutoff);
	exception when datetime_field_overflow or interval_field_overflow then return false; -- extract cannot take it apart
	end $$`

// ttlTypes are the types of a ttl, each with values that arithmetic stumbles over, in SQL.
var ttlTypes = map[expiry.ColumnType][]string{
	"smallint": {"null", "0", "-1", "32767", "-32768", "1"},
	"integer":  {"null", "0", "-1", "2147483647", "-2147483648", "86400"},
	"bigint":   {"null", "0", "-1", "9223372036854775807", "-9223372036854775808", "186624000000", "186624000001", "9000000000000"},
	"interval": {
		"null", "interval '0'", "interval '-1 day'", "interval '1 mon -1 day'", "interval '1 day -01:00'", "interval '-1 mon 60 days'",
		"interval '-1 day 48:00'", "interval '6000 years'", "interval '6000 years 00:00:00.000001'", "interval '178000000 years'",
		"interval '-178000000 years'", "make_interval(days => 2147483647)", "make_interval(months => -2147483647, days => 2147483647)",
		"make_interval(hours => 2000000000) + make_interval(hours => 500000000)",
		"make_interval(months => -3000000) + make_interval(hours => 2000000000) + make_interval(hours => 190000000)",
		"make_interval(hours => -2000000000) - make_interval(hours => 500000000)",
	},
}

// ttlTable names the table of the ttl tests with these two columns.
func ttlTable(of, ttl expiry.ColumnType) string {
	return "ttl_" + moments[of] + "_" + strings.ReplaceAll(string(ttl), " ", "_")
}

func makeTTLTables(w *world) {
	w.t.Helper()
	for of := range moments {
		for ttl := range ttlTypes {
			w.do(fmt.Sprintf(`create table %s (id int primary key, v %s, ttl %s)`, ttlTable(of, ttl), of, ttl))
			w.do(fmt.Sprintf(`create index on %s (v, id)`, ttlTable(of, ttl)))
		}
	}
	w.do(oracle)
	w.do(ttlOracle)
	w.do(`set timezone = 'UTC'`)
	w.do(`set datestyle = 'ISO, YMD'`)
}

type ttlRow struct{ value, ttl string } // the value as a text, the ttl in SQL

type ttlCase struct {
	d      functions.Definition
	kind   *expiry.TTL
	cutoff time.Time
	rows   []ttlRow
	table  string
}

func drawTTLCase(t *rapid.T, major int) ttlCase {
	of := rapid.SampledFrom([]expiry.ColumnType{expiry.Timestamptz, expiry.Timestamp, expiry.Date}).Draw(t, "type")
	ttl := rapid.SampledFrom([]expiry.ColumnType{"smallint", "integer", "bigint", "interval"}).Draw(t, "ttl type")
	k := &expiry.TTL{
		Kind: "ttl", Moment: expiry.Moment{Column: "v", Number: 2, Type: of, Zone: drawZone(t, of)},
		TTLColumn: "ttl", TTLNumber: 3, TTLType: ttl,
	}
	if rapid.Bool().Draw(t, "default") {
		after := drawAfter(t)
		after.Months = min(after.Months, 5000*12)
		k.Default = &after
	}
	cutoff := drawInstant(t)
	d := functions.Definition{
		ID: 1, Version: 1, Name: "p", Table: "shop." + ttlTable(of, ttl), Expire: k, Batch: policyfile.MaxBatch,
		Key: []functions.KeyColumn{{Name: "id", Number: 1, Type: "integer", Plain: true}},
	}
	c := ttlCase{d: d, kind: k, cutoff: cutoff, table: d.Table}
	for n := rapid.IntRange(2, 6).Draw(t, "ttls"); n > 0; n-- {
		after, sql := drawTTL(t, ttl, major)
		if sql == "null" && k.Default != nil {
			after = *k.Default
		}
		for _, value := range drawRows(t, cutoff, after)[:rapid.IntRange(4, 12).Draw(t, "rows of it")] {
			c.rows = append(c.rows, ttlRow{value, sql})
		}
	}
	return c
}

// drawTTL draws a ttl, in SQL, and the interval around whose end rows are drawn.
func drawTTL(t *rapid.T, of expiry.ColumnType, major int) (expiry.Interval, string) {
	if rapid.IntRange(0, 2).Draw(t, "special") == 0 {
		special := ttlTypes[of]
		if of == "interval" && major >= 17 {
			special = append(slices.Clone(special), "interval 'infinity'", "interval '-infinity'")
		}
		return expiry.Interval{}, rapid.SampledFrom(special).Draw(t, "ttl")
	}
	if of == "interval" {
		after := drawAfter(t)
		return after, "interval " + schemas.Literal(after.String())
	}
	largest := map[expiry.ColumnType]int64{"smallint": 1<<15 - 1, "integer": 1<<31 - 1, "bigint": 10_000_000_000}[of]
	seconds := rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(0, min(largest, 100*86400)), rapid.Int64Range(0, largest)).Draw(t, "seconds")
	return expiry.Interval{Microseconds: seconds * 1e6}, fmt.Sprint(seconds)
}

func (c *ttlCase) String() string {
	return fmt.Sprintf("%s, zone %q, ttl %s, default %v, cutoff %s, rows %q", c.kind.Type, c.kind.Zone, c.kind.TTLType, c.kind.Default,
		c.cutoff.Format(time.RFC3339Nano), c.rows)
}

// fill stores the rows, and returns the ids of those that the oracle calls due.
func (c *ttlCase) fill(ctx context.Context, conn *pgx.Conn) ([]int32, error) {
	values := make([]string, 0, len(c.rows))
	for i, r := range c.rows {
		values = append(values, fmt.Sprintf("(%d, %s::%s, (%s)::%s)", i+1, schemas.Literal(r.value), c.kind.Type, r.ttl, c.kind.TTLType))
	}
	if _, err := conn.Exec(ctx, `delete from `+c.table); err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, `insert into `+c.table+` values `+strings.Join(values, ", ")); err != nil {
		return nil, err
	}
	ttl := "ttl"
	if c.kind.TTLType != "interval" {
		ttl = "case when ttl between 0 and 186624000000 then make_interval(secs => ttl) when ttl is not null then interval '-1 s' end"
	}
	ifNone := "null"
	if c.kind.Default != nil {
		ifNone = schemas.Literal(c.kind.Default.String())
	}
	return ids(ctx, conn, `select id from `+c.table+` where shop.ttl_oracle(v, $1, coalesce(`+ttl+`, `+ifNone+`::interval), $2) order by id`,
		zoneOr(c.kind.Zone), c.cutoff)
}

// The pick finds the rows whose own time is over, the whole of them and nothing else, and no ttl makes it fail.
func TestExactlyTheRowsWhoseOwnTimeIsOverAreFound(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		makeTTLTables(w)
		w.do(`set enable_seqscan = off`)
		due, all := 0, 0
		rapid.Check(t, func(rt *rapid.T) {
			c := drawTTLCase(rt, db.Major)
			ctx := context.Background()
			want, err := c.fill(ctx, w.owner)
			if err != nil {
				rt.Fatalf("%s: %v", &c, err)
			}
			due, all = due+len(want), all+len(c.rows)
			var bound string
			if err := w.owner.QueryRow(ctx, `select (`+c.kind.Bound("$1::timestamptz").Value+`)::text`, c.cutoff).Scan(&bound); err != nil {
				rt.Fatal(err)
			}
			pick := c.d.Statement(functions.ShapePick, c.table, c.cutoff.Format("2006-01-02 15:04:05.999999Z"), bound)
			got, err := ids(ctx, w.owner, picked(c.table, pick))
			if err != nil {
				rt.Fatalf("%s: %v", &c, err)
			}
			if !slices.Equal(got, want) {
				rt.Fatalf("%s: the pick finds %v, want %v", &c, got, want)
			}
		})
		if due == 0 || due == all {
			t.Fatalf("%d of %d rows were due: the test has no rows on one side", due, all)
		}
		t.Logf("%d of %d rows were due", due, all)
	})
}

// The same, through the deletion function and its survey.
func TestExactlyTheRowsWhoseOwnTimeIsOverGo(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		makeTTLTables(w)
		p := w.armed("policies:\n  - {name: p, table: shop.ttl_day_integer, expire: {column: v, ttl_column: ttl}, state: armed}\n")
		version := p.Version
		rapid.Check(t, func(rt *rapid.T) {
			c := drawTTLCase(rt, db.Major)
			version++
			c.d.ID, c.d.Version, c.d.TableOwner = p.ID, version, p.Definition.TableOwner
			want, err := c.fill(t.Context(), w.owner)
			if err != nil {
				rt.Fatal(err)
			}
			create, give, err := functions.SQL(&c.d, testRoles)
			if err != nil {
				rt.Fatal(err)
			}
			w.wantExactly(rt, &c, inForceWith(w, &c.d, create+give), c.cutoff, c.table, want, len(c.rows))
		})
	})
}

// ttlText is a policy file of one entry of the kind.
func ttlText(table, expire string, more ...string) string {
	return "policies:\n  - name: p\n    table: " + table + "\n    expire: " + expire + "\n" + strings.Join(append(more, ""), "\n")
}

// From the file to the deleted row, with the rights that a deleter has: a member of the owner's, or, where the owner is a
// superuser, of one column and SELECT.
func TestAPolicyByTheRowsOwnTimeWorksFromTheFileToTheDeletion(t *testing.T) {
	t.Parallel()
	for name, superuser := range map[string]bool{"an application's table": false, "a superuser's table": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
				w := newWorld(t, db)
				if superuser {
					must(t, runSQL(w.admin, `set search_path = shop`))
					w.owner = w.admin
				}
				w.do(`create table carts (id int primary key, opened timestamptz, ttl int)`)
				w.do(`create index carts_by_age on carts (opened, id)`)
				w.do(`insert into carts values (1, now() - interval '1 hour', 3599), (2, now() - interval '1 hour', 7200), (3, now() - interval '1 hour', null),
					(4, now() - interval '40 days', null), (5, now() - interval '1 year', -1), (6, now() - interval '1 s', 0), (7, 'infinity', 0), (8, null, 0),
					(9, now() - interval '1 year', 2147483647)`)
				p := w.armed(ttlText("shop.carts", "{column: opened, ttl_column: ttl, ttl_default: 30 days}", "    state: armed"))
				survey, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
				must(t, err)
				if survey.Due != 3 || survey.Index != "carts_by_age" || strings.Join(survey.Order, ", ") != "opened" ||
					len(survey.Warnings) != 1 || !strings.Contains(survey.Warnings[0], "every run reads all rows whose opened is past") {
					t.Errorf("the survey says %+v", survey)
				}
				if total := w.deleteAll(p, w.open(&p), 2); total.Picked != 3 || total.Deleted != 3 {
					t.Errorf("picked and deleted %+v, want 3", total)
				}
				if got := value[[]int32](w, `select array_agg(id order by id) from carts`); !slices.Equal(got, []int32{2, 3, 5, 7, 8, 9}) {
					t.Errorf("rows %v are left", got)
				}
			})
		})
	}
}

func TestAnEntryOfTheRowsOwnTimeIsRefusedWithTheFix(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table carts (id int primary key, opened timestamptz, day date, ttl int, note text, "from" numeric)`)
		for expire, want := range map[string]string{
			"{column: opened, ttl_column: tl}":                              `policies.yaml:4:42: policy p: shop.carts has no column "tl"; did you mean ttl?`,
			"{column: opened, ttl_column: note}":                            `column note of shop.carts is of type text: a ttl is a number of seconds (smallint, integer, bigint) or an interval`,
			"{column: opened, ttl_column: from}":                            `column from of shop.carts is of type numeric: a ttl is`,
			"{column: ttl, ttl_column: ttl2}":                               `column ttl of shop.carts is of type integer: time is counted from a timestamp or a date; for a Unix time write epoch: s or ms`,
			"{column: opened, ttl_column: ttl, ttl_default: soon}":          `policies.yaml:4:60: policy p: "soon" is not a duration`,
			"{column: opened, ttl_column: ttl, ttl_default: -1 day}":        `must not be negative`,
			"{column: opened, ttl_column: ttl, ttl_default: 6001 years}":    `ttl_default is more than 6000 years`,
			"{column: opened, ttl_column: ttl, zone: Europe/Berlin}":        `has a zone of its own`,
			"{column: day, ttl_column: ttl, zone: Europe/Berlin, after: x}": "",
		} {
			f, err := policyfile.Parse("policies.yaml", []byte(ttlText("shop.carts", expire)))
			if want == "" {
				if err == nil {
					t.Errorf("%s is taken", expire)
				}
				continue
			}
			must(t, err)
			_, err = change.Difference(t.Context(), w.admin, f, false, apply.Fit, nil)
			if _, ok := err.(yamldoc.Errors); !ok || !strings.Contains(err.Error(), want) { //nolint:errorlint // it is returned as it is
				t.Errorf("%s: got %v, want %q", expire, err, want)
			}
		}
	})
}

// A virtual column is an expression that runs inside the scan, where a value may raise.
func TestAVirtualColumnIsNoPolicysColumn(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table carts (id int primary key, opened timestamptz, meta text, ttl int generated always as (meta::int) virtual,
			soon timestamptz generated always as (opened) virtual, kept int generated always as (length(meta)) stored)`)
		for expire, problem := range map[string]string{
			"{column: opened, ttl_column: ttl}":  "column ttl of shop.carts is a virtual generated column",
			"{column: soon, after: 1 day}":       "column soon of shop.carts is a virtual generated column",
			"{column: opened, ttl_column: kept}": "",
		} {
			f, err := policyfile.Parse("policies.yaml", []byte(ttlText("shop.carts", expire)))
			must(t, err)
			_, err = change.Difference(t.Context(), w.admin, f, false, apply.Fit, nil)
			if problem == "" && err != nil || problem != "" && (err == nil || !strings.Contains(err.Error(), problem)) {
				t.Errorf("%s: got %v, want %q", expire, err, problem)
			}
		}
	})
}

// Another ttl column under the same name, or another type, is not what the policy speaks of.
func TestAPolicyStopsWhenItsTTLColumnChanges(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		for i, change := range []string{
			`alter table %s drop ttl`, `alter table %s drop ttl, add ttl int`, `alter table %s alter ttl type bigint`, `alter table %s rename ttl to life`,
		} {
			table := fmt.Sprintf("carts_%d", i)
			w.do(fmt.Sprintf(`create table %s (id int primary key, opened timestamptz, ttl int)`, table))
			w.do(`insert into ` + table + ` values (1, now() - interval '1 hour', 60)`)
			w.apply(strings.Replace(ttlText("shop."+table, "{column: opened, ttl_column: ttl}", "    state: armed"), "name: p", fmt.Sprintf("name: p%d", i), 1))
			p := w.named(schemas.PolicyName(fmt.Sprintf("p%d", i)))
			w.arm(p.ID)
			p = w.named(p.Name)
			b := w.lease(p, w.open(&p))
			w.do(fmt.Sprintf(change, table))
			_, err := w.call(b, nil)
			wantState(t, err, schemas.SQLStateColumns)
			if n := value[int](w, `select count(*) from `+table); n != 1 {
				t.Errorf("%s: %d rows are left, want the one", change, n)
			}
			survey, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
			must(t, err)
			if survey.Trouble == "" {
				t.Errorf("%s: the survey finds nothing wrong", change)
			}
		}
	})
}

// By a default more falls due, and by a shorter one; by the ttl column itself nothing is known of the former rule's rows.
func TestAFileDoesNotArmADefaultByWhichMoreFallsDue(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table carts (id int primary key, opened timestamptz, ttl int, ttl2 int)`)
		by := func(expire string, more ...string) string {
			return ttlText("shop.carts", expire, append(more, isArmed)...)
		}
		w.walks(
			step{by("{column: opened, ttl_column: ttl}"), "p 1 armed"},
			step{by("{column: opened, ttl_column: ttl, ttl_default: 10 years}"), "p 1 armed, 2 held back"},
			step{by("{column: opened, ttl_column: ttl}", otherBatch), "p 3 armed"},
			step{by("{column: opened, ttl_column: ttl2}"), "p 4 observing, 4 held back"},
			step{by("{column: opened, after: 100 years}"), "p 5 observing, 5 held back"},
		)
		w.says(change.Arm)
		w.opens()
		w.walks(step{by("{column: opened, ttl_column: ttl, ttl_default: 30 days}"), "p 6 observing, 6 held back"})
		w.says(change.Arm)
		w.opens()
		w.walks(
			step{by("{column: opened, ttl_column: ttl, ttl_default: 31 days}"), "p 7 armed"},
			step{by("{column: opened, ttl_column: ttl, ttl_default: 1 mon}"), "p 8 observing, 8 held back"},
			step{by("{column: opened, ttl_column: ttl}"), "p 9 armed"},
		)
		changes, err := w.difference(by("{column: opened, after: 1 day}"), false)
		must(t, err)
		const want = `~ policy p on shop.carts: version 9 → 10, armed → observing
    + expire.after: 1 day
    - expire.ttl_column: ttl
    - ttl column type: integer
    more rows may fall due than under the version in force
    version 10 is held back: ` + "`lapse policy arm p --version 10` says yes, and nothing is deleted until then\n"
		if got, _, _ := strings.Cut(changes[0].Diff(), "    warning:"); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}
