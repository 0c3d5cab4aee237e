package functions

import (
	"fmt"
	"strconv"
	"strings"

	"lapse/planner/expiry"
	"lapse/schemas"
)

// A pick finds a batch's rows, locks them and says where the next batch continues: by keyset on (the expiry's order, the key), so that no
// batch reads what an earlier one has read. The deletion function contains it with parameters, most of them hidden (unknown), and `lapse plan`
// shows it with literals; both are made of the same parts. A range with a sidecar uses the same search, for the addresses of
// the sidecar's rows. shape.go has the other shapes of a batch.
//
// A candidate is a row that the bound lets through. If a candidate need not be due (expiry.Condition.Certain), a batch checks at most
// lookAhead times as many candidates as it may delete rows. Otherwise millions of rows that are past the bound but not due would use up
// the statement's time. The next batch continues after the last candidate. Rows are found without locks, and then locked by their addresses
// if the batch's shape locks at all; rows that another session has locked are left for the residual pass.

// LookAhead is how many candidates a batch checks for each row that it may delete. Checking one costs at most an eighth of a deletion, so
// the worst batch takes as long as a full one.
const LookAhead = 8

// certain reports whether every candidate is due and belongs to the shard.
func (d *Definition) certain() bool { return d.Condition().Certain() && len(d.Slices) == 0 }

// PickSelect is the pick up to its condition, or, if candidates need not be due, the SELECT of candidates with a column that says whether
// each is due. leaf is the relation in SQL; cutoff and bound are SQL values; own is true for a row of the leaf, "" if the statement can
// find no other rows.
func (d *Definition) PickSelect(leaf, cutoff, bound, own string) string {
	return d.pickSelect("t.ctid", leaf, d.Condition().Narrow(cutoff, bound), cutoff, bound, own)
}

// pickSelect is PickSelect, with the address that it selects, and with what an index can use of the condition.
func (d *Definition) pickSelect(at, leaf, narrow, cutoff, bound, own string) string {
	c, columns := d.Condition(), at+" as at, "+d.orderAs()
	from := c.From("only " + leaf)
	exact := c.Exact(cutoff, bound)
	if own != "" {
		exact = own + " and " + exact
	}
	if d.certain() {
		return fmt.Sprintf("select %s\n  from %s\n where %s\n   and %s", columns, from, narrow, exact)
	}
	if narrow == "" {
		narrow = "true"
	}
	return fmt.Sprintf("select %s,\n       %s as due\n  from %s\n where %s", columns, exact, c.Candidates("only "+leaf), narrow)
}

// orderAs are the order columns as the columns of a SELECT.
func (d *Definition) orderAs() string {
	var columns []string
	for i, o := range d.Order() {
		columns = append(columns, fmt.Sprintf("%s as k%d", o.SQL, i+1))
	}
	return strings.Join(columns, ", ")
}

// PickAfter is the condition that excludes rows at or before the cursor: values of the order columns' types, in SQL.
func (d *Definition) PickAfter(cursor []string) string { return d.beside(0, ">", cursor) }

// beside compares a row's order columns, from the first-th on, with those of a place.
func (d *Definition) beside(first int, operator string, place []string) string {
	var expressions []string
	for _, o := range d.Order()[first:] {
		expressions = append(expressions, o.SQL)
	}
	return fmt.Sprintf("(%s) %s (%s)", strings.Join(expressions, ", "), operator, strings.Join(place[first:], ", "))
}

// Within are the two conditions for a row to be in a range slice: above lower, and up to upper, which are SQL values of the first order
// column. Only that column counts, so that rows due at the same instant are in one slice.
func (d *Definition) Within(lower, upper string) (above, upTo string) {
	first := d.Order()[0].SQL
	return first + " > " + lower, first + " <= " + upper
}

// PickTail is the pick from its order on.
func (d *Definition) PickTail(limit string) string {
	var expressions []string
	for _, o := range d.Order() {
		expressions = append(expressions, o.SQL)
	}
	return fmt.Sprintf(" order by %s\n limit %s", strings.Join(expressions, ", "), limit)
}

// places are the order columns of a row of relation r, with their texts or without.
func (d *Definition) places(r, cast string) string {
	var columns []string
	for i := range d.Order() {
		columns = append(columns, fmt.Sprintf("%s.k%d%s", r, i+1, cast))
	}
	return strings.Join(columns, ", ")
}

// lastFound is SQL for the order columns, as texts, of the last of the rows of relation r that an aggregate goes over.
func (d *Definition) lastFound(r string) string {
	var columns []string
	for i := range d.Order() {
		columns = append(columns, fmt.Sprintf("(array_agg(%s.k%d))[count(*)]::text", r, i+1))
	}
	return strings.Join(columns, ", ")
}

// findStatement is how a batch of limit rows finds them among a number of candidates, without its cursor.
func (d *Definition) findStatement(leaf, cutoff, bound, limit, looks string) string {
	if d.certain() {
		return d.PickSelect(leaf, cutoff, bound, "") + "\n" + d.PickTail(limit)
	}
	own := ""
	if len(d.Expire.Joins()) > 0 {
		own = "t.tableoid is not null"
	}
	return fmt.Sprintf("select s.at, %s\n  from (\n%s\n%s\n) s\n where s.due\n limit %s", d.places("s", ""),
		d.PickSelect(leaf, cutoff, bound, own), d.PickTail(looks), limit)
}

// LowWater is the bound at an instant up to which a leaf may have no due rows, as lapse.low_mark stores it; nil for a policy without such
// marks. A policy has them only if its order is by the bound's column, every row within the bound is due, and a row becomes due only by
// time or by an update of that column. A policy with where has none, because rows that start to meet it would be found late as a rule.
func (d *Definition) LowWater(at string) *expiry.Bound {
	b := d.Expire.Bound(at)
	if !d.Condition().Certain() || d.Where.Text() != "" || d.Expire.Order().SQL == "" || d.Expire.Order().SQL != b.Column {
		return nil
	}
	return &b
}

// pickStatement is how a batch finds its rows on one leaf, with literals instead of the deletion function's parameters. leaf is SQL; cutoff
// and bound are texts, the bound "" for a kind without one.
func (d *Definition) pickStatement(leaf, cutoff, bound string) string {
	bound = schemas.Literal(bound) + "::" + BoundOf(d.Expire, "").Type
	return d.findStatement(leaf, schemas.Literal(cutoff)+"::timestamptz", bound, strconv.Itoa(d.Batch), strconv.Itoa(LookAhead*d.Batch))
}

// Statement is how a batch of a shape finds its rows.
func (d *Definition) Statement(shape, leaf, cutoff, bound string) string {
	if shape != ShapeHeap {
		return d.pickStatement(leaf, cutoff, bound)
	}
	bound = schemas.Literal(bound) + "::" + BoundOf(d.Expire, "").Type
	return fmt.Sprintf("%s\n   and t.ctid > '(0,0)' and t.ctid < '(%d,0)'\n limit %d",
		d.HeapSelect(leaf, schemas.Literal(cutoff)+"::timestamptz", bound, "t.tableoid is not null"), d.Batch/2+32, d.Batch)
}
