package resolve

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/planner/record"
	"lapse/schemas"
)

// codeSQL describes what would run inside deletions from tables $1, or those of their partitions that have none, or inside updates ($2).
const codeSQL = `
	with recursive tree(relation) as (
	  select unnest($1::oid[])
	  union
	  select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.relation
	)
	select c.relation, c.kind, c.name::text, c.digest, format('%I.%I', n.nspname, r.relname), r.relowner
	  from lapse.code(array(
	         select tree.relation from tree where not exists (select from pg_inherits i where i.inhparent = tree.relation)), $2) c
	  join pg_class r on r.oid = c.relation
	  join pg_namespace n on n.oid = r.relnamespace
	 order by 5, 2, 3, 4`

// trust records what would run inside the deletions, for a policy that trusts it. Up to PostgreSQL 17, triggers of a table that a foreign key
// reaches run with the rights of the policy's table's owner, so nothing on another owner's table is trusted.
func (s *resolution) trust(ctx context.Context, t *database.Table, relations []uint32) (problems []string, err error) {
	if path := s.p.Triggers.SearchPath; path != "" {
		err := expiry.Attempt(ctx, s.tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `select set_config('search_path', $1, true)`, path)
			return err
		})
		if expiry.IsDataException(err) {
			problems = append(problems, fmt.Sprintf("search_path %q is not a list of schemas: write for instance \"app, public\"", path))
		} else if err != nil {
			return nil, fmt.Errorf("try the triggers' search_path: %w", err)
		}
	}
	type found struct {
		record.TrustedCode
		Owner uint32
	}
	all, err := database.Collect[found](ctx, s.tx, codeSQL, relations, s.r.Definition.Soft != nil)
	if err != nil {
		return nil, fmt.Errorf("describe triggers and rules: %w", err)
	}
	for _, f := range all {
		switch {
		case f.Kind == "foreign key":
			problems = append(problems, database.MovingKey(schemas.Identifier(f.Name), f.On))
		case f.Owner != t.OwnerOID && f.Kind != "function":
			problems = append(problems, fmt.Sprintf("%s %s on %s, which belongs to another owner than %s, cannot be trusted: it would run with the rights of that table's owner: disable it, or give both tables one owner",
				f.Kind, schemas.Identifier(f.Name), f.On, t.Name))
		default:
			s.trusted = append(s.trusted, f.TrustedCode)
		}
	}
	return problems, nil
}

// code returns what must not run inside the deletions: all of it, or what cannot be trusted.
func (s *resolution) code(ctx context.Context, t *database.Table) (problems []string, err error) {
	relations := []uint32{t.OID}
	for _, j := range s.r.Definition.Joined() {
		if j.OID != 0 { // otherwise there is a complaint already
			relations = append(relations, j.OID)
		}
	}
	if s.p.Triggers.Trusted {
		return s.trust(ctx, t, relations)
	}
	seen := map[string]bool{}
	updates := s.r.Definition.Soft != nil
	for _, relation := range relations {
		if s.quiet[relation] && !updates {
			continue
		}
		all, err := database.FindIntruders(ctx, s.tx, &database.Table{OID: relation}, updates)
		if err != nil {
			return nil, err
		}
		for _, problem := range all {
			if !seen[problem] {
				seen[problem] = true
				problems = append(problems, problem)
			}
		}
	}
	return problems, nil
}
