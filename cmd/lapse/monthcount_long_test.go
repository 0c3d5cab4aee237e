//go:build long

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"lapse/audit/report"
)

// recount counts a period anew, from the tables' own history and from when the test gave its commands. It reads nothing of Lapse's log.
//
// Each number of the report's JSON has a path. The number is what want has of its path, or the path is one of uncounted.
type recount struct {
	*october
	from, to time.Time
	gapped   bool
	late     int64 // rows of the policy that went too late, as far as the log can know
	want     map[string]int64
}

// uncounted are numbers that are no counts of anything in a table, with what they are.
var uncounted = map[string]*regexp.Regexp{
	"the version of the report's form":                              regexp.MustCompile(`^/schema$`),
	"a place in the log; lapse verify holds those against its tree": regexp.MustCompile(`/leaf$|^/log/(opening|closing)/records$|^/log/(first_leaf|records|routes.*)$`),
	"the auditor's own signs of life":                               regexp.MustCompile(`^/coverage/heartbeats$`),
	"a name that Lapse has given":                                   regexp.MustCompile(`^/policies\[\w+\]/id$`),
	"a name that the server has given":                              regexp.MustCompile(`/xid$|^/log/database_oid$`),
}

// hold wants each number of a report to be counted, and each that is counted in the report.
func (c *recount) hold(t *testing.T, r *report.Report, text []byte) {
	t.Helper()
	c.gapped = c.unseen[0].Before(c.to) && !c.unseen[1].Before(c.from)
	c.whole(t, r)
	for i := range r.Policies {
		c.policy(t, &r.Policies[i])
	}
	got, compared := numbers(t, text), 0
	for _, path := range slices.Sorted(maps.Keys(got)) {
		want, counted := c.want[path]
		switch {
		case counted && want != got[path]:
			t.Errorf("%s: the report has %d, and the tables' own history %d", path, got[path], want)
		case counted:
			compared++
		case strings.HasSuffix(path, "/more"):
			if got[path] != 0 {
				t.Errorf("%s: %d are not listed", path, got[path])
			}
		case !slices.ContainsFunc(slices.Collect(maps.Values(uncounted)), func(is *regexp.Regexp) bool { return is.MatchString(path) }):
			t.Errorf("%s is %d: nothing here counts it, and no reason says why", path, got[path])
		}
	}
	for path, want := range c.want {
		if _, found := got[path]; !found {
			t.Errorf("%s: the report has no such number, and the tables' own history %d", path, want)
		}
	}
	t.Logf("%d of %d numbers are compared", compared, len(got))
}

// numbers are the numbers of a JSON by their paths. What is in a list is named by a member that tells it from the others.
func numbers(t *testing.T, text []byte) map[string]int64 {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		t.Fatal(err)
	}
	all := map[string]int64{}
	walkNumbers(t, v, "", all)
	return all
}

func walkNumbers(t *testing.T, v any, path string, into map[string]int64) {
	switch v := v.(type) {
	case json.Number:
		n, err := v.Int64()
		if err != nil {
			t.Errorf("%s is %s", path, v)
		}
		into[path] = n
	case map[string]any:
		for name, member := range v {
			walkNumbers(t, member, path+"/"+name, into)
		}
	case []any:
		names := listNames(v)
		for i, item := range v {
			walkNumbers(t, item, fmt.Sprintf("%s[%s]", path, names[i]), into)
		}
	}
}

func listNames(list []any) (names []string) {
	for _, member := range []string{"name", "policy", "about", "day", "hold", "counted", "version", "table"} {
		names = names[:0]
		for _, item := range list {
			if of, is := item.(map[string]any); is && of[member] != nil {
				names = append(names, fmt.Sprint(of[member]))
			}
		}
		if len(names) == len(list) && len(slices.Compact(slices.Sorted(slices.Values(names)))) == len(list) {
			return names
		}
	}
	names = names[:0]
	for i := range list {
		names = append(names, fmt.Sprint(i))
	}
	return names
}

// figure is a number that is assessed, or one whose least is known.
func (c *recount) figure(path string, n int, assessed bool) {
	if assessed && !c.gapped {
		c.want[path+"/value"] = int64(n)
	} else {
		c.want[path+"/at_least"] = int64(n)
	}
}

