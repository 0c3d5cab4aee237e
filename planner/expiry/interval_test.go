package expiry

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"pgregory.net/rapid"

	"lapse/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func run(conn *pgx.Conn, sql string) error {
	_, err := conn.Exec(context.Background(), sql)
	return err
}

func valueOn[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%v\nin: %s", err, sql)
	}
	return v
}

// Before an interval is in force PostgreSQL counts back with it once; that it reads what String writes is half of it.
func TestAnIntervalIsWrittenAsPostgresWritesIt(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		conn := db.Connect(t)
		must(t, run(conn, `set intervalstyle = 'postgres'`))
		rapid.Check(t, func(rt *rapid.T) {
			want := Interval{
				Months:       rapid.Int32Min(0).Draw(rt, "months"),
				Days:         rapid.Int32Min(0).Draw(rt, "days"),
				Microseconds: rapid.Int64Range(0, 1<<53).Draw(rt, "microseconds"),
			}
			got, problem, err := ReadInterval(context.Background(), conn, want.String())
			if err != nil || problem != "" || got != want {
				rt.Fatalf("%s is read as %+v (%s, %v), want %+v", want, got, problem, err, want)
			}
			var text string
			if err := conn.QueryRow(context.Background(), `select $1::text::interval::text`, want.String()).Scan(&text); err != nil {
				rt.Fatal(err)
			}
			if text != want.String() {
				rt.Fatalf("got %q, PostgreSQL writes %q", want, text)
			}
			var read Interval
			if written, err := json.Marshal(want); err != nil || json.Unmarshal(written, &read) != nil || read != want {
				rt.Fatalf("%s is kept as %s, and read back as %+v (%v)", want, written, read, err)
			}
		})
	})
}

// Most durations are read without a server: as it would read them.
func TestAPlainDurationIsReadAsPostgresReadsIt(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		conn := db.Connect(t)
		for _, unit := range []string{"second", "minute", "hour", "day", "week", "month", "year"} {
			for _, n := range []string{"0", "1", "07", "30", "365", "86399", "999999"} {
				for _, text := range []string{n + " " + unit, n + " " + unit + "s"} {
					got, is := plain(text)
					if want := valueOn[pgtype.Interval](t, conn, `select $1::text::interval`, text); !is ||
						got != (Interval{Months: want.Months, Days: want.Days, Microseconds: want.Microseconds}) {
						t.Errorf("%s is read as %+v (%t), PostgreSQL reads %+v", text, got, is, want)
					}
				}
			}
		}
		for _, text := range []string{"1000000 days", "1 fortnight", "-1 day", "1 day 1 hour", " 1 day", "1 days ago"} {
			if got, is := plain(text); is {
				t.Errorf("%q is read as %+v without PostgreSQL", text, got)
			}
		}
	})
}

func TestADurationThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.Every(t, func(t *testing.T, db *pgtest.DB) {
		conn := db.Connect(t)
		for text, want := range map[string]string{
			"30": "no unit", "-1 day": "negative", "1 mon -40 days": "negative", "30 days ago": "negative", "1 day -1 hour": "negative",
			"infinity": "", "soon": "not a duration", "1 fortnight": "not a duration", "P": "not a duration", "300000000 years": "not a duration",
			"'; drop table x": "not a duration",
		} {
			if _, problem, err := ReadInterval(t.Context(), conn, text); err != nil || problem == "" || !strings.Contains(problem, want) {
				t.Errorf("%q: got problem %q, error %v; want %q", text, problem, err, want)
			}
		}
		for text, want := range map[string]Interval{
			"30 days": {Days: 30}, "P30D": {Days: 30}, "1 mon": {Months: 1}, "00:05": {Microseconds: 5 * time.Minute.Microseconds()},
			"2 weeks": {Days: 14}, "P1Y2M3DT4H": {Months: 14, Days: 3, Microseconds: 4 * time.Hour.Microseconds()},
			"1.5 days": {Days: 1, Microseconds: 12 * time.Hour.Microseconds()}, "0 days": {},
		} {
			if got, problem, err := ReadInterval(t.Context(), conn, text); err != nil || problem != "" || got != want {
				t.Errorf("%q: got %+v, %q, %v; want %+v", text, got, problem, err, want)
			}
		}
	})
}
