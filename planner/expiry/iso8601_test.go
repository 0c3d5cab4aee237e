package expiry

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// written is what programs make of an instant, by their own documentation; what PostgreSQL writes is also asked of the server.
var written = []struct{ by, text, means string }{
	{"Python: datetime.isoformat()", "2019-05-27T21:20:00.123456+00:00", "2019-05-27T21:20:00.123456Z"},
	{"Python: str(datetime)", "2019-05-27 21:20:00.123456+05:30", "2019-05-27T15:50:00.123456Z"},
	{"Python: str(datetime) without a zone", "2019-05-27 21:20:00", "2019-05-27T21:20:00Z"},
	{"Python: strftime %z", "2019-05-27T21:20:00-0330", "2019-05-28T00:50:00Z"},
	{"Django: DjangoJSONEncoder", "2019-05-27T21:20:00.123Z", "2019-05-27T21:20:00.123Z"},
	{"Go: time.RFC3339Nano", "2019-05-27T21:20:00.123456789Z", "2019-05-27T21:20:00.123457Z"},
	{"Go: time.RFC3339Nano, zeros left out", "2019-05-27T21:20:00.1+02:00", "2019-05-27T19:20:00.1Z"},
	{"Go: time.DateTime", "2019-05-27 21:20:00", "2019-05-27T21:20:00Z"},
	{"Java: Instant", "2019-05-27T21:20:00.123456789Z", "2019-05-27T21:20:00.123457Z"},
	{"Java: Instant, in milliseconds", "2019-05-27T21:20:00.120Z", "2019-05-27T21:20:00.12Z"},
	{"Java: OffsetDateTime on the minute", "2019-05-27T21:20+01:30", "2019-05-27T19:50:00Z"},
	{"Java: LocalDateTime on the minute", "2019-05-27T21:20", "2019-05-27T21:20:00Z"},
	{"Java: Timestamp", "2019-05-27 21:20:00.5", "2019-05-27T21:20:00.5Z"},
	{"JavaScript: toISOString", "2019-05-27T21:20:00.000Z", "2019-05-27T21:20:00Z"},
	{".NET: o", "2019-05-27T21:20:00.1234567+02:00", "2019-05-27T19:20:00.123457Z"},
	{"PostgreSQL: timestamptz", "2019-05-27 21:20:00.123456+00", "2019-05-27T21:20:00.123456Z"},
	{"PostgreSQL: timestamptz in India", "2019-05-27 21:20:00+05:30", "2019-05-27T15:50:00Z"},
	{"PostgreSQL: to_jsonb(timestamptz)", "2019-05-27T21:20:00.12+00:00", "2019-05-27T21:20:00.12Z"},
	{"PostgreSQL: to_jsonb(timestamp)", "2019-05-27T21:20:00.123456", "2019-05-27T21:20:00.123456Z"},
	{"the last nanosecond of a year", "2019-12-31T23:59:59.999999999Z", "2020-01-01T00:00:00Z"},
}

// readISO is the instants of texts as the kind reads them, nil for what is none.
func readISO(ctx context.Context, db Querier, texts ...string) (instants []*time.Time, err error) {
	k := &ISO8601{Value: Value{Column: "v", Type: "text"}}
	rows, err := db.Query(ctx, `select case when `+isoReads(inC(k.raw("t.")))+` then `+k.Instant()+` end, `+UnreadOf(k).Condition+` from unnest($1::text[]) with ordinality t(v, n) order by n`, texts)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var at *time.Time
		var unread bool
		if err := rows.Scan(&at, &unread); err != nil {
			return nil, err
		}
		if unread != (at == nil) {
			return nil, fmt.Errorf("%q is read: %t, and called unread: %t", texts[len(instants)], at != nil, unread)
		}
		instants = append(instants, at)
	}
	return instants, rows.Err()
}

func TestADateIsReadAsTheProgramThatWroteItMeantIt(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := db.Connect(t)
		for _, w := range written {
			got, err := readISO(t.Context(), conn, w.text)
			must(t, err)
			if got[0] == nil || got[0].UTC().Format(time.RFC3339Nano) != w.means {
				t.Errorf("%s: %s is read as %v, want %s", w.by, w.text, got[0], w.means)
			}
		}
		// What this server itself writes, in whatever zone.
		must(t, run(conn, "set datestyle = ISO"))
		for _, zone := range []string{"UTC", "Asia/Kathmandu", "America/St_Johns", "Pacific/Apia"} {
			must(t, run(conn, "set timezone = "+schemas.Literal(zone)))
			for _, as := range []string{"clock_timestamp()::text", "to_jsonb(clock_timestamp()) #>> '{}'", "date_trunc('second', clock_timestamp())::text", "to_jsonb(date_trunc('day', clock_timestamp())) #>> '{}'"} {
				text := valueOn[string](t, conn, "select "+as)
				got, err := readISO(t.Context(), conn, text)
				must(t, err)
				if want := valueOn[time.Time](t, conn, "select "+schemas.Literal(text)+"::timestamptz"); got[0] == nil || !got[0].Equal(want) {
					t.Errorf("%s in %s: %s is read as %v", as, zone, text, got[0])
				}
			}
		}
	})
}

var beyondMicroseconds = regexp.MustCompile(`[.][0-9]{6}[0-9]*[1-9]`)

// Whatever the kind takes for a date PostgreSQL's own parser takes for the same instant, but for what is between two microseconds: that is the
// later one here, so that nothing is due before its time.
func TestPostgresReadsADateAsTheKindDoes(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := db.Connect(t)
		must(t, run(conn, "set timezone = 'UTC'"))
		read := 0
		digit := rapid.StringMatching(`[0-9]`)
		rapid.Check(t, func(rt *rapid.T) {
			var texts []string
			for range 40 {
				text := rapid.StringMatching(`(19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?)?`).Draw(rt, "text")
				if len(text) > 10 && rapid.IntRange(0, 3).Draw(rt, "spoil") == 0 {
					at := rapid.IntRange(10, len(text)-1).Draw(rt, "at")
					text = text[:at] + rapid.OneOf(digit, rapid.SampledFrom([]string{"", "-", "+", ":", ".", ",", " ", "T", "Z", "z", "UTC"})).Draw(rt, "with") + text[at+1:]
				}
				texts = append(texts, text)
			}
			got, err := readISO(context.Background(), conn, texts...)
			if err != nil {
				rt.Fatal(err)
			}
			for i, text := range texts {
				if got[i] == nil {
					continue
				}
				read++
				var own time.Time
				if err := conn.QueryRow(context.Background(), `select $1::text::timestamptz`, text).Scan(&own); err != nil {
					if !strings.Contains(err.Error(), "displacement out of range") { // it ends at 15:59
						rt.Fatalf("%s is read as %s, and PostgreSQL: %v", text, got[i], err)
					}
					continue
				}
				if later := got[i].Sub(own); later != 0 && later != time.Microsecond {
					rt.Fatalf("%s is read as %s, and PostgreSQL reads %s", text, got[i], own)
				}
				if !beyondMicroseconds.MatchString(text) && !got[i].Equal(own) {
					rt.Fatalf("%s is read as %s, and PostgreSQL reads %s", text, got[i], own)
				}
			}
		})
		if read < 1000 {
			t.Errorf("only %d texts were read", read)
		}
	})
}