// in are the changes of the period that somebody read.
func (c *recount) in(matches func(*rowChange) bool) (all []*rowChange) {
	for i := range c.changes {
		x := &c.changes[i]
		unseen := !x.at.Before(c.unseen[0]) && x.at.Before(c.unseen[1])
		if !unseen && !x.at.Before(c.from) && x.at.Before(c.to) && matches(x) {
			all = append(all, x)
		}
	}
	return all
}

func (x *rowChange) byLapse() bool { return x.who == "lapse_executor" }
func (x *rowChange) gone() bool    { return x.op == "DELETE" || x.op == "DROP" || x.op == "SOFT" }
func (x *rowChange) day() string   { return x.at.UTC().Format(time.DateOnly) }

// of reports whether a change is of a policy's table, or of one that its deletions cascade to.
func (x *rowChange) of(policy string) bool {
	return x.relation == policy || policy == "sessions" && x.relation == "notes" || policy == "readings" && strings.HasPrefix(x.relation, "readings_")
}

func (x *rowChange) column(policy string) string {
	switch {
	case x.op == "DROP":
		return "by_drop"
	case x.op == "SOFT":
		return "soft"
	case x.relation == "notes":
		return "cascaded"
	}
	return "by_row"
}

// forged tells the transaction whose claim is a lie: it is the only one in that hour.
func (x *rowChange) forged() bool {
	return x.op == "DELETE" && x.relation == "sessions" && x.at.After(on(6).Add(-90*time.Minute)) && x.at.Before(on(6))
}

// termOf is what a policy said at a time.
func (c *recount) termOf(policy string, at time.Time) (is policyTerm) {
	for _, of := range c.terms[policy] {
		if !at.Before(of.from) {
			is = of
		}
	}
	return is
}

// window is when the nth command of a name was given.
func (c *recount) window(what string, n int) window {
	for _, w := range c.windows {
		if w.what == what {
			if n--; n < 0 {
				return w
			}
		}
	}
	return window{}
}

func (w window) within(from, to time.Time) bool { return !w.before.Before(from) && w.after.Before(to) }

// given wants an instant of the report to be one at which the test gave a command.
func (c *recount) given(t *testing.T, what string, at report.Instant) {
	t.Helper()
	if !slices.ContainsFunc(c.windows, func(w window) bool { return !at.Time().Before(w.before) && !at.Time().After(w.after) }) {
		t.Errorf("%s is of %s, when nobody gave a command", what, at)
	}
}

