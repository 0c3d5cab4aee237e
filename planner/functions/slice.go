package functions

import (
	"fmt"
	"slices"

	"lapse/planner/expiry"
	"lapse/schemas"
)

// A slice is a part of a leaf that one worker works on while others work on the rest. Slices are disjoint, and together they are
// the leaf, or its due rows at least. An update can carry a row from one slice into another that is done already: the residual
// shard of the leaf, which is all of it, follows the others.
//
// A row is in the hash slice that the text of its columns says, NULL being the empty text. It is in the range slice in which
// its place in the order is: see within.

// SliceHash is the SQL of a row's hash, not negative, over the texts of columns. PostgreSQL has the function for every
// type's text, and the same on every major; the functions pin the settings that a text depends on.
func SliceHash(columns []string) string {
	hash := "0"
	for _, c := range columns {
		hash = fmt.Sprintf(`hashtextextended(coalesce((t.%s)::text, '') collate "C", %s)`, schemas.Identifier(c), hash)
	}
	return "(" + hash + " & 9223372036854775807)"
}

// Slice is the condition that a row is in a hash slice; all rows are where modulus is null.
func (d *Definition) Slice(modulus, remainder string) string {
	names := make([]string, 0, len(d.Slices))
	for _, c := range d.Slices {
		names = append(names, c.Name)
	}
	return fmt.Sprintf("case when %s is null then true else %s %% %s = %s end", modulus, SliceHash(names), modulus, remainder)
}

// So many batches' worth is much, and so many rows.
const (
	backlogBatches = 20
	backlogRows    = 20000
)

// Backlog is how many due rows of a leaf are much.
func Backlog(batch int) int { return max(backlogBatches*batch, backlogRows) }

// Ranged reports whether leaves may be cut into ranges: in the order of a column that is an instant, and not cut by hash. One that
// may be dropped whole is one shard.
func (d *Definition) Ranged() bool {
	o := d.Expire.Order()
	return len(d.Slices) == 0 && !d.DropsPartitions() && o.Column != "" &&
		slices.Contains([]expiry.ColumnType{expiry.Timestamptz, expiry.Timestamp, expiry.Date}, expiry.ColumnType(o.Cast))
}
