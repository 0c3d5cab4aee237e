package policyfile

import (
	"regexp"
	"slices"
	"strings"

	"lapse/internal/yamldoc"
	"lapse/planner/expiry"
	"lapse/planner/schedule"
	"lapse/schemas"
)

// File is a policy file as it was written. Nothing in it has been compared with a database.
type File struct {
	Name     string // as errors name it
	Policies []Policy
}

// The keys of a policy. Those of later versions are known, so that nobody takes a missing feature for a typing mistake.
var (
	policyKeys = []string{
		"name", "table", "expire", "every", "daily", "batch", "state", "owner", "basis", "latitude", "action", "triggers",
		"evidence", "events", "index",
	}
	laterPolicyKeys = []string{"cron", "window", "where", "rate", "max_rows_per_run", "max_fraction", "shards"}
	eventKeys       = []string{"values"}
	laterEventKeys  = []string{"columns"}
)

// Parse reads the text of a policy file. Its error is yamldoc.Errors: all that is wrong, each with its place.
func Parse(name string, text []byte) (*File, error) {
	d := &document{yamldoc.Document{File: name}}
	file := &File{Name: name}
	body := d.Root(text)
	switch {
	case !body.IsZero():
		file.Policies = d.policies(body)
	case d.Count() == 0:
		d.Complain(body.Place(), "the file is empty: it needs policies:")
	}
	if err := d.Err(); err != nil {
		return nil, err
	}
	return file, nil
}

func (d *document) policies(body yamldoc.Node) []Policy {
	var list yamldoc.Node
	entries, _ := d.entries(body, "the file")
	for _, e := range entries {
		if d.known(e, "the file", []string{"policies"}, nil) {
			list = e.Value
		}
	}
	values, ok := list.List()
	if !ok {
		if d.Count() == 0 {
			d.Complain(body.Place(), "the file needs policies: with a list of policies below it")
		}
		return nil
	}
	var all []Policy
	names, tables := map[schemas.PolicyName]yamldoc.Place{}, map[string]yamldoc.Place{}
	for _, n := range values {
		p := d.policy(n)
		if before, twice := names[p.Name]; twice && p.Name != "" {
			d.Complain(p.Place("name"), "there is a policy %s in line %d already", p.Name, before.Line)
		}
		if before, twice := tables[p.Table]; twice && p.Table != "" {
			d.Complain(p.Place("table"), "%s has a policy in line %d already, and a table can have only one", p.Table, before.Line)
		}
		names[p.Name], tables[p.Table] = p.Place("name"), p.Place("table")
		all = append(all, p)
	}
	return all
}

