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
	after, last := d.parameters(0), d.parameters(len(d.Order()))
	facts := map[string]any{
		"Narrow": narrow, "Tied": len(d.Order()) > 1, "ThroughTie": fmt.Sprintf("%s <= %s", first.SQL, last[0]),
	}
	if len(d.Order()) > 1 {
		facts["InTie"] = fmt.Sprintf("%s = %s", first.SQL, last[0])
		facts["BeforeTie"] = fmt.Sprintf("%s < %s", first.SQL, last[0])
		facts["AfterInTie"] = d.beside(1, ">", after)
		facts["ToLastInTie"] = d.beside(1, "<=", last)
	}
	return facts
}

// values are what the statements of a batch have for parameters: a number means one thing in all of them. Behind them come the
// places, of the order columns' types: PostgreSQL would read a text anew for each row that it compares with it.
func (d *Definition) values() []string {
	all := []string{"claim.cutoff", "bound", "claim.target", "work.row_limit", "aim.after", "aim.last", "aim.rows_at"}
	switch {
	case len(d.Slices) > 0:
		all = append(all, "place.modulus", "place.remainder")
	case d.Ranged():
		all = append(all, "lower_1", "upper_1")
	}
	return all
}

// parameters are the order columns' parameters behind the values, and behind so many others.
func (d *Definition) parameters(behind int) (all []string) {
	for i := range d.Order() {
		all = append(all, fmt.Sprintf("$%d", len(d.values())+behind+i+1))
	}
	return all
}

// typed is a variable of an order column's type, and the SQL that reads it from a place's texts.
type typed struct{ Name, Type, Value string }

// typedPlace are the variables of a place. name is what they are called, texts an array in SQL.
func (d *Definition) typedPlace(name, texts string) (all []typed) {
	for i, o := range d.Order() {
		all = append(all, typed{fmt.Sprintf("%s_%d", name, i+1), o.Cast, fmt.Sprintf("(%s[%d])::%s", texts, i+1, o.Cast)})
	}
	return all
}

// using is the USING of a statement with the values and the places.
func (d *Definition) using(places ...[]typed) string {
	all := d.values()
	for _, place := range places {
		for _, v := range place {
			all = append(all, v.Name)
		}
	}
	return "using " + strings.Join(all, ", ")
}
