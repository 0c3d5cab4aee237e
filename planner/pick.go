package planner

import (
	"fmt"
	"strings"
)

// A pick is the SELECT that finds a batch's rows, locks them and says where the next batch goes on: by keyset on (the
// expiry's order, the key), so that no batch reads what a former one has read. The deletion function carries it with
// parameters, and `lapse plan` shows it with literals; both are made of these three parts.

// pickSelect is the pick up to its condition. leaf is the relation in SQL; cutoff and bound are SQL values.
func (d *Definition) pickSelect(leaf, cutoff, bound string) string {
	var places strings.Builder
	for i, o := range d.order() {
		fmt.Fprintf(&places, ", %s as k%d", o.SQL, i+1)
	}
	c := d.condition()
	return fmt.Sprintf("select t.ctid as at%s\n  from %s\n where %s",
		places.String(), c.From("only "+leaf), allOf("\n   and ", c.Narrow(cutoff, bound), c.Exact(cutoff, bound)))
}

// pickAfter is the condition that leaves out what lies at or before the cursor, an array of texts in SQL.
func (d *Definition) pickAfter(cursor string) string {
	var expressions, after []string
	for i, o := range d.order() {
		expressions, after = append(expressions, o.SQL), append(after, fmt.Sprintf("(%s[%d])::%s", cursor, i+1, o.Cast))
	}
	return fmt.Sprintf("   and (%s) > (%s)", strings.Join(expressions, ", "), strings.Join(after, ", "))
}

// pickTail is the pick from its order on. A row that somebody else has locked is left for the residual pass.
func (d *Definition) pickTail(limit string) string {
	var expressions []string
	for _, o := range d.order() {
		expressions = append(expressions, o.SQL)
	}
	return fmt.Sprintf(" order by %s\n limit %s\n   %s", strings.Join(expressions, ", "), limit, d.condition().Lock())
}

// lastPlace is the SQL of the cursor after a pick p: the texts of its last row's order columns.
func (d *Definition) lastPlace() string {
	var texts []string
	for i := range d.order() {
		texts = append(texts, fmt.Sprintf("((array_agg(p.k%d))[count(*)])::text", i+1))
	}
	return "array[" + strings.Join(texts, ", ") + "]"
}

// left is the SELECT by which a shard's last batch asks whether due rows stay behind. The leaf's oid is $3.
func (d *Definition) left(leaf string) string {
	c := d.condition()
	return fmt.Sprintf("  select from %s\n   where %s", strings.ReplaceAll(c.From("only "+leaf), "\n", "\n  "),
		allOf("\n     and ", c.Narrow("$1", "$2"), "t.tableoid = $3 and "+c.Exact("$1", "$2")))
}

// allOf joins conditions, of which the first may be "".
func allOf(and, first, second string) string {
	if first == "" {
		return second
	}
	return first + and + second
}
