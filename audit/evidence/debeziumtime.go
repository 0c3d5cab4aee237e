package evidence

import (
	"bytes"
	"math"
	"time"
)

// What Debezium writes for the instants and days that never come.
const (
	infiniteDay         = 2146033979
	negativeInfiniteDay = -2147472691
)

const (
	microsPerSecond = 1_000_000
	microsPerMinute = 60 * microsPerSecond
	microsPerHour   = 60 * microsPerMinute
	microsPerDay    = 24 * microsPerHour
	minYear         = -10_000
	maxYear         = 294_000 // from 294247 on 64 bits are too few for microseconds
	millisDigits    = 3       // most digits of a fraction in milliseconds
	microsDigits    = 6
)

// reader reads text from its beginning.
type reader struct{ rest []byte }

func (r *reader) skip(c byte) bool {
	if len(r.rest) == 0 || r.rest[0] != c {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

// digits passes over digits and returns how many there are.
func (r *reader) digits() (n int) {
	for n < len(r.rest) && r.rest[n] >= '0' && r.rest[n] <= '9' {
		n++
	}
	r.rest = r.rest[n:]
	return n
}

// number reads digits, at least one and at most ten of them.
func (r *reader) number() (n int64, ok bool) {
	text := r.rest
	count := r.digits()
	if count == 0 || count > 10 {
		return 0, false
	}
	for _, c := range text[:count] {
		n = 10*n + int64(c-'0')
	}
	return n, true
}

// numbers reads numbers with separators between them.
func (r *reader) numbers(separator byte, into ...*int64) bool {
	for i, n := range into {
		if i > 0 && !r.skip(separator) {
			return false
		}
		var ok bool
		if *n, ok = r.number(); !ok {
			return false
		}
	}
	return true
}

// fraction reads a fraction of a second, if there is one, as microseconds.
func (r *reader) fraction() (micros int64, ok bool) {
	if !r.skip('.') {
		return 0, true
	}
	text := r.rest
	count := r.digits()
	if count == 0 || count > microsDigits {
		return 0, false
	}
	for i := range microsDigits {
		micros *= 10
		if i < count {
			micros += int64(text[i] - '0')
		}
	}
	return micros, true
}

// timeOfDay reads hours, minutes and seconds, as microseconds.
func (r *reader) timeOfDay() (micros int64, ok bool) {
	var hours, minutes, seconds int64
	if !r.numbers(':', &hours, &minutes, &seconds) || minutes > 59 || seconds > 60 {
		return 0, false
	}
	micros, ok = r.fraction()
	return ((hours*60+minutes)*60+seconds)*microsPerSecond + micros, ok
}

// moment is a date and a time of day. Years are counted as astronomers do: 0 is 1 BC.
type moment struct{ year, month, day, micros int64 }

// moment reads all of a date, with a time of day and then a zone, which is UTC, where those are wanted.
func (r *reader) moment(timed, zoned bool) (m moment, ok bool) {
	if ok = r.numbers('-', &m.year, &m.month, &m.day); ok && timed {
		if ok = r.skip(' '); ok {
			m.micros, ok = r.timeOfDay()
		}
	}
	if ok && zoned {
		ok = r.skip('+') && r.skip('0') && r.skip('0')
	}
	if string(r.rest) == " BC" {
		m.year, r.rest = 1-m.year, nil
	}
	return m, ok && len(r.rest) == 0 && m.month >= 1 && m.month <= 12 && m.day >= 1 && m.day <= 31
}

// seconds is the beginning of the day, since 1970.
func (m *moment) seconds() int64 {
	return time.Date(int(m.year), time.Month(m.month), int(m.day), 0, 0, 0, 0, time.UTC).Unix()
}

// The functions below append a value as typedValues says; ok is false if text is of another form.

func appendDate(dst, text []byte) ([]byte, bool) {
	switch string(text) {
	case "infinity":
		return appendInt(dst, infiniteDay), true
	case "-infinity":
		return appendInt(dst, negativeInfiniteDay), true
	}
	r := reader{rest: text}
	m, ok := r.moment(false, false)
	if !ok {
		return dst, false
	}
	return appendInt(dst, m.seconds()/(microsPerDay/microsPerSecond)), true
}

func appendTimeOfDay(dst, text []byte, mod int32) ([]byte, bool) {
	r := reader{rest: text}
	micros, ok := r.timeOfDay()
	if !ok || len(r.rest) > 0 {
		return dst, false
	}
	return appendScaled(dst, micros, mod), true
}

// appendScaled writes microseconds, or milliseconds where the precision has no more.
func appendScaled(dst []byte, micros int64, mod int32) []byte {
	if mod >= 0 && mod <= millisDigits {
		return appendInt(dst, micros/1000)
	}
	return appendInt(dst, micros)
}

func appendTimestamp(dst, text []byte, mod int32) ([]byte, bool) {
	switch string(text) {
	case "infinity":
		return appendInt(dst, math.MaxInt64), true
	case "-infinity":
		return appendInt(dst, math.MinInt64), true
	}
	r := reader{rest: text}
	m, ok := r.moment(true, false)
	if !ok || m.year < minYear || m.year > maxYear {
		return dst, false
	}
	seconds := m.seconds()
	return appendScaled(dst, seconds*microsPerSecond+m.micros, mod), true
}

func appendZonedInstant(dst, text []byte, mod int32) ([]byte, bool) {
	r := reader{rest: text}
	m, ok := r.moment(true, true)
	if !ok {
		return dst, false // infinity too
	}
	dst = append(dst, '"')
	switch {
	case m.year < 0:
		m.year = -m.year
		dst = append(dst, '-')
	case m.year > 9999:
		dst = append(dst, '+')
	}
	dst = appendPadded(dst, m.year, 4)
	dst = appendPadded(append(dst, '-'), m.month, 2)
	dst = appendClock(append(appendPadded(append(dst, '-'), m.day, 2), 'T'), m.micros)
	digits := int(mod)
	if digits < 0 || digits > microsDigits {
		digits = microsDigits
	}
	if digits > 0 {
		fraction := m.micros % microsPerSecond
		for range microsDigits - digits {
			fraction /= 10
		}
		dst = appendPadded(append(dst, '.'), fraction, digits)
	}
	return append(dst, 'Z', '"'), true
}

func appendZonedTime(dst, text []byte) ([]byte, bool) {
	r := reader{rest: text}
	micros, ok := r.timeOfDay()
	sign := int64(-1)
	if r.skip('-') {
		sign = 1
	} else if !r.skip('+') {
		return dst, false
	}
	var parts [3]int64
	for i := range parts {
		if i > 0 && !r.skip(':') {
			break
		}
		if n, read := r.number(); read {
			parts[i] = n
		} else {
			ok = false
		}
	}
	if !ok || len(r.rest) > 0 || parts[0] > 15 || parts[1] > 59 || parts[2] > 59 {
		return dst, false
	}
	micros += sign * ((parts[0]*60+parts[1])*60 + parts[2]) * microsPerSecond
	micros = (micros%microsPerDay + microsPerDay) % microsPerDay
	dst = appendClock(append(dst, '"'), micros)
	return append(appendFraction(dst, micros%microsPerSecond), 'Z', '"'), true
}

// appendClock writes hours, minutes and seconds.
func appendClock(dst []byte, micros int64) []byte {
	seconds := micros / microsPerSecond
	dst = appendPadded(dst, seconds/3600, 2)
	dst = appendPadded(append(dst, ':'), seconds/60%60, 2)
	return appendPadded(append(dst, ':'), seconds%60, 2)
}

// appendFraction writes a fraction of a second without zeros at its end.
func appendFraction(dst []byte, micros int64) []byte {
	if micros == 0 {
		return dst
	}
	return bytes.TrimRight(appendPadded(append(dst, '.'), micros, microsDigits), "0")
}

// appendPadded writes n with leading zeros.
func appendPadded(dst []byte, n int64, digits int) []byte {
	least := int64(1)
	for range digits - 1 {
		least *= 10
	}
	for ; n < least && least > 1; least /= 10 {
		dst = append(dst, '0')
	}
	return appendInt(dst, n)
}

// appendInterval reads what intervalstyle postgres writes: "1 year 2 mons -3 days 04:05:06.789".
func appendInterval(dst, text []byte) ([]byte, bool) {
	var years, months, days, micros int64
	units := map[string]*int64{
		"year": &years, "years": &years, "mon": &months, "mons": &months, "day": &days, "days": &days,
	}
	var unit *int64
	words := bytes.Split(text, []byte(" "))
	for len(words) > 0 {
		r := reader{rest: words[0]}
		sign := int64(1)
		if r.skip('-') {
			sign = -1
		} else {
			r.skip('+')
		}
		var n int64
		var ok bool
		if len(words) == 1 {
			unit, words = &micros, nil
			n, ok = r.timeOfDay()
		} else {
			unit, words = units[string(words[1])], words[2:]
			n, ok = r.number()
		}
		if !ok || unit == nil || len(r.rest) > 0 {
			return dst, false
		}
		*unit = sign * n
	}
	if unit == nil {
		return dst, false
	}
	dst = append(appendInt(append(dst, `"P`...), years), 'Y')
	dst = append(appendInt(dst, months), 'M')
	dst = append(appendInt(dst, days), 'D', 'T')
	dst = append(appendInt(dst, micros/microsPerHour), 'H')
	dst = append(appendInt(dst, micros/microsPerMinute%60), 'M')
	micros %= microsPerMinute
	if micros < 0 {
		dst, micros = append(dst, '-'), -micros
	}
	dst = appendFraction(appendInt(dst, micros/microsPerSecond), micros%microsPerSecond)
	return append(dst, 'S', '"'), true
}
