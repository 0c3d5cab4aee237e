package planner

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"lapse/internal/fixture/definitions"
	"lapse/internal/pgtest"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/schemas"
)

// oracle says whether a row is due in the words of the promise: column + after <= cutoff, in UTC; nothing that is not an
// instant of PostgreSQL's calendar, and nothing that cannot be added up.
const oracle = `
	create function shop.oracle(v anyelement, zone text, after interval, cutoff timestamptz) returns boolean language plpgsql
	set timezone = 'UTC' as $$
	begin
	  if v is null or not isfinite(v) or v < '4713-01-01 BC' then return false; end if;
	  if pg_typeof(v) = 'timestamptz'::regtype then return v::text::timestamptz + after <= cutoff; end if;
	  return (v::timestamp at time zone zone) + after <= cutoff;
	exception when datetime_field_overflow then return false;
	end $$`

// moments are the tables of the due test, one for each type of column.
var moments = map[expiry.ColumnType]string{expiry.Timestamptz: "with_zone", expiry.Timestamp: "without_zone", expiry.Date: "day"}

func makeMoments(w *world) {
	w.t.Helper()
	for of, table := range moments {
		w.do(fmt.Sprintf(`create table %s (id int primary key, v %s)`, table, of))
		w.do(fmt.Sprintf(`create index on %s (v, id)`, table))
	}
	w.do(oracle)
	w.do(`set timezone = 'UTC'`)
	w.do(`set datestyle = 'ISO, YMD'`)
}

// special are values that arithmetic stumbles over.
var special = []string{
	"infinity", "-infinity", "4713-01-01 00:00 BC", "4713-01-02 BC", "4714-12-31 23:59:59.999999 BC", "4714-11-24 BC", "0001-01-01", "1970-01-01",
	"2000-02-29", "1900-02-28 23:59:59.999999", "294276-12-31 23:59:59.999999", "294276-12-01", "9999-12-31", "2011-12-30 12:00", "2024-03-31 02:30",
}

// drawAfter draws the intervals that calendars make difficult.
func drawAfter(t *rapid.T) expiry.Interval {
	return expiry.Interval{
		Months: rapid.OneOf(rapid.Just[int32](0), rapid.Int32Range(0, 30), rapid.Int32Range(0, 24000)).Draw(t, "months"),
		Days:   rapid.OneOf(rapid.Just[int32](0), rapid.Int32Range(0, 40), rapid.Int32Range(0, 60000)).Draw(t, "days"),
		Microseconds: rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(0, 3*24*time.Hour.Microseconds()),
			rapid.Just(time.Hour.Microseconds()), rapid.Just[int64](1)).Draw(t, "microseconds"),
	}
}

// drawInstant draws an instant between 1890 and the present, more often than not near the end of a month or a change of
// clocks.
func drawInstant(t *rapid.T) time.Time {
	year := rapid.IntRange(1890, 2025).Draw(t, "year")
	month := time.Month(rapid.IntRange(1, 12).Draw(t, "month"))
	day := rapid.OneOf(rapid.IntRange(1, 31), rapid.IntRange(28, 31), rapid.IntRange(1, 3)).Draw(t, "day")
	clock := rapid.OneOf(rapid.Int64Range(0, 24*time.Hour.Microseconds()-1), rapid.SampledFrom([]int64{
		0, 24*time.Hour.Microseconds() - 1, 2 * time.Hour.Microseconds(), 5 * time.Hour.Microseconds() / 2,
	})).Draw(t, "clock")
	day = min(day, time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day())
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Add(time.Duration(clock) * time.Microsecond)
}

// drawRows draws values around the instant at which a row becomes due, and special ones.
func drawRows(t *rapid.T, cutoff time.Time, after expiry.Interval) []string {
	edge := cutoff.AddDate(0, 0, -int(after.Days)).Add(-time.Duration(after.Microseconds)*time.Microsecond).AddDate(0, -int(after.Months), 0)
	near := rapid.Custom(func(t *rapid.T) string {
		at := edge.AddDate(0, 0, rapid.OneOf(rapid.Just(0), rapid.IntRange(-4, 4)).Draw(t, "days off"))
		off := rapid.OneOf(rapid.Int64Range(-1, 1), rapid.Map(rapid.IntRange(-48, 48), halfHours)).Draw(t, "off")
		return postgresText(at.Add(time.Duration(off) * time.Microsecond))
	})
	return rapid.SliceOfN(rapid.OneOf(near, near, near, rapid.SampledFrom(special)), 30, 60).Draw(t, "rows")
}

