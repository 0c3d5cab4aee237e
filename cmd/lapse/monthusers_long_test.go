//go:build long

package main

import (
	"slices"
	"time"

	"lapse/audit/report"
)

// users is what others did.
func (c *recount) users(p *report.Policy, path string) {
	deleted := c.in(func(x *rowChange) bool { return x.op == "DELETE" && !x.byLapse() && x.relation == p.Name })
	unverified := c.in(func(x *rowChange) bool { return x.forged() && x.relation == p.Name })
	c.figure(path+"/users/deleted", len(deleted), true)
	c.figure(path+"/users/unverified", len(unverified), true)
	c.figure(path+"/users/truncates", 0, true)
	c.figure(path+"/users/moves", 0, true)
	c.judged(p, path+"/users", deleted)
	if !c.gapped && !slices.ContainsFunc(deleted, func(x *rowChange) bool { return c.held(x.relation, x.at) }) {
		c.figure(path+"/users/held", 0, true)
	}
}

// judged counts the rows that others deleted by whether they were due: those of the policy with "evidence: due". It is not said of rows under
// a claim that does not verify, nor of those that went between a change of policies, the restore or the gap, and the next heartbeat.
func (c *recount) judged(p *report.Policy, path string, deleted []*rowChange) {
	due, notDue, unknown := 0, 0, 0
	for _, x := range deleted {
		switch {
		case x.forged() || c.unsettled(x.at):
			unknown++
		case x.value.Add(c.termOf(p.Name, x.at).after).After(x.at):
			notDue++
		default:
			due++
		}
	}
	for member, n := range map[string]int{"due": due, "not_due": notDue} {
		switch figure := path + "/" + member; {
		case len(deleted) == 0 && !c.gapped:
			c.want[figure+"/value"] = 0
		case p.Name != "sessions" || len(deleted) == unknown || c.gapped && n == 0:
		case c.gapped:
			c.want[figure+"/at_least"] = int64(n)
		case unknown > 0:
			c.want[figure+"/at_least"], c.want[figure+"/at_most"] = int64(n), int64(n+unknown)
		default:
			c.want[figure+"/value"] = int64(n)
		}
	}
}

func (c *recount) unsettled(at time.Time) (is bool) {
	for _, w := range c.windows {
		if w.before.After(at) {
			break
		}
		is = w.what != "run" && (is || w.what == "apply" || w.what == "accept" || w.what == "new slot")
	}
	return is
}
