package expiry

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"lapse/schemas"
)

// Interval is a PostgreSQL interval, in the three parts that PostgreSQL keeps. None of them is negative: a policy never
// looks ahead. A day is 24 hours, because due times are counted in UTC; only months depend on the calendar.
type Interval struct {
	Months       int32
	Days         int32
	Microseconds int64
}

// String writes the interval as PostgreSQL does under intervalstyle postgres: "1 year 2 mons 3 days 04:05:06.7".
func (i Interval) String() string {
	var parts []string
	for _, p := range []struct {
		n    int32
		unit string
	}{{i.Months / 12, "year"}, {i.Months % 12, "mon"}, {i.Days, "day"}} {
		switch p.n {
		case 0:
		case 1:
			parts = append(parts, "1 "+p.unit)
		default:
			parts = append(parts, fmt.Sprintf("%d %ss", p.n, p.unit))
		}
	}
	if i.Microseconds != 0 || len(parts) == 0 {
		seconds := i.Microseconds / 1e6
		text := fmt.Sprintf("%02d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
		if fraction := i.Microseconds % 1e6; fraction != 0 {
			text += strings.TrimRight(fmt.Sprintf(".%06d", fraction), "0")
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

// MarshalText writes the interval into JSON as a text.
func (i Interval) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

var intervalPattern = regexp.MustCompile(`^(?:(\d+) years? ?)?(?:(\d+) mons? ?)?(?:(\d+) days? ?)?(?:(\d{2,}):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?$`)

// UnmarshalText reads what MarshalText wrote, and no other spelling.
func (i *Interval) UnmarshalText(text []byte) error {
	parts := intervalPattern.FindStringSubmatch(string(text))
	if parts == nil {
		return fmt.Errorf("%q is not a duration as PostgreSQL writes it", text)
	}
	parts[7] += strings.Repeat("0", 6-len(parts[7]))
	var n [8]int64
	for at, part := range parts[1:] {
		if part == "" {
			continue
		}
		var err error
		if n[at+1], err = strconv.ParseInt(part, 10, 64); err != nil {
			return fmt.Errorf("%q is out of range: %w", text, err)
		}
	}
	read := Interval{Months: int32(n[1]*12 + n[2]), Days: int32(n[3]), Microseconds: (n[4]*3600+n[5]*60+n[6])*1e6 + n[7]}
	if read.String() != string(text) {
		return fmt.Errorf("%q is not a duration as PostgreSQL writes it", text)
	}
	*i = read
	return nil
}

// Exact is the part whose length does not depend on the calendar, in microseconds.
func (i Interval) Exact() int64 { return int64(i.Days)*24*time.Hour.Microseconds() + i.Microseconds }

// MayBeShorter reports whether i is shorter than other from some instant. It returns false only if that is certain on every calendar, by
// comparing months, and the rest, each by itself. So it returns true for "31 days" and "1 mon", although 31 days are never shorter.
func (i Interval) MayBeShorter(other Interval) bool {
	return i.Months < other.Months || i.Exact() < other.Exact()
}

// IsZero reports whether the interval is no time at all.
func (i Interval) IsZero() bool { return i == Interval{} }

// After returns t + i in UTC, as PostgreSQL adds: months first, to the month's last day if it is shorter.
func (i Interval) After(t time.Time) time.Time {
	t = t.UTC()
	if i.Months != 0 {
		year, month, day := t.Date()
		first := time.Date(year, month+time.Month(i.Months), 1, 0, 0, 0, 0, time.UTC)
		last := first.AddDate(0, 1, -1).Day()
		t = first.AddDate(0, 0, min(day, last)-1).Add(t.Sub(time.Date(year, month, day, 0, 0, 0, 0, time.UTC)))
	}
	return t.AddDate(0, 0, int(i.Days)).Add(time.Duration(i.Microseconds) * time.Microsecond)
}

// before is SQL for an upper bound of all instants x with x + i <= instant; instant is SQL too. It subtracts days and hours exactly, months
// with some days of slack.
func (i Interval) before(instant string) string {
	if exact := (Interval{Days: i.Days, Microseconds: i.Microseconds}); !exact.IsZero() || i.Months == 0 {
		instant += " - interval " + schemas.Literal(exact.String())
	}
	if months := (Interval{Months: i.Months}); !months.IsZero() {
		instant += " - interval " + schemas.Literal(months.String()) + " + interval " + schemas.Literal(calendarSlack)
	}
	return instant
}

// beforeTheCalendar is the problem of an entry whose time cannot be subtracted from now.
func beforeTheCalendar(after Interval) Problem {
	return Problem{"after", fmt.Sprintf("%s before now is before the first instant that PostgreSQL knows", after)}
}

// intervalOf refuses negative durations.
func intervalOf(v pgtype.Interval) (Interval, error) {
	if v.Months < 0 || v.Days < 0 || v.Microseconds < 0 {
		return Interval{}, errors.New("a duration must not be negative, nor any part of it")
	}
	return Interval{Months: v.Months, Days: v.Days, Microseconds: v.Microseconds}, nil
}

var wholeNumber = regexp.MustCompile(`^[0-9]+$`)

// readPeriod reads a duration of an entry. A whole number is one of seconds, as in GDN and pg_ttl_index; so PostgreSQL reads it
// too.
func readPeriod(ctx context.Context, db DB, text string) (i Interval, problem string, err error) {
	if wholeNumber.MatchString(text) {
		text += " seconds"
	}
	return ReadInterval(ctx, db, text)
}

// readAfter reads an entry's "after": no time at all if there is none.
func readAfter(ctx context.Context, db DB, e Entry) (after Interval, problems []Problem, err error) {
	text, there := e["after"]
	if !there {
		return after, nil, nil
	}
	after, problem, err := readPeriod(ctx, db, text)
	if problem != "" {
		problems = []Problem{{"after", problem}}
	}
	return after, problems, err
}

// plainInterval is how most people write a duration: one number of one unit.
var plainInterval = regexp.MustCompile(`^([0-9]{1,6}) (second|minute|hour|day|week|month|year)s?$`)

// plain reads such a duration as PostgreSQL does.
func plain(text string) (i Interval, is bool) {
	parts := plainInterval.FindStringSubmatch(text)
	if parts == nil {
		return i, false
	}
	n, _ := strconv.ParseInt(parts[1], 10, 32) // six digits always are a number
	switch parts[2] {
	case "second":
		i.Microseconds = n * time.Second.Microseconds()
	case "minute":
		i.Microseconds = n * time.Minute.Microseconds()
	case "hour":
		i.Microseconds = n * time.Hour.Microseconds()
	case "day":
		i.Days = int32(n)
	case "week":
		i.Days = int32(7 * n)
	case "month":
		i.Months = int32(n)
	case "year":
		i.Months = int32(12 * n)
	}
	return i, true
}

// ReadInterval reads a duration as PostgreSQL does, which it asks unless the text is plain. A text that PostgreSQL cannot read is a problem for the
// person who wrote it; any other failure is an error.
func ReadInterval(ctx context.Context, db DB, text string) (i Interval, problem string, err error) {
	if strings.Trim(text, "+-.0123456789 \t") == "" {
		return i, fmt.Sprintf("%q has no unit: write for instance %q", text, strings.TrimSpace(text)+" days"), nil
	}
	if i, is := plain(text); is {
		return i, "", nil
	}
	err = Attempt(ctx, db, func(tx pgx.Tx) error {
		var v pgtype.Interval // null has no end
		if err := tx.QueryRow(ctx, `select case when isfinite(i) then i end from (select $1::text::interval) s(i)`, text).Scan(&v); err != nil {
			return err
		}
		if !v.Valid {
			problem = fmt.Sprintf("%q has no end", text)
			return nil
		}
		var refusal error
		if i, refusal = intervalOf(v); refusal != nil {
			problem = fmt.Sprintf("%q: %v", text, refusal)
		}
		return nil
	})
	if IsDataException(err) {
		return i, fmt.Sprintf("%q is not a duration that PostgreSQL reads: write for instance \"30 days\", \"1 mon\", \"00:05\" or \"P30D\"", text), nil
	}
	if err != nil {
		return i, "", fmt.Errorf("read a duration: %w", err)
	}
	return i, problem, nil
}
