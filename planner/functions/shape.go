package functions

import (
	"cmp"
	"fmt"
	"strings"

	"lapse/schemas"
)

// The shapes of a batch: how it finds its rows. Which of them a deletion function has depends on its policy; in which one a batch
// runs is its caller's choice, and decides about nothing but speed.
const (
	// ShapeRange counts the first due rows in the order, without locks, and deletes by the range from the cursor to the last one of
	// them. A row that somebody has locked is waited for: the batch fails with its lock timeout. More than twice as many rows than
	// it may delete are refused.
	ShapeRange = "range"
	// ShapePick locks those rows by their addresses and deletes by these; it passes over rows that somebody else has locked.
	ShapePick = "pick"
	// ShapeHeap is a range in the order of the table's file: of so many pages, the due rows. Where the order of the index scatters
	// over the table, or there is no index, it reads and writes each page once. Its cursor names the file: one that was written
	// anew (VACUUM FULL, CLUSTER, a rewrite) is begun from its start.
	ShapeHeap = "heap"
	// ShapeHeapPick is to ShapeHeap what ShapePick is to ShapeRange.
	ShapeHeapPick = "heap pick"
)

// PicksInstead is the shape that finds its rows in the same order, and passes over those that somebody has locked.
func PicksInstead(shape string) string {
	if shape == ShapeHeap || shape == ShapeHeapPick {
		return ShapeHeapPick
	}
	return ShapePick
}

// Shapes are the shapes in which the version's batches find their rows, the usual one first. A row of a relation beside the
// policy's table must be locked before the condition is asked, so that where the condition reads one there are only picks.
func (d *Definition) Shapes() []string {
	if len(d.Expire.Joins()) > 0 {
		return []string{ShapePick}
	}
	return []string{ShapeRange, ShapePick, ShapeHeap, ShapeHeapPick}
}

// shapesList is the list of them in SQL.
func (d *Definition) shapesList() string {
	var all []string
	for _, s := range d.Shapes() {
		all = append(all, schemas.Literal(s))
	}
	return strings.Join(all, ", ")
}

// HeapSelect is the SELECT of due rows' addresses, up to where in the file they are looked for. No index can use its condition:
// rows come in the order of the file.
func (d *Definition) HeapSelect(leaf, cutoff, bound, own string) string {
	c := d.Condition()
	return fmt.Sprintf("select t.ctid as at\n  from %s\n where %s\n   and (%s) is true", c.From("only "+leaf), own, c.Exact(cutoff, bound))
}

// fullRange is the SELECT of the place of the last row of a full range, up to its condition, and its end.
//
// It is for conditions that are the bound and nothing else: an index that has the order answers it without the table. The
// DELETE restates the rest.
func (d *Definition) fullRange(leaf string) (sql, tail string) {
	c := d.Condition()
	sql = fmt.Sprintf("select array[%s] from (\nselect %s\n  from %s\n where %s", d.places("s", "::text"), d.orderAs(), c.From("only "+leaf),
		cmp.Or(c.Narrow("$1", "$2"), "true"))
	return sql, strings.Replace(d.PickTail("1"), "\n limit", "\n offset $4 - 1 limit", 1) + "\n) s"
}

// RangeFacts are the parts of a range's statements, which have parameters as values lists them.
func (d *Definition) RangeFacts() map[string]any {
	first, narrow := d.Order()[0], d.Condition().Narrow("$1", "$2")
	if narrow == "" {
		narrow = "true"
	}
	facts := map[string]any{
		"Narrow": narrow, "Tied": len(d.Order()) > 1, "ThroughTie": fmt.Sprintf("%s <= ($6[1])::%s", first.SQL, first.Cast),
	}
	if len(d.Order()) > 1 {
		facts["InTie"] = fmt.Sprintf("%s = ($6[1])::%s", first.SQL, first.Cast)
		facts["BeforeTie"] = fmt.Sprintf("%s < ($6[1])::%s", first.SQL, first.Cast)
		facts["AfterInTie"] = d.beside(1, ">", "$5")
		facts["ToLastInTie"] = d.beside(1, "<=", "$6")
	}
	return facts
}

// values are what the statements of a batch have for parameters: all of them have all, so that a number means one thing.
func (d *Definition) values() string {
	all := []string{"claim.cutoff", "bound", "claim.target", "work.row_limit", "aim.after", "aim.last", "aim.rows_at"}
	switch {
	case len(d.Slices) > 0:
		all = append(all, "place.modulus", "place.remainder")
	case d.Ranged():
		all = append(all, "place.lower", "place.upper")
	}
	return "using " + strings.Join(all, ", ")
}
