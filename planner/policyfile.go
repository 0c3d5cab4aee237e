package planner

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"lapse/schemas"
)

// PolicyFile is a policy file as it was written. Nothing in it has been compared with a database.
type PolicyFile struct {
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
	expireKeys      = []string{"column", "after", "zone"}
	laterExpireKeys = []string{"ttl_column", "ttl_default", "sidecar", "epoch", "path", "iso8601", "instant", "bucket", "expression"}
	eventKeys       = []string{"values"}
	laterEventKeys  = []string{"columns"}
)

// ParsePolicyFile reads the text of a policy file. Its error is FileErrors: all that is wrong, each with its place.
func ParsePolicyFile(name string, text []byte) (*PolicyFile, error) {
	d := &document{file: name}
	file := &PolicyFile{Name: name}
	if body := d.root(text); body != nil {
		file.Policies = d.policies(body)
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return file, nil
}

func (d *document) policies(body ast.Node) []Policy {
	var list ast.Node
	entries, _ := d.entries(body, "the file")
	for _, e := range entries {
		if d.known(e, "the file", []string{"policies"}, nil) {
			list = e.value
		}
	}
	sequence, ok := list.(*ast.SequenceNode)
	if !ok {
		if len(d.errors) == 0 {
			d.complain(place(body), "the file needs policies: with a list of policies below it")
		}
		return nil
	}
	var all []Policy
	names, tables := map[schemas.PolicyName]Place{}, map[string]Place{}
	for _, n := range sequence.Values {
		p := d.policy(n)
		if before, twice := names[p.Name]; twice && p.Name != "" {
			d.complain(p.place("name"), "there is a policy %s in line %d already", p.Name, before.Line)
		}
		if before, twice := tables[p.Table]; twice && p.Table != "" {
			d.complain(p.place("table"), "%s has a policy in line %d already, and a table can have only one", p.Table, before.Line)
		}
		names[p.Name], tables[p.Table] = p.place("name"), p.place("table")
		all = append(all, p)
	}
	return all
}

// namePattern is what lapse.policy accepts.
var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,62}$`)

func (d *document) policy(n ast.Node) Policy {
	p := Policy{Batch: DefaultBatch, places: map[string]Place{"": place(n)}}
	entries, ok := d.entries(n, "a policy")
	if !ok {
		return p
	}
	what := "a policy"
	for _, e := range entries {
		if name, ok := text(e.value); e.key == "name" && ok && namePattern.MatchString(name) {
			what = "policy " + name
		}
	}
	for _, e := range entries {
		p.places[e.key] = e.at
		if d.known(e, what, policyKeys, laterPolicyKeys) {
			d.policyField(&p, what, e)
		}
	}
	for _, required := range []string{"name", "table", "expire"} {
		if _, there := p.places[required]; !there {
			d.complain(p.places[""], "%s needs %s", what, required)
		}
	}
	if at, both := p.places["daily"]; both && p.places["every"] != (Place{}) {
		d.complain(at, "%s: every and daily exclude one another", what)
	}
	if p.Every == "" && p.Daily == nil {
		p.Every = DefaultEvery
	}
	return p
}

// policyField reads one supported key.
func (d *document) policyField(p *Policy, what string, e entry) {
	switch e.key {
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
		if _, mapping := e.value.(*ast.MappingNode); mapping {
			d.complain(place(e.value), "%s: this form of %s is not supported by this version", what, e.key)
			return
		}
	}
	value, ok := d.scalar(e, what)
	if !ok {
		return
	}
	p.places[e.key] = place(e.value)
	switch e.key {
	case "name":
		p.Name = schemas.PolicyName(value)
		if !namePattern.MatchString(value) {
			d.complain(place(e.value), "%s is no name for a policy: up to 63 of a-z, 0-9, _, . and -, beginning with a letter or digit", quoted(value))
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
func (d *document) oneOf(e entry, what, value string, supported, later []string) string {
	switch {
	case slices.Contains(supported, value):
	case slices.Contains(later, value):
		d.complain(place(e.value), "%s: %s: %s is not supported by this version", what, e.key, value)
	default:
		d.complain(place(e.value), "%s: %s cannot be %s%s", what, e.key, quoted(value), meant(value, supported, later))
	}
	return value
}

func (d *document) batch(p *Policy, what string, e entry) {
	number, ok := e.value.(*ast.IntegerNode)
	n, err := 0, error(nil)
	if ok {
		n, err = strconv.Atoi(number.GetToken().Value)
	}
	if !ok || err != nil || n < 1 || n > MaxBatch {
		d.complain(place(e.value), "%s: batch must be a whole number from 1 to %d", what, MaxBatch)
		return
	}
	p.Batch = n
}

func (d *document) events(what string, e entry) {
	fields, _ := d.entries(e.value, what+": events")
	for _, field := range fields {
		if !d.known(field, what+": events", eventKeys, laterEventKeys) {
			continue
		}
		if value, ok := d.scalar(field, what+": events"); ok {
			d.oneOf(field, what+": events", value, []string{"keys"}, []string{"hashed_keys"})
		}
	}
}

func (d *document) daily(p *Policy, what string, e entry, value string) {
	daily, err := parseDaily(value)
	if err != nil {
		d.complain(place(e.value), "%s: daily: %v", what, err)
		return
	}
	p.Daily = &daily
}

// shorthand is Spanner's way to say when a row is due: whole days, months and years only.
var shorthand = regexp.MustCompile(`(?i)^\s*interval\s+'([^']*)'\s+on\s+([a-z_][a-z0-9_$]*|"(?:[^"]|"")+")\s*$`)

