package functions

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"lapse/schemas"
)

// The shapes of a batch: how it finds its rows. Which of them a deletion function has depends on its policy. The caller chooses one for each
// batch; the choice only affects speed.
const (
	// ShapeRange counts the first due rows in the order, without locks, and deletes the range from the cursor to the last of their values. It
	// waits for locked rows, and the batch fails at its lock timeout. It refuses to delete more than twice its limit. If too many rows for
	// a portion share one value, they are found in the order of the table's file. If the condition reads another relation, the addresses of
	// that relation's rows are found instead of a range, and the DELETE locks each of them before it looks at the row that belongs to it.
	ShapeRange = "range"
	// ShapePick locks those rows by their addresses and deletes them by their addresses; it skips rows that another session has locked.
	ShapePick = "pick"
	// ShapeHeap is a range in the order of the table's file: the due rows of a number of pages. If the index's order scatters over the table, or
	// there is no index, it reads and writes each page only once. Its cursor names the file: if the file was rewritten (VACUUM FULL,
	// CLUSTER), it begins again at the start.
	ShapeHeap = "heap"
	// ShapeHeapPick is to ShapeHeap what ShapePick is to ShapeRange.
	ShapeHeapPick = "heap pick"
)

// PicksInstead is the shape that finds its rows in the same order, but skips those that another session has locked.
func PicksInstead(shape string) string {
	if shape == ShapeHeap || shape == ShapeHeapPick {
		return ShapeHeapPick
	}
	return ShapePick
}

// Shapes are the shapes in which the version's batches can find their rows, the usual one first. If the condition reads another relation,
// batches follow that relation's index and not the table's file. If no index can have the order, only the table's file is left.
func (d *Definition) Shapes() []string {
	switch {
	case len(d.Expire.Joins()) > 0:
		return []string{ShapeRange, ShapePick}
	case !d.Ordered():
		return []string{ShapeHeap, ShapeHeapPick}
	}
	return []string{ShapeRange, ShapePick, ShapeHeap, ShapeHeapPick}
}

// shapesList is Shapes as an SQL list.
func (d *Definition) shapesList() string {
	var all []string
	for _, s := range d.Shapes() {
		all = append(all, schemas.Literal(s))
	}
	return strings.Join(all, ", ")
}

// HeapSelect is the SELECT of due rows' addresses, up to where in the file they are searched. No index can serve its condition, so rows come
// in the order of the file.
func (d *Definition) HeapSelect(leaf, cutoff, bound, own string) string {
	c := d.Condition()
	return fmt.Sprintf("select t.ctid as at\n  from %s\n where %s\n   and (%s) is true", c.From("only "+leaf), own, c.Exact(cutoff, bound))
}

// EdgeSelect is the SELECT of the candidates' values: an index with the order answers it without the table. The DELETE restates the rest.
func (d *Definition) EdgeSelect(leaf, cutoff, bound string) string {
	narrow, _ := d.narrowAbove(cutoff, bound)
	return fmt.Sprintf("select %s\n  from %s\n where %s", d.orderAs(), d.Condition().Candidates("only "+leaf), cmp.Or(narrow, "true"))
}

// narrowAbove is what an index can use of the condition, and what a pass that begins at the start asks for besides: every place of a
// cursor lies above that.
func (d *Definition) narrowAbove(cutoff, bound string) (narrow, floor string) {
	c := d.Condition()
	switch {
	case c.Kind.Bound(cutoff).Column != d.Order()[0].SQL:
		return c.Narrow(cutoff, bound), ""
	case len(d.Expire.Joins()) == 0: // otherwise what is joined to what depends on the guess
		bound = unknown(bound)
	}
	return c.NarrowAbove(cutoff, bound)
}

// unknown hides a value's size from PostgreSQL's planner. To guess how many rows lie below or above a value near the end of an index, it reads
// the index from there, and at that end are the rows that were deleted since the last vacuum. No search depends on the guess: it asks for the
// order, and the DELETE for a range of it.
func unknown(value string) string { return "(select " + value + ")" }

const (
	// beyond is an address after all rows, as in a cursor of a tie that was gone through.
	beyond = "(4294967294,65535)"
	// fewTies is how many rows of one value are read by the index for each batch: it reads 16 for each that it deletes at most. More of them
	// are found by reading the table's file, once.
	fewTies = "16 * $4 + 20000"
)

// RangeFacts are the parts of the statements that follow the order, with the parameters of values: $10 is the last value of a range, or the
// value of a tie, and $11 the value that the cursor has passed.
func (d *Definition) RangeFacts() map[string]any {
	narrow, _ := d.narrowAbove("$1", "$2")
	facts := map[string]any{"Ordered": d.Ordered(), "Beyond": beyond, "FewTies": fewTies, "Narrow": cmp.Or(narrow, "true")}
	if d.Ordered() {
		first := d.Order()[0]
		facts["First"], facts["By"] = first.Cast, first.SQL
		of, collation, there := strings.Cut(first.Cast, " collate ")
		facts["FirstArray"] = of + "[]"
		if there {
			facts["FirstArray"] = of + "[] collate " + collation
		}
		facts["Through"], facts["InTie"], facts["Before"], facts["After"] = first.SQL+" <= "+unknown("$10"), first.SQL+" = $10", first.SQL+" < "+unknown("$10"), first.SQL+" > "+unknown("$11")
	}
	return facts
}

// values are the parameters of a batch's statements; a number means the same in all of them. Values of the order have the order's type: if
// they were texts, PostgreSQL would convert them for each row it compares.
func (d *Definition) values() []string {
	all := []string{"claim.cutoff", "bound", "claim.target", "work.row_limit", "from_at", "upto_at", "aim.rows_at", "place.modulus", "place.remainder"}
	switch {
	case len(d.Expire.Joins()) > 0:
		return slices.Replace(all, 4, 6, "null", "null")
	case d.Ranged():
		all = slices.Replace(all, 7, 9, "lower_1", "upper_1")
	}
	if d.Ordered() {
		all = append(all, "last_1", "after_1")
	}
	return all
}

// cursor returns the values of a joined policy's cursor as variables, and their parameters.
func (d *Definition) cursor() (all []typed, parameters []string) {
	for i, o := range d.Order() {
		all = append(all, typed{fmt.Sprintf("after_%d", i+1), o.Cast, fmt.Sprintf("place.cursor[%d]", i+1)})
		parameters = append(parameters, fmt.Sprintf("$%d", len(d.values())+i+1))
	}
	return all, parameters
}

// typed is a variable of an order column's type, and the SQL of its value.
type typed struct{ Name, Type, Value string }

// using is the USING of a statement with the values and further variables.
func (d *Definition) using(further ...typed) string {
	all := d.values()
	for _, v := range further {
		all = append(all, v.Name)
	}
	return "using " + strings.Join(all, ", ")
}
