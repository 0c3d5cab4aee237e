package policyfile

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lapse/internal/yamldoc"
	"lapse/planner/schedule"
	"lapse/schemas"
)

// reading reads one policy. Its document collects the problems of that policy.
type reading struct {
	*document
	p    *Policy
	what string // the policy, for a person
}

// read reads one key.
func (r *reading) read(e yamldoc.Entry) {
	for _, k := range keys() {
		if k.name == e.Key {
			k.read(r, e)
		}
	}
}

// check checks the keys together.
func (r *reading) check() {
	p := r.p
	for _, required := range []string{"name", "table", "expire"} {
		if _, there := p.places[required]; !there {
			r.Complain(p.places[""], "%s needs %s", r.what, required)
		}
	}
	var when []string
	for _, key := range []string{"every", "daily", "cron"} {
		if _, there := p.places[key]; there {
			when = append(when, key)
		}
	}
	if len(when) > 1 {
		r.Complain(p.Place(when[len(when)-1]), "%s: %s exclude each other", r.what, strings.Join(when, " and "))
	}
	if len(when) == 0 {
		p.Every = DefaultEvery
	}
	if _, there := p.places["batch"]; !there {
		p.Batch = p.usualBatch()
	}
	never, err := schedule.Schedule{Daily: p.Daily, Cron: p.Cron, Window: p.Window}.NeverOpen()
	if err == nil && never && len(when) == 1 {
		r.Complain(p.Place("window"), "%s: window: it is never open at the time that %s says: change one of them", r.what, when[0])
	}
}

func (r *reading) complain(e yamldoc.Entry, format string, args ...any) {
	r.Complain(e.Value.Place(), "%s: %s: %s", r.what, e.Key, fmt.Sprintf(format, args...))
}

// value returns a text, and records its place for later complaints.
func (r *reading) value(e yamldoc.Entry) (string, bool) {
	value, ok := r.scalar(e, r.what)
	if ok {
		r.p.places[e.Key] = e.Value.Place()
	}
	return value, ok
}

func (r *reading) name(e yamldoc.Entry) {
	value, ok := r.value(e)
	if ok && !namePattern.MatchString(value) {
		r.Complain(e.Value.Place(), "%s is no name for a policy: up to 63 of a-z, 0-9, _, . and -, beginning with a letter or digit", yamldoc.Quote(value))
	}
	r.p.Name = schemas.PolicyName(value)
}

func (r *reading) state(e yamldoc.Entry) {
	if value, ok := r.value(e); ok && r.oneOf(e, r.what, value, states) {
		r.p.State = schemas.State(value)
	}
}

// percentPattern is a share of the table above 0% and not above 100%, as in the schema.
var percentPattern = regexp.MustCompile(`^(100(\.0+)?|[1-9][0-9]?(\.[0-9]+)?|0\.0{0,5}[1-9][0-9]*) ?%$`)

// percent reads a share above 0 % and not above 100 %, in percent.
func percent(text string) (share float64, ok bool) {
	found := percentPattern.FindStringSubmatch(text)
	if found == nil {
		return 0, false
	}
	share, _ = strconv.ParseFloat(found[1], 64) // the pattern has no other numbers
	return share, true
}

// pace reads a word, or a share of the time. Gentle, the default, is kept as "".
func (r *reading) pace(e yamldoc.Entry) {
	const gentle = "gentle"
	value, ok := r.value(e)
	if !ok {
		return
	}
	switch share, ok := percent(value); {
	case ok:
		r.p.Limits.Pace = strconv.FormatFloat(share, 'f', -1, 64) + "%"
	case value == PaceUnlimited:
		r.p.Limits.Pace = value
	case value != gentle:
		r.complain(e, "it must be %s, %s, or a share of the time above 0%% and not above 100%%: 20%%", gentle, PaceUnlimited)
	}
}

// maxRows reads a number of rows, or a share of the table.
func (r *reading) maxRows(e yamldoc.Entry) {
	r.p.places[e.Key] = e.Value.Place()
	if n, ok := e.Value.Int(); ok && n >= 1 && n <= MaxRowsPerRun {
		r.p.Limits.MaxRows = int64(n)
		return
	}
	if text, ok := e.Value.Text(); ok {
		if share, ok := percent(text); ok {
			r.p.Limits.MaxPercent = share
			return
		}
	}
	r.complain(e, "it must be a whole number of rows from 1 to %d, or a share of the table above 0%% and not above 100%%: 1%%", MaxRowsPerRun)
}

func (r *reading) maxFraction(e yamldoc.Entry) {
	r.p.places[e.Key] = e.Value.Place()
	n, ok := e.Value.Float()
	if !ok || !(n > 0 && n <= 1) {
		r.complain(e, "it must be a number above 0 and not above 1: 0.2 is a fifth of the table")
		return
	}
	r.p.Limits.MaxFraction = n
}

