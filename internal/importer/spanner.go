package importer

import "context"

// spannerText reads GoogleSQL's ROW DELETION POLICY (OLDER_THAN(column, INTERVAL 30 DAY)) and, from Spanner's PostgreSQL, TTL INTERVAL '30
// days' ON column. Both count whole days, as Lapse does.
func spannerText(_ context.Context, _ *Server, text string) (items []Item, err error) {
	all, err := definitions(text, "ROW DELETION POLICY or TTL INTERVAL", true)
	if err != nil {
		return nil, err
	}
	last := map[string]int{}
	for _, d := range all {
		i, there := d.spanner()
		if !there {
			continue
		}
		if at, before := last[d.table]; before { // ALTER TABLE … REPLACE, or DROP
			items[at] = i
			continue
		}
		last[d.table] = len(items)
		items = append(items, i)
	}
	return items, nil
}

func (d *definition) spanner() (i Item, there bool) {
	origin := "Table " + d.table
	for d.at < len(d.tokens) {
		from := d.at
		switch {
		case d.take("drop", "row", "deletion", "policy"), d.take("drop", "ttl"):
			i = Item{Origin: origin, Text: d.clipped(from), Apart: true}
			i.note("its TTL was dropped")
			return i, true
		case d.take("row", "deletion", "policy", "(", "older_than", "("):
			column := d.next().spelling()
			d.take(",")
			d.take("interval")
			p, ok := interval(orText(d.next()), d.next().name())
			return d.expiring(origin, from, column, p, ok), true
		case d.take("ttl", "interval"):
			p, ok := spelled(orText(d.next()))
			d.take("on")
			return d.expiring(origin, from, d.next().name(), p, ok), true
		}
		d.at++
	}
	return i, false
}

// expiring is the item of a column and a period that were read from there.
func (d *definition) expiring(origin string, from int, column string, p period, ok bool) Item {
	i := elsewhere(origin, d.clause.clipped(from+2), d.table, after(column, p))
	if !ok || column == "" {
		i.Policy, i.Notes = nil, nil
		i.lose("its column or its interval is not one that import knows")
	}
	return i
}
