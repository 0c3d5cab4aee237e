package policyfile

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lapse/internal/yamldoc"
	"lapse/planner/expiry"
)

// expire reads the entry's keys. planner/expiry checks what they mean together.
func (r *reading) expire(e yamldoc.Entry) {
	if value, ok := e.Value.Text(); ok {
		r.expireShorthand(e, value)
		return
	}
	what := r.what + ": expire"
	entries, ok := r.entries(e.Value, what)
	if !ok {
		return
	}
	before := r.Count()
	r.p.Expire = expiry.Entry{}
	r.expireKeys(entries, what, "")
	for _, problem := range expiry.Check(r.p.Expire) {
		switch at := "expire." + problem.Key; {
		case problem.Key == "" && r.Count() == before:
			r.Complain(e.At, "%s: %s", r.what, problem.Text)
		case problem.Key != "" && r.p.Expire[problem.Key] != "": // otherwise there is a complaint already
			r.Complain(r.p.Place(at), "%s: %s", what, problem.Text)
		}
	}
}

// expireKeys reads a mapping of expire's. In planner/expiry its keys begin with prefix.
func (r *reading) expireKeys(entries []yamldoc.Entry, what, prefix string) {
	keys := expireKeys(prefix)
	for _, e := range entries {
		key := prefix + e.Key
		r.p.places["expire."+key] = e.At
		if !r.known(e, what, keys) {
			continue
		}
		if e.Value.Kind() == yamldoc.Mapping && len(expireKeys(key+".")) > 0 {
			what := what + ": " + e.Key
			inner, _ := r.entries(e.Value, what)
			r.expireKeys(inner, what, key+".")
			continue
		}
		value, ok := r.expireValue(e, what, key)
		if ok {
			r.p.places["expire."+key] = e.Value.Place()
		}
		r.p.Expire[key] = value
	}
}

// expireKeys are the keys below a prefix: for "" column, bucket and the like, for "bucket." its own.
func expireKeys(prefix string) []string {
	var keys []string
	for _, key := range expiry.Keys() {
		if rest, below := strings.CutPrefix(key, prefix); below {
			key, _, _ = strings.Cut(rest, ".")
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// expireValue reads a text; of a duration also a whole number, which is seconds; of a flag only true.
func (r *reading) expireValue(e yamldoc.Entry, what, key string) (string, bool) {
	switch key {
	case "after", "ttl_default", "bucket.span":
		if n, ok := e.Value.Int(); ok {
			return strconv.FormatUint(n, 10), true
		}
	case "bucket":
		r.Complain(e.Value.Place(), "%s: bucket must be a mapping, as in bucket: {column: …, span: 1 hour}", what)
		return "", false
	}
	if isFlag(key) {
		if yes, ok := e.Value.Bool(); ok && yes {
			return "true", true
		}
		r.Complain(e.Value.Place(), "%s: %s can only be true: leave it out otherwise", what, e.Key)
		return "", false
	}
	return r.scalar(e, what)
}

// isFlag reports whether a key of expire can only be true.
func isFlag(key string) bool { return key == "iso8601" || key == "instant" }

// shorthand is Spanner's way to say when a row is due.
var shorthand = regexp.MustCompile(`(?i)^\s*interval\s+'([^']*)'\s+on\s+([a-z_][a-z0-9_$]*|"(?:[^"]|"")+")\s*$`)

func (r *reading) expireShorthand(e yamldoc.Entry, value string) {
	at := e.Value.Place()
	r.p.places["expire.column"], r.p.places["expire.after"] = at, at
	parts := shorthand.FindStringSubmatch(value)
	if parts == nil {
		r.Complain(at, `%s: expire must be {column: …, after: …} or "INTERVAL '30 days' ON column"`, r.what)
		return
	}
	after, problem := wholeDays(parts[1])
	if problem != "" {
		r.Complain(at, "%s: expire: %s: the short form takes whole days, months and years; use {column: …, after: …} for anything else", r.what, problem)
		return
	}
	column := strings.ToLower(parts[2])
	if strings.HasPrefix(parts[2], `"`) {
		column = strings.ReplaceAll(parts[2][1:len(parts[2])-1], `""`, `"`)
	}
	r.p.Expire = expiry.Entry{"column": column, "after": after}
}

// amount is one part of Spanner's interval, with the sign before it.
var amount = regexp.MustCompile(`(?i)^\s*([+-]?)\s*(\d{1,9})\s*(year|mon|month|week|day|hour|minute|min|second|sec)s?(?:\s+|$|\b)`)

// wholeDays adds up the parts of Spanner's interval. Parts may be subtracted, as long as whole days remain and nothing is negative:
// '4 DAYS 2 MINUTES - 2 MINUTES' is 4 days. It converts neither months to days nor hours to days. It writes the sum anew, because PostgreSQL
// reads no sign that a space follows.
func wholeDays(text string) (after, problem string) {
	sums := map[string]int64{}
	rest := text
	for strings.TrimSpace(rest) != "" {
		parts := amount.FindStringSubmatch(rest)
		if parts == nil {
			return "", yamldoc.Quote(text) + " cannot be read"
		}
		rest = rest[len(parts[0]):]
		n, _ := strconv.ParseInt(parts[1]+parts[2], 10, 64)
		unit := strings.ToLower(parts[3])
		of := map[string]struct {
			base   string
			factor int64
		}{
			"year": {"month", 12}, "mon": {"month", 1}, "month": {"month", 1}, "week": {"day", 7}, "day": {"day", 1},
			"hour": {"second", 3600}, "minute": {"second", 60}, "min": {"second", 60}, "second": {"second", 1}, "sec": {"second", 1},
		}[unit]
		sums[of.base] += n * of.factor
	}
	switch {
	case len(sums) == 0:
		return "", "the interval is empty"
	case slices.Min(slices.Collect(maps.Values(sums))) < 0:
		return "", yamldoc.Quote(text) + " is negative"
	case sums["second"] != 0:
		return "", yamldoc.Quote(text) + " is not a whole number of days"
	}
	if sums["month"] == 0 {
		return fmt.Sprintf("%d days", sums["day"]), ""
	}
	return fmt.Sprintf("%d mons %d days", sums["month"], sums["day"]), ""
}
