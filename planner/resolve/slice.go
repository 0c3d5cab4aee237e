package resolve

import (
	"context"
	"fmt"
	"strings"

	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/schemas"
)

// sliceColumns finds the columns from which slices are computed: the key's if the file names none.
func (s *resolution) sliceColumns(ctx context.Context, t *database.Table) error {
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
	all, err := database.Collect[column](ctx, s.tx, `
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
