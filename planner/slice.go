package planner

import (
	"context"
	"fmt"
	"strings"

	"lapse/planner/expiry"
	"lapse/schemas"
)

// A slice is a part of a leaf that one worker works on while others work on the rest. Slices are disjoint, and together they are
// the leaf, or its due rows at least. An update can carry a row from one slice into another that is done already: the residual
// shard of the leaf, which is all of it, follows the others.
//
// A row is in the hash slice that the text of its columns says, NULL being the empty text. It is in the range slice in which
// its place in the order is: see range.go.

// sliceHash is the SQL of a row's hash, not negative, over the texts of columns. PostgreSQL has the function for every
// type's text, and the same on every major; the functions pin the settings that a text depends on.
func sliceHash(columns []string) string {
	hash := "0"
	for _, c := range columns {
		hash = fmt.Sprintf(`hashtextextended(coalesce((t.%s)::text, '') collate "C", %s)`, schemas.Identifier(c), hash)
	}
	return "(" + hash + " & 9223372036854775807)"
}

// slice is the condition that a row is in a hash slice; all rows are where modulus is null.
func (d *Definition) slice(modulus, remainder string) string {
	names := make([]string, 0, len(d.Slices))
	for _, c := range d.Slices {
		names = append(names, c.Name)
	}
	return fmt.Sprintf("case when %s is null then true else %s %% %s = %s end", modulus, sliceHash(names), modulus, remainder)
}

// sliceColumns finds the columns that slices go by: the key's if the file names none.
func (s *resolution) sliceColumns(ctx context.Context, t *table) error {
	d, shards := &s.r.Definition, s.p.Shards
	if shards == nil {
		return nil
	}
	names := shards.By
	if len(names) == 0 {
		for _, k := range d.Key {
			names = append(names, k.Name)
		}
	}
	type column struct {
		expiry.Column
		Virtual bool
	}
	all, err := collect[column](ctx, s.tx, `
		select a.attname::text, a.attnum, format_type(a.atttypid, null), a.attgenerated = 'v'
		  from unnest($2::text[]) with ordinality w(name, n)
		  join pg_attribute a on a.attrelid = $1 and a.attname = w.name and a.attnum > 0 and not a.attisdropped
		 order by w.n`, t.OID, names)
	if err != nil {
		return fmt.Errorf("find the columns of shards: %w", err)
	}
	there := map[string]bool{}
	for _, c := range all {
		there[c.Name] = true
		if c.Virtual {
			s.complain("shards", fmt.Sprintf("column %s of %s is a virtual generated column: it is computed when it is read, and an error in it would stop the policy; name another in shards: by", c.Name, t.Name))
		}
		d.Slices = append(d.Slices, c.Column)
	}
	var missing []string
	for _, name := range names {
		if !there[name] {
			missing = append(missing, schemas.Identifier(name))
		}
	}
	if len(missing) > 0 {
		s.complain("shards", fmt.Sprintf("%s has no column %s, which shards: by names", t.Name, strings.Join(missing, ", ")))
	}
	return nil
}