// namePattern is what lapse.policy accepts.
var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,62}$`)

func (d *document) policy(n yamldoc.Node) Policy {
	p := Policy{Batch: DefaultBatch, places: map[string]yamldoc.Place{"": n.Place()}}
	entries, ok := d.entries(n, "a policy")
	if !ok {
		return p
	}
	what := "a policy"
	for _, e := range entries {
		if name, ok := e.Value.Text(); e.Key == "name" && ok && namePattern.MatchString(name) {
			what = "policy " + name
		}
	}
	for _, e := range entries {
		p.places[e.Key] = e.At
		if d.known(e, what, policyKeys, laterPolicyKeys) {
			d.policyField(&p, what, e)
		}
	}
	for _, required := range []string{"name", "table", "expire"} {
		if _, there := p.places[required]; !there {
			d.Complain(p.places[""], "%s needs %s", what, required)
		}
	}
	if at, both := p.places["daily"]; both && p.places["every"] != (yamldoc.Place{}) {
		d.Complain(at, "%s: every and daily exclude one another", what)
	}
	if p.Every == "" && p.Daily == nil {
		p.Every = DefaultEvery
	}
	return p
}

// policyField reads one supported key.
func (d *document) policyField(p *Policy, what string, e yamldoc.Entry) {
	switch e.Key {
	case "expire":
		d.expire(p, what, e)
		return
	case "events":
		d.events(what, e)
		return
	case "batch":
		d.batch(p, what, e)
		return
	case "action", "triggers", "index":
		if e.Value.Kind() == yamldoc.Mapping {
			d.Complain(e.Value.Place(), "%s: this form of %s is not supported by this version", what, e.Key)
			return
		}
	}
	value, ok := d.scalar(e, what)
	if !ok {
		return
	}
	p.places[e.Key] = e.Value.Place()
	switch e.Key {
	case "name":
		p.Name = schemas.PolicyName(value)
		if !namePattern.MatchString(value) {
			d.Complain(e.Value.Place(), "%s is no name for a policy: up to 63 of a-z, 0-9, _, . and -, beginning with a letter or digit", yamldoc.Quote(value))
		}
	case "table":
		p.Table = value
	case "every":
		p.Every = value
	case "daily":
		d.daily(p, what, e, value)
	case "state":
		p.State = schemas.State(d.oneOf(e, what, value, []string{"observing", "armed", "paused"}, nil))
	case "owner":
		p.Owner = value
	case "basis":
		p.Basis = value
	case "latitude":
		p.Latitude = value
	case "action":
		d.oneOf(e, what, value, []string{"delete"}, []string{"soft", "drop_partition"})
	case "triggers":
		d.oneOf(e, what, value, []string{"refuse"}, []string{"trusted"})
	case "evidence":
		d.oneOf(e, what, value, []string{"claimed"}, []string{"due"})
	case "index":
		d.oneOf(e, what, value, []string{"use"}, []string{"create"})
	}
}

// oneOf holds a value to those that are supported.
func (d *document) oneOf(e yamldoc.Entry, what, value string, supported, later []string) string {
	switch {
	case slices.Contains(supported, value):
	case slices.Contains(later, value):
		d.Complain(e.Value.Place(), "%s: %s: %s is not supported by this version", what, e.Key, value)
	default:
		d.Complain(e.Value.Place(), "%s: %s cannot be %s%s", what, e.Key, yamldoc.Quote(value), yamldoc.Suggestion(value, supported, later))
	}
	return value
}

func (d *document) batch(p *Policy, what string, e yamldoc.Entry) {
	n, ok := e.Value.Int()
	if !ok || n < 1 || n > MaxBatch {
		d.Complain(e.Value.Place(), "%s: batch must be a whole number from 1 to %d", what, MaxBatch)
		return
	}
	p.Batch = int(n)
}

func (d *document) events(what string, e yamldoc.Entry) {
	fields, _ := d.entries(e.Value, what+": events")
	for _, field := range fields {
		if !d.known(field, what+": events", eventKeys, laterEventKeys) {
			continue
		}
		if value, ok := d.scalar(field, what+": events"); ok {
			d.oneOf(field, what+": events", value, []string{"keys"}, []string{"hashed_keys"})
		}
	}
}

func (d *document) daily(p *Policy, what string, e yamldoc.Entry, value string) {
	daily, err := schedule.ParseDaily(value)
	if err != nil {
		d.Complain(e.Value.Place(), "%s: daily: %v", what, err)
		return
	}
	p.Daily = &daily
}

// shorthand is Spanner's way to say when a row is due: whole days, months and years only.
var shorthand = regexp.MustCompile(`(?i)^\s*interval\s+'([^']*)'\s+on\s+([a-z_][a-z0-9_$]*|"(?:[^"]|"")+")\s*$`)

var wholeDays = regexp.MustCompile(`(?i)^\s*\d+\s+(day|mon|month|year)s?(\s+\d+\s+(day|mon|month|year)s?)*\s*$`)

// expire reads the entry's keys. What they mean together is asked in planner/expiry.
func (d *document) expire(p *Policy, what string, e yamldoc.Entry) {
	if value, ok := e.Value.Text(); ok {
		d.expireShorthand(p, what, e, value)
		return
	}
	fields, ok := d.entries(e.Value, what+": expire")
	if !ok {
		return
	}
	keys, laterKeys := expiry.Keys(), expiry.LaterKeys()
	p.Expire = expiry.Entry{}
	later := false
	for _, field := range fields {
		p.places["expire."+field.Key] = field.At
		later = later || slices.Contains(laterKeys, field.Key)
		if !d.known(field, what+": expire", keys, laterKeys) {
			continue
		}
		value, ok := d.scalar(field, what+": expire")
		if ok {
			p.places["expire."+field.Key] = field.Value.Place()
		}
		p.Expire[field.Key] = value
	}
	if later {
		return
	}
	for _, problem := range expiry.Check(p.Expire) {
		switch at := "expire." + problem.Key; {
		case problem.Key == "":
			d.Complain(e.At, "%s: %s", what, problem.Text)
		case p.Expire[problem.Key] != "": // or it was complained about
			d.Complain(p.Place(at), "%s: expire: %s", what, problem.Text)
		}
	}
}

func (d *document) expireShorthand(p *Policy, what string, e yamldoc.Entry, value string) {
	at := e.Value.Place()
	p.places["expire.column"], p.places["expire.after"] = at, at
	parts := shorthand.FindStringSubmatch(value)
	if parts == nil {
		d.Complain(at, `%s: expire must be {column: …, after: …} or "INTERVAL '30 days' ON column"`, what)
		return
	}
	if !wholeDays.MatchString(parts[1]) {
		d.Complain(at, "%s: expire: the short form takes whole days, months and years; use {column: …, after: …} for %s", what, yamldoc.Quote(parts[1]))
		return
	}
	column := strings.ToLower(parts[2])
	if strings.HasPrefix(parts[2], `"`) {
		column = strings.ReplaceAll(parts[2][1:len(parts[2])-1], `""`, `"`)
	}
	p.Expire = expiry.Entry{"column": column, "after": parts[1]}
}
