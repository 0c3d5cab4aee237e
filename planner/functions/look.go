package functions

import (
	"fmt"
	"slices"
	"strings"

	"lapse/planner/expiry"
	"lapse/schemas"
)

// LookRows is how many candidates, which may not be due, a look reads of each leaf.
const LookRows = 10000

// DueFunction names the function of a policy version that looks, with its schema.
func DueFunction(id schemas.PolicyID, version schemas.PolicyVersion) string {
	return fmt.Sprintf("lapse.due_%d_%d", id, version)
}

// dueArguments are the types of a look function's parameters.
const dueArguments = "(timestamptz, bigint[])"

// dueFunction is the text of the function that looks.
func (d *Definition) dueFunction() (string, error) {
	whole := *d
	whole.Slices = nil
	order, column := d.Expire.Order(), ""
	if d.Divides() {
		column = order.Column
	}
	by := whole.Order()
	var expressions []string
	for _, o := range by {
		expressions = append(expressions, o.SQL)
	}
	narrow, floor := whole.narrowAbove("$1", "$2")
	kept, _ := whole.narrowAbove("cutoff", "bound")
	return fill("look.sql.tmpl", map[string]any{
		"Proof": schemas.CallerProof,
		"Name":  DueFunction(d.ID, d.Version), "ID": d.ID, "Version": d.Version, "Policy": d.Name, "Table": d.Table,
		"Joined": d.joinedNames(), "Bound": BoundOf(d.Expire, "cutoff"), "Certain": whole.certain(), "Looks": LookRows,
		"Column": schemas.Literal(column), "Divided": column != "", "Low": d.LowWater("sight.low"), "Settled": d.settled(),
		"Select": onLeaf(whole.pickSelect("t.ctid", leafMark, narrow, "$1", "$2", "t.tableoid = $3"), "place.name"), "Floor": floor, "Above": unknown("$5"),
		"Whole": whole.pickSelect("t.ctid", d.Table, kept, "cutoff", "bound", "t.tableoid = place.leaf"), "Literal": schemas.Literal(d.Table), "AboveKept": unknown("low_at"),
		"Order": strings.Join(expressions, ", "),
	})
}

// Divides reports whether a partition's bounds show if it can have due rows: the expiry's bound is on a column that is an instant.
func (d *Definition) Divides() bool {
	o := d.Expire.Order()
	return o.Column != "" && !d.Expire.Bound("now()").IsZero() &&
		slices.Contains([]expiry.ColumnType{expiry.Timestamptz, expiry.Timestamp, expiry.Date}, expiry.ColumnType(o.Cast))
}

// settled is how far within the bound a row must be so that time alone cannot make it due, in SQL; "" if the bounds of partitions do not
// show it.
func (d *Definition) settled() string {
	if !d.Divides() || len(d.Expire.Joins()) > 0 {
		return ""
	}
	return d.Expire.Bound("now()").Settled
}