func halfHours(n int) int64 { return int64(n) * 30 * time.Minute.Microseconds() }

// postgresText writes an instant of any year, the year before 1 being 1 BC.
func postgresText(at time.Time) string {
	if at.Year() > 0 {
		return at.Format("2006-01-02 15:04:05.999999")
	}
	return fmt.Sprintf("%04d-%s BC", 1-at.Year(), at.Format("01-02 15:04:05.999999"))
}

type dueCase struct {
	d      functions.Definition
	age    *expiry.Age
	cutoff time.Time
	rows   []string
	table  string
}

func drawDueCase(t *rapid.T) dueCase {
	of := rapid.SampledFrom([]expiry.ColumnType{expiry.Timestamptz, expiry.Timestamp, expiry.Date}).Draw(t, "type")
	a := definitions.Age("v", 2, of, drawZone(t, of), drawAfter(t))
	table, cutoff := "shop."+moments[of], drawInstant(t)
	d := functions.Definition{
		ID: 1, Version: 1, Name: "p", Table: table, Expire: a, Batch: policyfile.MaxBatch,
		Key: []functions.KeyColumn{{Name: "id", Number: 1, Type: "integer", Plain: true}},
	}
	return dueCase{d: d, age: a, cutoff: cutoff, rows: drawRows(t, cutoff, a.After), table: table}
}

// drawZone draws a zone for a column that has none of its own.
func drawZone(t *rapid.T, of expiry.ColumnType) string {
	if of == expiry.Timestamptz {
		return ""
	}
	return rapid.SampledFrom([]string{"", "", "Europe/Berlin", "America/St_Johns", "Pacific/Apia", "Australia/Lord_Howe", "Etc/GMT+12"}).Draw(t, "zone")
}

// zoneOr is the zone that a column is read in.
func zoneOr(zone string) string { return cmp.Or(zone, "UTC") }

func (c *dueCase) String() string {
	return fmt.Sprintf("%s, zone %q, after %s, cutoff %s, rows %q", c.age.Type, c.age.Zone, c.age.After, c.cutoff.Format(time.RFC3339Nano), c.rows)
}

// fill stores the rows, and returns the ids of those that the oracle calls due.
func (c *dueCase) fill(ctx context.Context, conn *pgx.Conn) ([]int32, error) {
	if _, err := conn.Exec(ctx, `delete from `+c.table); err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, `insert into `+c.table+` select n, v::`+string(c.age.Type)+` from unnest($1::text[]) with ordinality r(v, n)`, c.rows); err != nil {
		return nil, err
	}
	return ids(ctx, conn, `select id from `+c.table+` where shop.oracle(v, $1, $2::text::interval, $3) order by id`, zoneOr(c.age.Zone), c.age.After.String(), c.cutoff)
}

func ids(ctx context.Context, conn *pgx.Conn, sql string, args ...any) ([]int32, error) {
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int32])
}

// picked are the ids of the rows of a table whose addresses a statement says.
func picked(table, statement string) string {
	return `with pick as materialized (` + statement + `) select t.id from pick p join ` + table + ` t on t.ctid = p.at order by t.id`
}

