package planner

import (
	"fmt"
	"strings"
)

// A pick is the SELECT that finds a batch's rows, locks them and says where the next batch goes on: by keyset on (the
// policy's column, the key), so that no batch reads what a former one has read. The deletion function carries it with
// parameters, and `lapse plan` shows it with literals; both are made of these three parts.

// pickSelect is the pick up to its condition. leaf is the relation in SQL; cutoff and bound are SQL values.
func (d *Definition) pickSelect(leaf, cutoff, bound string) string {
	expressions, _ := d.orderColumns()
	var places strings.Builder
	for i, e := range expressions {
		fmt.Fprintf(&places, ", %s as k%d", e, i+1)
	}
	return fmt.Sprintf("select t.ctid as at%s\n  from only %s as t\n where %s <= %s\n   and %s",
		places.String(), leaf, d.column(), bound, d.due(cutoff, bound))
}

// pickAfter is the condition that leaves out what lies at or before the cursor, an array of texts in SQL.
func (d *Definition) pickAfter(cursor string) string {
	expressions, casts := d.orderColumns()
	after := make([]string, 0, len(casts))
	for i, cast := range casts {
		after = append(after, fmt.Sprintf("(%s[%d])::%s", cursor, i+1, cast))
	}
	return fmt.Sprintf("   and (%s) > (%s)", strings.Join(expressions, ", "), strings.Join(after, ", "))
}

// pickTail is the pick from its order on. A row that somebody else has locked is left for the residual pass.
func (d *Definition) pickTail(limit string) string {
	expressions, _ := d.orderColumns()
	return fmt.Sprintf(" order by %s\n limit %s\n   for update skip locked", strings.Join(expressions, ", "), limit)
}

// lastPlace is the SQL of the cursor after a pick p: the texts of its last row's order columns.
func (d *Definition) lastPlace() string {
	expressions, _ := d.orderColumns()
	texts := make([]string, 0, len(expressions))
	for i := range expressions {
		texts = append(texts, fmt.Sprintf("((array_agg(p.k%d))[count(*)])::text", i+1))
	}
	return "array[" + strings.Join(texts, ", ") + "]"
}
