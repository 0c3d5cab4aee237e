package resolve

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/policyfile"
	"lapse/schemas"
)

// The write-ahead log contains only the replica identity of a deleted row. If a policy wants more as evidence (the column that made the row
// due, or columns for its events), the identity must contain those columns. FULL does not help: the log would have every column, but nothing
// would say which of them identify the row.

// wantedColumn is a column that the replica identity must contain, with the key of the policy file that wants it.
type wantedColumn struct{ name, key string }

// evidence complains about columns that the evidence needs but the log does not contain.
func (s *resolution) evidence(ctx context.Context, t *database.Table) error {
	var wanted []wantedColumn
	if s.p.Evidence == policyfile.EvidenceDue {
		due, why := expiry.Elsewhere(s.r.Definition.Expire)
		switch {
		case due == nil:
			s.complain("evidence", "evidence: due is not possible here, since the auditor, which has the log and not the database, must find out by itself "+
				"whether a row was due, and "+why)
		case s.p.Action.Kind == policyfile.ActionDropPartition:
			s.complain("evidence", "evidence: due and action: drop_partition exclude each other: the rows of a dropped partition are not in the log")
		default:
			wanted = append(wanted, wantedColumn{due.Column, "evidence"})
		}
	}
	for _, name := range s.p.Events.Columns {
		wanted = append(wanted, wantedColumn{name, "events.columns"})
	}
	key := s.r.Definition.Key
	if len(wanted) == 0 || len(key) == 0 { // without a key the policy is refused anyway
		return nil
	}
	if err := s.identityHas(ctx, t, wanted); err != nil {
		return err
	}
	rest := slices.ContainsFunc(key, func(k functions.KeyColumn) bool { return !slices.Contains(s.p.Events.Columns, k.Name) })
	if !rest {
		s.complain("events.columns", fmt.Sprintf("of the replica identity of %s (%s) no column is left that names the row: what names it is in every event as its key, and needs no listing",
			t.Name, strings.Join(keyNames(key), ", ")))
	}
	return nil
}

// identityHas complains about wanted columns that are not in the replica identity, once for each key of the file.
func (s *resolution) identityHas(ctx context.Context, t *database.Table, wanted []wantedColumn) error {
	type column struct {
		Name, Table        string // the table's name without its schema
		NotNull, Generated bool
	}
	found, err := database.Collect[column](ctx, s.tx, `
		select a.attname::text, c.relname::text, a.attnotnull, a.attgenerated <> ''
		  from pg_attribute a
		  join pg_class c on c.oid = a.attrelid
		 where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
		 order by a.attnum`, t.OID)
	if err != nil {
		return fmt.Errorf("check the columns of %s: %w", t.Name, err)
	}
	identity := keyNames(s.r.Definition.Key)
	missing := map[string][]column{}
	for _, w := range wanted {
		i := slices.IndexFunc(found, func(c column) bool { return c.Name == w.name })
		switch {
		case i < 0:
			s.complain(w.key, fmt.Sprintf("%s has no column %s", t.Name, schemas.Identifier(w.name)))
		case slices.Contains(identity, w.name):
		case found[i].Generated:
			s.complain(w.key, fmt.Sprintf("column %s of %s is generated, which no replica identity can have: name another", schemas.Identifier(w.name), t.Name))
		default:
			missing[w.key] = append(missing[w.key], found[i])
		}
	}
	// One index with all that is missing fixes both.
	all, fix := slices.Clone(identity), ""
	for _, key := range []string{"evidence", "events.columns"} {
		for _, c := range missing[key] {
			if slices.Contains(all, c.Name) {
				continue
			}
			all = append(all, c.Name)
			if !c.NotNull {
				fix += fmt.Sprintf("alter table %s alter column %s set not null; ", t.Name, schemas.Identifier(c.Name))
			}
		}
	}
	fix += identityFix(t, found[0].Table, all)
	for _, key := range []string{"evidence", "events.columns"} {
		var names []string
		for _, c := range missing[key] {
			names = append(names, schemas.Identifier(c.Name))
		}
		if len(names) > 0 {
			s.complain(key, fmt.Sprintf("%s of %s is not in its replica identity, which is all that the log has of a deleted row: %s", strings.Join(names, ", "), t.Name, fix))
		}
	}
	return nil
}

// identityFix is the SQL that gives a table these columns as its identity.
func identityFix(t *database.Table, bare string, columns []string) string {
	quoted := make([]string, len(columns))
	for i, name := range columns {
		quoted[i] = schemas.Identifier(name)
	}
	list := strings.Join(quoted, ", ")
	if t.Kind == "p" {
		return fmt.Sprintf("give it the primary key (%s), which all its partitions have then", list)
	}
	index := schemas.Identifier(bare + "_identity")
	return fmt.Sprintf("create unique index concurrently %s on %s (%s); alter table %s replica identity using index %s", index, t.Name, list, t.Name, index)
}

func keyNames(key []functions.KeyColumn) []string {
	all := make([]string, len(key))
	for i, k := range key {
		all[i] = k.Name
	}
	return all
}
