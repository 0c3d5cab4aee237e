package policyfile

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"lapse/internal/yamldoc"
	"lapse/planner/expiry"
	"lapse/planner/schedule"
)

// Terms are the keys that mean the same in every database. A version on record keeps them as they are here, under these names.
type Terms struct {
	Daily  *schedule.Daily  `json:"daily,omitempty"`
	Cron   *schedule.Cron   `json:"cron,omitempty"`
	Window *schedule.Window `json:"window,omitempty"`
	Where  string           `json:"where,omitempty"` // SQL over the row's own columns, as it was written, or ""
	Batch  int              `json:"batch"`           // the largest batch
	Limits
	Events   Events   `json:"events"`
	Moves    string   `json:"moves,omitempty"` // MovesDetect, or "" for as_deletes
	Evidence string   `json:"evidence"`        // EvidenceDue, or "" for claimed
	Index    string   `json:"index,omitempty"` // IndexCreate, or "" for use
	Triggers Triggers `json:"triggers"`
	Shards   *Shards  `json:"shards,omitempty"`
	Owner    string   `json:"owner,omitempty"`
	Basis    string   `json:"basis,omitempty"`
	Latitude string   `json:"latitude,omitempty"` // a duration, or ""
}

// Recorded are t as a version on record keeps them, which names the defaults of evidence and events.
func (t Terms) Recorded() Terms {
	t.Evidence, t.Events.Values = cmp.Or(t.Evidence, EvidenceClaimed), cmp.Or(t.Events.Values, EventsKeys)
	return t
}

// key is a key of a policy.
type key struct {
	name  string
	read  func(r *reading, e yamldoc.Entry)
	write func(p *Policy) string         // its value as in the file; "" leaves it out
	shown func(p *Policy) []expiry.Field // its Terms for a person; nil if what the database resolved is shown instead
}

// keys are the keys of a policy, and the only place that says how each is read, written and shown.
func keys() []key {
	return []key{
		{"name", (*reading).name, func(p *Policy) string { return quote(string(p.Name)) }, nil},
		found(text("table", func(p *Policy) *string { return &p.Table })),
		{"expire", (*reading).expire, (*Policy).writeExpire, nil},
		found(text("every", func(p *Policy) *string { return &p.Every })).except(func(*Policy) string { return DefaultEvery }),
		parsedBy("daily", schedule.ParseDaily, func(p *Policy) **schedule.Daily { return &p.Daily }),
		parsedBy("cron", schedule.ParseCron, func(p *Policy) **schedule.Cron { return &p.Cron }),
		parsedBy("window", schedule.ParseWindow, func(p *Policy) **schedule.Window { return &p.Window }),
		text("where", func(p *Policy) *string { return &p.Where }),
		{"pace", (*reading).pace, func(p *Policy) string { return p.Limits.Pace }, one("pace", func(p *Policy) string { return p.Limits.Pace })},
		number("rate", func(p *Policy) *int { return &p.Limits.Rate }, math.MaxInt32),
		number("batch", func(p *Policy) *int { return &p.Batch }, MaxBatch).except(func(p *Policy) string { return strconv.Itoa(p.usualBatch()) }),
		{"max_rows_per_run", (*reading).maxRows, func(p *Policy) string { return p.RowsPerRun() }, one("max_rows_per_run", func(p *Policy) string { return p.RowsPerRun() })},
		{"max_fraction", (*reading).maxFraction, fraction('f'), one("max_fraction", fraction('g'))},
		{"action", (*reading).action, (*Policy).writeAction, nil},
		{"events", (*reading).events, (*Policy).writeEvents, func(p *Policy) []expiry.Field {
			return []expiry.Field{{Name: "events.values", Value: p.Events.Values}, {Name: "events.columns", Value: strings.Join(p.Events.Columns, ", ")}}
		}},
		word("moves", func(p *Policy) *string { return &p.Moves }, "as_deletes", MovesDetect),
		word("evidence", func(p *Policy) *string { return &p.Evidence }, EvidenceClaimed, EvidenceDue),
		word("index", func(p *Policy) *string { return &p.Index }, "use", IndexCreate),
		{"triggers", (*reading).triggers, (*Policy).writeTriggers, one("triggers", func(p *Policy) string { return p.Triggers.String() })},
		{"shards", (*reading).shards, (*Policy).writeShards, one("shards", (*Policy).shardsText)},
		{"state", (*reading).state, func(p *Policy) string { return bare(string(p.State), states) }, nil},
		text("owner", func(p *Policy) *string { return &p.Owner }),
		text("basis", func(p *Policy) *string { return &p.Basis }),
		text("latitude", func(p *Policy) *string { return &p.Latitude }),
	}
}

