package planner

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"lapse/planner/expiry"
)

// A second opinion on when a row is due, in Go and apart from the product's SQL. Instants are microseconds since 1970, in the
// proleptic Gregorian calendar of PostgreSQL and of package time.

// never is later than every cutoff.
const never = math.MaxInt64

// firstSecond is the first of year 4713 BC.
const firstSecond = -210_863_520_000

// plus adds an interval as PostgreSQL does in UTC: months to the month's last day at most, then days, then the rest.
func plus(at int64, i expiry.Interval) int64 {
	if at == never {
		return never
	}
	t := time.UnixMicro(at).UTC()
	year, month, day := t.Date()
	clock := at - time.Date(year, month, day, 0, 0, 0, 0, time.UTC).UnixMicro()
	for n := i.Months; n > 0; n-- {
		if month++; month > time.December {
			year, month = year+1, time.January
		}
	}
	day = min(day, daysIn(year, month))
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC).UnixMicro() + clock + int64(i.Days)*86_400_000_000 + i.Microseconds
}

func daysIn(year int, month time.Month) int {
	switch month {
	case time.April, time.June, time.September, time.November:
		return 30
	case time.February:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	default:
		return 31
	}
}

// unixTime is the instant of a number of seconds or milliseconds that is kept in a column of this type, "jsonb" for one in a
// document. number is as SQL and JSON write it.
func unixTime(number, unit string, of expiry.ColumnType) int64 {
	if of == "real" || of == "double precision" {
		return unixFloat(number, unit, of)
	}
	x, isNumber := new(big.Rat).SetString(number)
	perSecond := int64(1)
	if unit == "ms" {
		perSecond = 1000
	}
	edge := new(big.Rat).SetInt64(firstSecond * perSecond)
	if !isNumber || x.Cmp(edge) < 0 || x.Cmp(new(big.Rat).Neg(edge)) > 0 {
		return never
	}
	x.Quo(x, new(big.Rat).SetInt64(perSecond))
	if unit == "ms" {
		seconds := new(big.Int)
		seconds.Div(x.Num(), x.Denom()) // Euclid's: down, for a divisor above zero
		return seconds.Int64() * 1_000_000
	}
	if x.IsInt() {
		return x.Num().Int64() * 1_000_000
	}
	rounded, _ := new(big.Rat).SetString(x.FloatString(6)) // half away from zero, as numeric's round
	f, _ := rounded.Float64()
	return toTimestamp(f)
}

// toTimestamp is PostgreSQL's function of that name.
func toTimestamp(seconds float64) int64 {
	const since2000 = 946_684_800
	return int64(math.RoundToEven((seconds-since2000)*1e6)) + since2000*1_000_000
}

func unixFloat(number, unit string, of expiry.ColumnType) int64 {
	bits := 64
	if of == "real" {
		bits = 32
	}
	f, err := strconv.ParseFloat(number, bits)
	if err != nil {
		return never
	}
	perSecond := 1.0
	if unit == "ms" {
		perSecond = 1000
	}
	if !(f >= firstSecond*perSecond && f <= 9e12*perSecond) {
		return never
	}
	if unit == "ms" {
		return int64(math.Floor(math.Floor(f)/1000)) * 1_000_000
	}
	return toTimestamp(f)
}

// isoTime is the instant of a text in one of the forms that are read, in microseconds, what is between two of them being the later one; or never.
// It reads byte by byte.
func isoTime(text string) int64 {
	if len(text) < 10 {
		return never
	}
	date, rest := text[:10], text[10:]
	y, m, d := digits(date, 0, 4), digits(date, 5, 2), digits(date, 8, 2)
	if date[4] != '-' || date[7] != '-' || y < 1 || m < 1 || m > 12 || d < 1 || d > daysIn(y, time.Month(m)) {
		return never
	}
	at := time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC).UnixMicro()
	if rest == "" {
		return at
	}
	clock := rest[1:]
	hour, minute := digits(clock, 0, 2), digits(clock, 3, 2)
	if rest[0] != 'T' && rest[0] != ' ' || len(clock) < 5 || clock[2] != ':' || hour < 0 || hour > 23 || minute < 0 || minute > 59 {
		return never
	}
	at, rest = at+int64(hour*3600+minute*60)*1_000_000, clock[5:]
	if strings.HasPrefix(rest, ":") {
		second := digits(rest, 1, 2)
		if second < 0 || second > 59 {
			return never
		}
		at, rest = at+int64(second)*1_000_000, rest[3:]
		if strings.HasPrefix(rest, ".") {
			n := 0
			for n+1 < len(rest) && rest[n+1] >= '0' && rest[n+1] <= '9' {
				n++
			}
			if n == 0 || n > 9 {
				return never
			}
			nanoseconds := digits(rest[1:n+1]+strings.Repeat("0", 9-n), 0, 9)
			at, rest = at+int64(nanoseconds+999)/1000, rest[n+1:]
		}
	}
	ahead := isoOffset(rest)
	if ahead == never {
		return never
	}
	return at - ahead
}

// isoOffset is the offset from UTC that ends a date, in microseconds, or never.
func isoOffset(text string) int64 {
	switch {
	case text == "" || text == "Z":
		return 0
	case text[0] != '+' && text[0] != '-' || len(text) == 6 && text[3] != ':':
		return never
	}
	hour, minute := digits(text, 1, 2), 0
	switch len(text) {
	case 3:
	case 5, 6:
		minute = digits(text, len(text)-2, 2)
	default:
		return never
	}
	if hour < 0 || hour > 23 || minute < 0 || minute > 59 {
		return never
	}
	ahead := int64(hour*3600+minute*60) * 1_000_000
	if text[0] == '-' {
		return -ahead
	}
	return ahead
}

// digits is the number that is in n bytes of a text from one on, -1 if they are not all digits.
func digits(text string, from, n int) (number int) {
	if len(text) < from+n {
		return -1
	}
	for _, c := range []byte(text[from : from+n]) {
		if c < '0' || c > '9' {
			return -1
		}
		number = number*10 + int(c-'0')
	}
	return number
}
