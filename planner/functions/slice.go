package functions

import (
	"fmt"
	"slices"

	"lapse/planner/expiry"
	"lapse/schemas"
)

// A slice is a part of a leaf that one worker works on while others work on the rest. Slices are disjoint, and together they contain the
// leaf, or at least its due rows. An update can move a row from one slice into another that is already done, so the leaf's residual shard,
// which is all of the leaf, follows the others.
//
// A row's hash slice follows from the text of its columns, with NULL as the empty text. Its range slice follows from its place in the order, or,
// where batches go by the file (ShapeHeap), from its page.

// SliceHash is SQL for a row's hash, not negative, over the texts of columns. PostgreSQL has the function for every type's text, the same in
// every major version; the functions pin the settings that a text depends on.
func SliceHash(columns []string) string {
	hash := "0"
	for _, c := range columns {
		hash = fmt.Sprintf(`hashtextextended(coalesce((t.%s)::text, '') collate "C", %s)`, schemas.Identifier(c), hash)
	}
	return "(" + hash + " & 9223372036854775807)"
}

// Slice is the condition for a row to be in a hash slice; if modulus is null, every row is.
func (d *Definition) Slice(modulus, remainder string) string {
	names := make([]string, 0, len(d.Slices))
	for _, c := range d.Slices {
		names = append(names, c.Name)
	}
	return fmt.Sprintf("case when %s is null then true else %s %% %s = %s end", modulus, SliceHash(names), modulus, remainder)
}

// From so many batches' worth of due rows, and from so many rows, a leaf has a backlog.
const (
	backlogBatches = 8
	backlogRows    = 20000
)

// Backlog is the number of due rows from which a leaf has a backlog.
func Backlog(batch int) int { return max(backlogBatches*batch, backlogRows) }

// Ranged reports whether leaves may be cut into ranges: if the order is that of a column that is an instant, and leaves are not cut by hash. A
// leaf that may be dropped whole is always one shard.
func (d *Definition) Ranged() bool {
	o := d.Expire.Order()
	return len(d.Slices) == 0 && !d.DropsPartitions() && o.Column != "" &&
		slices.Contains([]expiry.ColumnType{expiry.Timestamptz, expiry.Timestamp, expiry.Date}, expiry.ColumnType(o.Cast))
}
