package importer

import (
	"context"
	"strconv"
	"strings"

	"lapse/planner/expiry"
	"lapse/planner/policyfile"
)

// cockroachText reads the storage parameters of row-level TTL: WITH (ttl_expire_after = '3 months', …), or SET (…).
func cockroachText(_ context.Context, _ *Server, text string) (items []Item, err error) {
	all, err := definitions(text, "ttl_expire_after or ttl_expiration_expression", false)
	if err != nil {
		return nil, err
	}
	at := map[string]int{}
	for _, d := range all {
		parameters, written := d.parameters()
		if len(parameters) == 0 {
			continue
		}
		n, there := at[d.table]
		if !there {
			n = len(items)
			at[d.table] = n
			items = append(items, Item{Origin: "Table " + d.table, Policy: &policyfile.Policy{
				Name: policyName(lastName(d.table), "ttl"), Table: d.table, Every: policyfile.DefaultEvery,
			}})
		}
		i := &items[n]
		i.Text = strings.TrimSpace(i.Text + "\n" + written)
		for _, p := range parameters {
			i.cockroach(p[0], p[1])
		}
	}
	for n := range items {
		if i := &items[n]; i.Policy != nil && i.Policy.Expire == nil {
			i.Policy, i.Notes = nil, nil
			i.lose("neither ttl_expire_after nor ttl_expiration_expression says when a row goes")
		}
	}
	return items, nil
}

// parameters returns the parameters after WITH or SET whose names begin with ttl.
func (d *definition) parameters() (all [][2]string, written string) {
	for d.at < len(d.tokens) {
		if !d.take("with", "(") && !d.take("set", "(") {
			d.at++
			continue
		}
		from := d.at
		inner := d.until(")")
		for inner.at < len(inner.tokens) {
			part := inner.until(",")
			inner.take(",")
			if len(part.tokens) > 2 && part.tokens[1].is("=") && strings.HasPrefix(part.tokens[0].name(), "ttl") {
				value := orText(part.tokens[2])
				if len(part.tokens) > 3 && !part.tokens[3].is("::") {
					value = part.text[part.tokens[2].start:part.tokens[len(part.tokens)-1].end]
				}
				all = append(all, [2]string{part.tokens[0].name(), value})
			}
		}
		if d.at < len(d.tokens) && len(all) > 0 {
			written = d.text[d.tokens[from].start:d.tokens[d.at-1].end]
		}
	}
	return all, written
}

// hidden is CockroachDB's column of the due time.
const hidden = "crdb_internal_expiration"

// cockroach reads one parameter.
func (i *Item) cockroach(name, value string) {
	p := i.Policy
	switch name {
	case "ttl", "ttl_automatic_column", "ttl_select_batch_size", "ttl_select_rate_limit", "ttl_row_stats_poll_interval", "ttl_label_metrics", "ttl_disable_changefeed_replication":
	case "ttl_expire_after":
		if p.Expire != nil {
			return // the expression takes precedence
		}
		p.Expire = expiry.Entry{"column": hidden}
		i.lose("PostgreSQL has no hidden column %s, which is set by each INSERT and UPDATE. Where the rows have none of their own, make it: "+
			"lapse scaffold --table %s --option expires_at --column %[1]s --after %[3]q --refresh", hidden, p.Table, value)
	case "ttl_expiration_expression":
		p.Expire = expirationOf(value)
		i.Lost = nil
		if p.Expire["expression"] != "" {
			i.lose("the expression is CockroachDB's as it was written: plan says whether PostgreSQL reads it, as a timestamp with time zone")
		}
	case "ttl_job_cron":
		i.schedule(value, "")
	case "ttl_delete_batch_size":
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			p.Batch = min(n, policyfile.MaxBatch)
		}
	case "ttl_delete_rate_limit":
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			p.Rate = n
			i.note("ttl_delete_rate_limit is for each node there, and rate for all executors together")
		}
	case "ttl_pause":
		i.note("ttl_pause is %s: it deletes nothing there while that is true", value)
	default:
		i.lose("%s = %s is not carried over", name, value)
	}
}

// expirationOf makes the entry for an expression: a column, a column plus an interval, or the expression itself.
func expirationOf(sql string) expiry.Entry {
	tokens, _ := scan(sql)
	for len(tokens) > 2 && tokens[0].is("(") && tokens[len(tokens)-1].is(")") {
		tokens = tokens[1 : len(tokens)-1]
	}
	if len(tokens) == 1 && tokens[0].name() != "" {
		return expiry.Entry{"column": tokens[0].name()}
	}
	if len(tokens) >= 3 && tokens[0].name() != "" && tokens[1].is("+") {
		rest := tokens[2:]
		if rest[0].is("interval") {
			rest = rest[1:]
		}
		cast := len(rest) == 3 && rest[1].is("::") && rest[2].is("interval")
		if len(rest) == 1 || cast {
			text, _ := rest[0].value()
			if p, ok := spelled(text); ok {
				return after(tokens[0].name(), p)
			}
		}
	}
	return expiry.Entry{"expression": sql}
}
