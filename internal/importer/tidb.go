package importer

import (
	"context"
	"regexp"
)

// tidbHints are the comments in which SHOW CREATE TABLE writes TTL, so that MySQL ignores it.
var tidbHints = regexp.MustCompile(`(?s)/\*T!\[ttl\](.*?)\*/`)

// tidbText reads TTL = column + INTERVAL 3 MONTH. As with Lapse, a row goes when column plus interval is past.
func tidbText(_ context.Context, _ *Server, text string) (items []Item, err error) {
	all, err := definitions(tidbHints.ReplaceAllString(text, "$1"), "TTL", true)
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		if i, there := d.tidb(); there {
			items = append(items, i)
		}
	}
	return items, nil
}

func (d *definition) tidb() (i Item, there bool) {
	for d.at < len(d.tokens) {
		d.until("ttl", "ttl_enable", "ttl_job_interval")
		key := d.next().name()
		d.take("=")
		from := d.at
		value, _ := d.peek().value()
		switch {
		case key == "ttl":
			column := d.next().spelling()
			d.take("+")
			d.take("interval")
			p, ok := interval(orText(d.next()), d.next().name())
			if i, there = elsewhere("Table "+d.table, d.clipped(from), d.table, after(column, p)), true; !ok || column == "" {
				i.Policy = nil
				i.lose("it is not column + INTERVAL number unit")
			} else {
				i.note("a DATETIME of TiDB has no zone; where the column is a timestamp, say which it means: zone")
			}
		case key == "ttl_enable" && there && value == "OFF":
			i.note("TTL_ENABLE is OFF: TiDB deletes nothing there")
		case key == "ttl_job_interval" && i.Policy != nil:
			i.every(value)
		}
	}
	return i, there
}

// orText is a literal's value, or the token.
func orText(t token) string {
	if text, ok := t.value(); ok {
		return text
	}
	return t.text
}

// clipped is the text from a token on.
func (c *clause) clipped(from int) string {
	if from >= len(c.tokens) {
		return ""
	}
	return c.text[c.tokens[max(0, from-2)].start:c.tokens[len(c.tokens)-1].end]
}

// every gives a policy the period that a user wrote.
func (i *Item) every(text string) {
	if p, ok := spelled(text); ok && !p.isZero() {
		i.Policy.Every = p.inDays().interval().String()
		return
	}
	i.lose("the period %q is not carried over: the policy runs every hour", text)
}