// mapping reads a value that is a mapping of these keys, or complains.
func (r *reading) mapping(e yamldoc.Entry, keys ...string) (found map[string]yamldoc.Entry, ok bool) {
	what := r.what + ": " + e.Key
	before := r.Count()
	entries, ok := r.entries(e.Value, what)
	found = map[string]yamldoc.Entry{}
	for _, inner := range entries {
		r.p.places[e.Key+"."+inner.Key] = inner.Value.Place()
		if r.known(inner, what, keys) {
			found[inner.Key] = inner
		}
	}
	return found, ok && r.Count() == before
}

func (r *reading) action(e yamldoc.Entry) {
	const how = `write action: {soft: {column: deleted_at}}`
	if e.Value.Kind() != yamldoc.Mapping {
		value, ok := r.value(e)
		switch {
		case !ok:
		case value == ActionSoft:
			r.complain(e, "soft needs the column that it sets: %s", how)
		case r.oneOf(e, r.what, value, actions) && value != ActionDelete:
			r.p.Action.Kind = value
		}
		return
	}
	r.p.places[e.Key] = e.Value.Place()
	outer, ok := r.mapping(e, ActionSoft)
	soft, there := outer[ActionSoft]
	if !ok || !there {
		if ok {
			r.complain(e, "it is empty: %s", how)
		}
		return
	}
	inner, ok := r.mapping(soft, "column")
	column, there := inner["column"]
	if ok && !there {
		r.complain(soft, "it needs column: %s", how)
	}
	if !ok || !there {
		return
	}
	name, _ := r.scalar(column, r.what+": action: soft")
	r.p.Action = Action{Kind: ActionSoft, Column: name}
	r.p.places["action.soft.column"] = column.Value.Place()
}

func (r *reading) events(e yamldoc.Entry) {
	r.p.places[e.Key] = e.Value.Place()
	found, ok := r.mapping(e, "values", "columns")
	if !ok {
		return
	}
	what := r.what + ": events"
	columns, named := found["columns"]
	if named {
		r.p.Events.Columns = r.texts(columns, what)
	}
	values, said := found["values"]
	value := EventsKeys
	if named {
		value = EventsColumns
	}
	if said {
		if value, ok = r.scalar(values, what); !ok || !r.oneOf(values, what, value, eventValues) {
			return
		}
	}
	switch {
	case named && value != EventsColumns:
		r.Complain(columns.At, "%s: columns and values: %s exclude each other", what, value)
	case !named && value == EventsColumns:
		r.Complain(values.Value.Place(), "%s: values: columns needs columns: [a, b]", what)
	case value != EventsKeys:
		r.p.Events.Values = value
	}
}

func (r *reading) triggers(e yamldoc.Entry) {
	const forms = "write {trusted: true, search_path: …}, or triggers: refuse"
	if e.Value.Kind() == yamldoc.Boolean {
		r.complain(e, forms)
		return
	}
	if e.Value.Kind() != yamldoc.Mapping {
		value, ok := r.value(e)
		r.p.Triggers.Trusted = ok && r.oneOf(e, r.what, value, []string{"refuse", "trusted"}) && value == "trusted"
		return
	}
	r.p.places[e.Key] = e.Value.Place()
	found, ok := r.mapping(e, "trusted", "search_path")
	if !ok {
		return
	}
	trusted, there := found["trusted"]
	if yes, isBool := trusted.Value.Bool(); !there || !isBool || !yes {
		r.complain(e, forms)
		return
	}
	r.p.Triggers.Trusted = true
	path, there := found["search_path"]
	if !there {
		return
	}
	value, ok := r.scalar(path, r.what+": triggers")
	if ok && slices.ContainsFunc(strings.Split(value, ","), func(s string) bool { return strings.TrimSpace(s) == "" }) {
		r.Complain(path.Value.Place(), "%s: triggers: search_path must be names of schemas with commas between them", r.what)
	}
	r.p.Triggers.SearchPath = value
}

func (r *reading) shards(e yamldoc.Entry) {
	r.p.places[e.Key] = e.Value.Place()
	found, ok := r.mapping(e, "by", "count")
	if !ok {
		return
	}
	count, there := found["count"]
	n, isNumber := count.Value.Int()
	if !there || !isNumber || n < 2 || n > MaxShards {
		at := e.Value.Place()
		if there {
			at = count.Value.Place()
		}
		r.Complain(at, "%s: shards: count must be a whole number from 2 to %d", r.what, MaxShards)
		return
	}
	r.p.Shards = &Shards{Count: int(n)}
	if by, there := found["by"]; there {
		r.p.Shards.By = r.texts(by, r.what+": shards")
	}
}

// texts reads a list of different texts.
func (r *reading) texts(e yamldoc.Entry, what string) []string {
	values, ok := e.Value.List()
	if !ok || len(values) == 0 {
		r.Complain(e.Value.Place(), "%s: %s must be a list of names, as in %[2]s: [a, b]", what, e.Key)
		return nil
	}
	var all []string
	for _, v := range values {
		value, ok := r.scalar(yamldoc.Entry{Key: e.Key, Value: v}, what)
		if ok && slices.Contains(all, value) {
			r.Complain(v.Place(), "%s: %s: %s is there twice", what, e.Key, yamldoc.Quote(value))
		}
		all = append(all, value)
	}
	return all
}