var wholeDays = regexp.MustCompile(`(?i)^\s*\d+\s+(day|mon|month|year)s?(\s+\d+\s+(day|mon|month|year)s?)*\s*$`)

func (d *document) expire(p *Policy, what string, e entry) {
	if value, ok := text(e.value); ok {
		d.expireShorthand(p, what, e, value)
		return
	}
	later := false
	fields, ok := d.entries(e.value, what+": expire")
	if !ok {
		return
	}
	for _, field := range fields {
		p.places["expire."+field.key] = field.at
		later = later || slices.Contains(laterExpireKeys, field.key)
		if !d.known(field, what+": expire", expireKeys, laterExpireKeys) {
			continue
		}
		value, ok := d.scalar(field, what+": expire")
		if !ok {
			continue
		}
		p.places["expire."+field.key] = place(field.value)
		switch field.key {
		case "column":
			p.Expire.Column = value
		case "after":
			p.Expire.After = value
		case "zone":
			if _, err := loadZone(value); err != nil {
				d.complain(place(field.value), "%s: expire: zone: %v", what, err)
			}
			p.Expire.Zone = value
		}
	}
	_, column := p.places["expire.column"]
	_, after := p.places["expire.after"]
	switch {
	case later:
	case !column:
		d.complain(e.at, "%s: expire needs column", what)
	case !after:
		d.complain(e.at, "%s: expire without after is not supported by this version", what)
	}
}

func (d *document) expireShorthand(p *Policy, what string, e entry, value string) {
	at := place(e.value)
	p.places["expire.column"], p.places["expire.after"] = at, at
	parts := shorthand.FindStringSubmatch(value)
	if parts == nil {
		d.complain(at, `%s: expire must be {column: …, after: …} or "INTERVAL '30 days' ON column"`, what)
		return
	}
	if !wholeDays.MatchString(parts[1]) {
		d.complain(at, "%s: expire: the short form takes whole days, months and years; use {column: …, after: …} for %s", what, quoted(parts[1]))
		return
	}
	p.Expire.After, p.Expire.Column = parts[1], strings.ToLower(parts[2])
	if strings.HasPrefix(parts[2], `"`) {
		p.Expire.Column = strings.ReplaceAll(parts[2][1:len(parts[2])-1], `""`, `"`)
	}
}