// The pick finds what is due, the whole of it and nothing else, and no value makes it fail.
func TestExactlyTheDueRowsAreFound(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		makeMoments(w)
		w.do(`set enable_seqscan = off`)
		due, all := 0, 0
		rapid.Check(t, func(rt *rapid.T) {
			c := drawDueCase(rt)
			ctx := context.Background()
			want, err := c.fill(ctx, w.owner)
			if err != nil {
				rt.Fatal(err)
			}
			due, all = due+len(want), all+len(c.rows)
			var bound string
			if err := w.owner.QueryRow(ctx, `select (`+c.d.Expire.Bound("$1::timestamptz").Value+`)::text`, c.cutoff).Scan(&bound); err != nil {
				rt.Fatal(err)
			}
			pick := c.d.Statement(functions.ShapePick, c.table, c.cutoff.Format("2006-01-02 15:04:05.999999Z"), bound)
			got, err := ids(ctx, w.owner, picked(c.table, pick))
			if err != nil {
				rt.Fatal(err)
			}
			if !slices.Equal(got, want) {
				rt.Fatalf("%s: the pick finds %v, want %v", &c, got, want)
			}
		})
		t.Logf("%d of %d rows were due", due, all)
	})
}

// The same, through the deletion function and its survey.
func TestExactlyTheDueRowsGo(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		makeMoments(w)
		p := w.armed(policyText("shop.day", "v", "1 day", "    state: armed"))
		version := p.Version
		rapid.Check(t, func(rt *rapid.T) {
			c := drawDueCase(rt)
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

// wantExactly surveys and works off a table of rows 1 to all, in batches of any size: exactly the rows want go.
func (w *world) wantExactly(rt *rapid.T, what fmt.Stringer, p record.InForce, cutoff time.Time, table string, want []int32, all int) {
	w.t.Helper()
	var counted int
	if err := w.exec.QueryRow(w.t.Context(), `select due from `+functions.SurveyFunction(p.ID, p.Version)+`($1, null, 0)`, cutoff).Scan(&counted); err != nil {
		rt.Fatal(err)
	}
	r := record.Run{Policy: p.ID, Version: p.Version, Cutoff: cutoff}
	must(w.t, w.admin.QueryRow(w.t.Context(), `
		with run as (insert into lapse.run (run, policy_id, version, cutoff) values (gen_random_uuid(), $1, $2, $3) returning *)
		insert into lapse.shard (run, policy_id, version, leaf, cutoff) select run, policy_id, version, $4, cutoff from run returning run`,
		p.ID, p.Version, cutoff, p.TableOID).Scan(&r.ID))
	total := w.deleteAll(p, r, rapid.IntRange(1, 20).Draw(rt, "limit"))
	left, err := ids(w.t.Context(), w.owner, `select id from `+table+` order by id`)
	if err != nil {
		rt.Fatal(err)
	}
	for id := int32(1); int(id) <= all; id++ {
		if slices.Contains(left, id) == slices.Contains(want, id) {
			rt.Errorf("%s: row %d is left: %t", what, id, slices.Contains(left, id))
		}
	}
	if int(total.Deleted) != len(want) || int(total.Picked) != len(want) || counted != len(want) {
		rt.Errorf("%s: picked %d, deleted %d, counted %d, want %d", what, total.Picked, total.Deleted, counted, len(want))
	}
}

// inForceWith puts a definition into force without apply: its table and interval are none that a person would choose.
func inForceWith(w *world, d *functions.Definition, functions string) record.InForce {
	w.t.Helper()
	columns, err := json.Marshal(d.Columns())
	must(w.t, err)
	joined, err := json.Marshal(d.Joined())
	must(w.t, err)
	must(w.t, w.script(strings.Join([]string{
		functions,
		fmt.Sprintf(`insert into lapse.policy (id, version, name, table_oid, table_name, columns, spec, joined)
			select id, %[1]d, name, '%[2]s'::regclass, '%[2]s', %[3]s, spec, %[4]s from lapse.policy where version = 1;`, d.Version, d.Table, schemas.Literal(string(columns)), schemas.Literal(string(joined))),
		fmt.Sprintf(`update lapse.gate set version = %d, table_oid = '%s'::regclass;`, d.Version, d.Table),
	}, "\n")))
	p := record.InForce{
		ID: d.ID, Version: d.Version, Name: d.Name, State: schemas.Armed, Definition: *d, TableName: d.Table, Batch: d.Batch,
		TableOID: valueOn[uint32](w.t, w.admin, `select $1::text::regclass::oid`, d.Table),
	}
	p.Spec.Functions = d.Digest()
	return p
}
