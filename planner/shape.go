package planner

import (
	"fmt"
	"strings"
)

// The shapes of a batch: how it finds its rows. Which of them a deletion function has depends on its policy; in which one a batch
// runs is its caller's choice, and decides about nothing but speed.
const (
	// ShapeRange counts the first due rows in the order, without locks, and deletes by the range from the cursor to the last one of
	// them. A row that somebody has locked is waited for: the batch fails with its lock timeout. More than twice as many rows than
	// were counted are refused.
	ShapeRange = "range"
	// ShapePick deletes by the addresses of rows that it has locked, and passes over those that somebody else has locked.
	ShapePick = "pick"
)

// Shapes are the shapes in which the version's batches find their rows, the usual one first. A range is certain of its rows
// only where every candidate is due, and reads no other relation.
func (d *Definition) Shapes() []string {
	if d.certain() {
		return []string{ShapeRange, ShapePick}
	}
	return []string{ShapePick}
}

// countSelect is the SELECT by which a range is counted, up to its condition.
func (d *Definition) countSelect(leaf string) string {
	c := d.condition()
	return fmt.Sprintf("select %s\n  from %s\n where %s\n   and %s", d.orderAs(), c.From("only "+leaf), c.Narrow("$1", "$2"), c.Exact("$1", "$2"))
}

// tied reports whether more than one order column says where a row is.
func (d *Definition) tied() bool { return len(d.order()) > 1 }

// rangeFacts are the parts of a range's statements: $4 is the limit, $5 the cursor and $6 the place of the last row.
func (d *Definition) rangeFacts() map[string]any {
	first := d.order()[0]
	facts := map[string]any{
		"LastCounted": fmt.Sprintf("(select array[%s] from due r offset (select greatest(least(count(*), $4) - 1, 0) from due) limit 1)", d.places("r", "::text")),
		"CountTail":   d.inOrder("$4 + 1"), "Narrow": d.condition().Narrow("$1", "$2"), "Tied": d.tied(),
		"ThroughTie": fmt.Sprintf("%s <= ($6[1])::%s", first.SQL, first.Cast), "TiedSelect": "",
	}
	if d.tied() {
		facts["TiedSelect"] = "(select r.k1 from due r offset $4 - 1 limit 1) = (select r.k1 from due r offset $4 limit 1)"
		facts["InTie"] = fmt.Sprintf("%s = ($6[1])::%s", first.SQL, first.Cast)
		facts["BeforeTie"] = fmt.Sprintf("%s < ($6[1])::%s", first.SQL, first.Cast)
		facts["AfterInTie"] = d.beside(1, ">", "$5")
		facts["ToLastInTie"] = d.beside(1, "<=", "$6")
	}
	return facts
}

// values are what the deletion function's statements have for parameters: all of them have all, so that a number means one thing.
func (d *Definition) values() string {
	all := []string{"claim.cutoff", "bound", "claim.target", "work.row_limit", "place.cursor", "last", "rows_at"}
	switch {
	case len(d.Slices) > 0:
		all = append(all, "place.modulus", "place.remainder")
	case d.ranged():
		all = append(all, "place.lower", "place.upper")
	}
	return "using " + strings.Join(all, ", ")
}
