package functions

import (
	"fmt"
	"strconv"
	"strings"

	"lapse/planner/expiry"
	"lapse/schemas"
)

// A pick finds a batch's rows, locks them and says where the next batch goes on: by keyset on (the expiry's order, the key), so
// that no batch reads what a former one has read. The deletion function carries it with parameters, and `lapse plan` shows it
// with literals; both are made of the same parts. Other shapes of a batch are in shape.go.
//
// A candidate is a row that the bound lets through. Where a candidate need not be due (expiry.Condition.Certain), a batch checks
// lookAhead times as many candidates as it may delete rows and no more, or millions of rows that are past and not due would keep
// it until the statement's time is over; the next batch goes on after the last candidate that it saw. Rows are found without
// locks, and then locked by their addresses where the batch's shape wants locks: those that somebody else has locked are left
// for the residual pass.

// LookAhead is how many candidates a batch checks for each row that it may delete. Checking one costs an eighth of a deletion or
// less, so that the worst batch takes as long as a full one.
const LookAhead = 8

// certain reports whether every candidate is due, and the shard's.
func (d *Definition) certain() bool { return d.Condition().Certain() && len(d.Slices) == 0 }

// PickSelect is the pick up to its condition, or the SELECT of the candidates with what says whether one is due. leaf is the
// relation in SQL; cutoff and bound are SQL values; own is true of a row of the leaf, "" where
// nothing else can be found.
func (d *Definition) PickSelect(leaf, cutoff, bound, own string) string {
	c, columns := d.Condition(), "t.ctid as at, "+d.orderAs()
	from, narrow := c.From("only "+leaf), c.Narrow(cutoff, bound)
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

// PickAfter is the condition that leaves out what lies at or before the cursor: values of the order columns' types, in SQL.
func (d *Definition) PickAfter(cursor []string) string { return d.beside(0, ">", cursor) }

// beside compares a row's order columns from the one numbered first on with those of a place.
func (d *Definition) beside(first int, operator string, place []string) string {
	var expressions []string
	for _, o := range d.Order()[first:] {
		expressions = append(expressions, o.SQL)
	}
	return fmt.Sprintf("(%s) %s (%s)", strings.Join(expressions, ", "), operator, strings.Join(place[first:], ", "))
}

// Within are the two conditions that a row lies in a range slice: above lower, and up to upper, values of the first order column
// in SQL. It is the first alone, so that rows which are due at one instant are in one slice.
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

// LastPlace is the SQL of a cursor: the texts of the last row's order columns of relation r, in the order in which it gives
// its rows; null if it has none.
func (d *Definition) LastPlace(r string) string {
	return fmt.Sprintf("(select array[%s] from %s r offset (select greatest(count(*) - 1, 0) from %s))", d.places("r", "::text"), r, r)
}

// findStatement is how a batch of limit rows finds them among so many candidates, without its cursor.
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

// LowWater is the bound at an instant, up to which a leaf may be empty of due rows, as lapse.low_mark has it; nil for a policy that has no
// such marks. It must be ordered by what the bound is of, every row within the bound must be due, and none becomes due but by time or by
// an update of that column: where the file has a condition, rows that come to meet it would be found late as a rule.
func (d *Definition) LowWater(at string) *expiry.Bound {
	b := d.Expire.Bound(at)
	if !d.Condition().Certain() || d.Where.Text() != "" || d.Expire.Order().SQL == "" || d.Expire.Order().SQL != b.Column {
		return nil
	}
	return &b
}

// pickStatement is how a batch finds its rows on one leaf, with literals for what the deletion function has parameters for.
// leaf is SQL; cutoff and bound are texts, the bound's "" for a kind that has none.
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