func keyNames() []string {
	var names []string
	for _, k := range keys() {
		names = append(names, k.name)
	}
	return names
}

// Fields are the terms for a person, in the order of keys. One that says nothing is "".
func (t *Terms) Fields() []expiry.Field {
	p := &Policy{Terms: *t}
	var all []expiry.Field
	for _, k := range keys() {
		if k.shown != nil {
			all = append(all, k.shown(p)...)
		}
	}
	return all
}

// one shows a key as one field.
func one(name string, value func(*Policy) string) func(*Policy) []expiry.Field {
	return func(p *Policy) []expiry.Field { return []expiry.Field{{Name: name, Value: value(p)}} }
}

// found makes a key show what the database resolved.
func found(k key) key {
	k.shown = nil
	return k
}

// except omits the key from a file if its value is the default.
func (k key) except(usual func(*Policy) string) key {
	write := k.write
	k.write = func(p *Policy) string {
		if value := write(p); value != usual(p) {
			return value
		}
		return ""
	}
	return k
}

// text is a key whose text is kept unchanged.
func text(name string, at func(*Policy) *string) key {
	value := func(p *Policy) string { return *at(p) }
	return key{name, func(r *reading, e yamldoc.Entry) { *at(r.p), _ = r.value(e) }, quoted(value), one(name, value)}
}

// word is a key that takes one of some words. The first one is the default, and kept as "".
func word(name string, at func(*Policy) *string, words ...string) key {
	value := func(p *Policy) string { return *at(p) }
	return key{name, func(r *reading, e yamldoc.Entry) {
		if value, ok := r.value(e); ok && r.oneOf(e, r.what, value, words) && value != words[0] {
			*at(r.p) = value
		}
	}, func(p *Policy) string { return bare(*at(p), words) }, one(name, value)}
}

// parsedBy is a key with a text that another package understands.
func parsedBy[T fmt.Stringer](name string, parse func(string) (T, error), at func(*Policy) **T) key {
	value := func(p *Policy) string {
		if *at(p) == nil {
			return ""
		}
		return (**at(p)).String()
	}
	return key{name, func(r *reading, e yamldoc.Entry) {
		value, ok := r.value(e)
		if !ok {
			return
		}
		read, err := parse(value)
		if err != nil {
			r.complain(e, "%v", err)
			return
		}
		*at(r.p) = &read
	}, quoted(value), one(name, value)}
}

// number is a key with a whole number from 1 to most; 0 is none.
func number(name string, at func(*Policy) *int, most uint64) key {
	value := func(p *Policy) string {
		if *at(p) == 0 {
			return ""
		}
		return strconv.Itoa(*at(p))
	}
	return key{name, func(r *reading, e yamldoc.Entry) {
		r.p.places[e.Key] = e.Value.Place()
		n, ok := e.Value.Int()
		if !ok || n < 1 || n > most {
			r.Complain(e.Value.Place(), "%s: %s must be a whole number from 1 to %d", r.what, e.Key, most)
			return
		}
		*at(r.p) = int(n)
	}, value, one(name, value)}
}