// whole is what is of no single policy.
func (c *recount) whole(t *testing.T, r *report.Report) {
	t.Helper()
	for name, relations := range map[string][]string{"sessions": nil, "notes": nil, "carts": nil, "mails": nil, "readings": slices.Collect(maps.Keys(c.parts))} {
		path := "/tables[public." + name + "]"
		for _, member := range []string{"system", "by_drop", "soft", "user", "unverified", "truncates", "moves"} {
			c.want[path+"/"+member] = 0
		}
		for _, x := range c.in(func(x *rowChange) bool {
			return (x.relation == name || slices.Contains(relations, x.relation)) && x.gone()
		}) {
			member := "user"
			switch {
			case x.op == "DROP":
				member = "by_drop"
			case x.op == "SOFT":
				member = "soft"
			case x.byLapse():
				member = "system"
			case x.forged():
				member = "unverified"
			}
			c.want[path+"/"+member]++
			day := path + "/days[" + x.day() + "]/"
			for _, m := range []string{"system", "by_drop", "soft", "user", "unverified"} {
				c.want[day+m] += 0
			}
			c.want[day+member]++
		}
	}
	transactions := map[string]bool{}
	for _, x := range c.in((*rowChange).gone) {
		transactions[fmt.Sprint(x.branch, x.xid)] = true
	}
	c.want["/coverage/transactions"] = int64(len(transactions)) + c.aside(t, r)
	c.want["/coverage/records_of_other_kinds"] = 0
	c.want["/coverage/clock_set_back"] = c.is(on(26).Add(-time.Hour))
	if n := len(c.in((*rowChange).forged)); n > 0 {
		c.want["/coverage/unproven/items[public.sessions]/rows"] = int64(n)
	}
	if placed := c.window("hold", 0); placed.before.Before(c.to) && c.held("sessions", c.to) {
		c.want["/holds/items[1]/hold"], c.want["/holds/items[1]/keys"] = 1, 2
		for i := range r.Policies {
			if r.Policies[i].Name == "sessions" {
				c.want["/policies[sessions]/holds[0]"] = 1
			}
		}
		for _, h := range r.Holds.Items {
			if at := h.Placed.Time(); at.Before(placed.before) || at.After(placed.after) {
				t.Errorf("the hold was placed at %s, and the report says %s", placed.before, h.Placed)
			}
			ended := false
			for _, s := range h.States.Items {
				if s.State == "released" || s.State == "releasing" {
					c.given(t, "a hold's end", s.At)
					ended = true
				}
			}
			if ended != c.window("release", 0).within(c.from, c.to) {
				t.Errorf("of the hold the report says %+v", h.States)
			}
		}
	}
	for _, h := range r.Halts.Items {
		c.given(t, "a halt", h.At)
	}
	if want := c.happened("halt") + c.happened("go on"); r.Halts.Len() != want {
		t.Errorf("all policies were halted or not %d times, and the report has %d", want, r.Halts.Len())
	}
	if want := c.happened("restore"); r.Rewinds.Len() != want || r.Coverage.Gaps.Len() != c.happened("gap") {
		t.Errorf("the report has %d restores and %d gaps", r.Rewinds.Len(), r.Coverage.Gaps.Len())
	} else if want == 1 {
		c.rewind()
	}
}

// aside is how many batches of carts only set a row aside: they deleted nothing, so that the table's own history has nothing of them.
func (c *recount) aside(t *testing.T, r *report.Report) (n int64) {
	t.Helper()
	for i := range r.Policies {
		if p := &r.Policies[i]; p.Name == "carts" {
			n = p.Deleted.Batches - int64(c.batches(p.Name))
		}
	}
	if n < 0 || n > 0 && !(c.stuck[0].Before(c.to) && !c.stuck[1].Before(c.from)) || n > 9 {
		t.Errorf("%d batches of carts deleted nothing", n)
	}
	return n
}

// batches is how many transactions of a policy there were.
func (c *recount) batches(policy string) int {
	all := map[string]bool{}
	for _, x := range c.in(func(x *rowChange) bool { return x.gone() && x.byLapse() && x.of(policy) }) {
		all[fmt.Sprint(x.branch, x.xid)] = true
	}
	return len(all)
}

// is 1 where an instant is in the period.
func (c *recount) is(at time.Time) int64 {
	if !at.Before(c.from) && at.Before(c.to) {
		return 1
	}
	return 0
}

// happened is how often something did in the period.
func (c *recount) happened(what string) (n int64) {
	switch what {
	case "restore":
		return c.is(c.restored)
	case "gap":
		return c.is(c.unseen[1])
	}
	for _, w := range c.windows {
		if w.what == what {
			n += c.is(w.before)
		}
	}
	return n
}

// rewind is what the restore took back.
func (c *recount) rewind() {
	back, since := map[string]int64{}, map[string]int64{}
	users := int64(0)
	for i := range c.changes {
		x := &c.changes[i]
		for _, policy := range []string{"sessions", "carts", "mails", "readings"} {
			switch {
			case !x.gone() || !x.of(policy) || x.column(policy) == "cascaded" || !x.byLapse():
			case x.undone:
				back[policy]++
			case x.at.After(c.restored) && x.at.Before(c.to):
				since[policy]++
			}
		}
		if x.undone && x.gone() && !x.byLapse() {
			users++
		}
	}
	path := "/rewinds/items[0]"
	c.want[path+"/deleted_by_users"] = users
	for policy, n := range back {
		c.want[path+"/policies["+policy+"]/brought_back"], c.want[path+"/policies["+policy+"]/deleted_since"] = n, since[policy]
	}
}
