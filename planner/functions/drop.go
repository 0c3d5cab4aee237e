package functions

import (
	"fmt"
	"slices"

	"lapse/planner/expiry"
	"lapse/planner/policyfile"
	"lapse/schemas"
)

// countedPages is how many pages of a partition are counted before the function checks whether a session waits to write into it: some tens
// of milliseconds' worth.
const countedPages = 2048

// DropFunction names the function of a policy version that drops partitions, with its schema.
func DropFunction(id schemas.PolicyID, version schemas.PolicyVersion) string {
	return fmt.Sprintf("lapse.drop_%d_%d", id, version)
}

// DropsPartitions reports whether a partition is dropped whole when every row in it is due.
func (d *Definition) DropsPartitions() bool { return d.Action == policyfile.ActionDropPartition }

// DueColumn returns the column that rows expire by and its type, if the end of a range of it can be compared with the bound; otherwise
// both are "".
func (d *Definition) DueColumn() (name, cast string) {
	o := d.Expire.Order()
	comparable := []string{string(expiry.Timestamptz), string(expiry.Timestamp), string(expiry.Date), "smallint", "integer", "bigint", "numeric"}
	if o.Column == "" || d.Expire.Bound("now()").IsZero() || !slices.Contains(comparable, o.Cast) {
		return "", ""
	}
	return o.Column, o.Cast
}

// dropFunction is the text of the function that drops partitions.
func (d *Definition) dropFunction() (string, error) {
	c := d.Condition()
	column, cast := d.DueColumn()
	likely := ""
	if d.certain() {
		likely = c.Narrow("$1", "$2")
	}
	return fill("drop.sql.tmpl", map[string]any{
		"Name": DropFunction(d.ID, d.Version), "Delete": DeleteFunction(d.ID, d.Version), "ID": d.ID, "Version": d.Version,
		"Policy": schemas.Literal(string(d.Name)), "Table": d.Table, "Batch": d.Batch, "Proof": schemas.CallerProof, "Bound": BoundOf(d.Expire, "claim.cutoff"),
		"DueColumn": schemas.Literal(column), "DueCast": cast, "Likely": likely, "Exact": c.Exact("$1", "$2"), "Instant": d.Expire.Instant(),
		"Chunk": countedPages,
	})
}
