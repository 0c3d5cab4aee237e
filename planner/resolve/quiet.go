package resolve

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/policyfile"
	"lapse/schemas"
)

// quietSQL lists those of the plain tables $1.$2, without partitions or children, on whose deletions nothing would run that database.FindIntruders finds.
const quietSQL = `
	with plain as materialized (
	  select distinct c.oid
	    from unnest($1::text[], $2::text[]) w(schema, name)
	    join pg_namespace n on n.nspname = w.schema
	    join pg_class c on c.relnamespace = n.oid and c.relname = w.name
	   where c.relkind = 'r' and not exists (select from pg_inherits i where i.inhparent = c.oid)
	)
	select plain.oid from plain
	except
	select s.leaf from lapse.surroundings(array(select plain.oid from plain), '{}', false) s where s.part = 'intruder'`

// Quiet are the tables of policies from which nothing would run in a deletion. It asks of all at once: most of what that costs for one table is
// the same for all. A table that is not among them, such as a partitioned one, is asked by itself. An entry that pauses its policy is not asked about.
type Quiet map[uint32]bool

// FindQuiet finds them.
func FindQuiet(ctx context.Context, db database.DB, policies []policyfile.Policy) (Quiet, error) {
	var names, inSchemas []string
	for i := range policies {
		p := &policies[i]
		asks := p.State != schemas.Paused && p.Action.Kind != policyfile.ActionSoft && !p.Triggers.Trusted
		if schema, name, plain := database.PlainName(p.Table); plain && asks {
			inSchemas, names = append(inSchemas, schema), append(names, name)
		}
	}
	quiet := Quiet{}
	if len(names) < 2 {
		return quiet, nil
	}
	err := database.Pinned(ctx, db, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, quietSQL, inSchemas, names) // ForEachRow has its error
		var oid uint32
		_, err := pgx.ForEachRow(rows, []any{&oid}, func() error {
			quiet[oid] = true
			return nil
		})
		return err
	})
	switch {
	case schemas.StateOf(err) != "" && ctx.Err() == nil:
		return nil, nil // each table is asked by itself, and says what is wrong with it
	case err != nil:
		return nil, fmt.Errorf("list what would run in deletions: %w", err)
	}
	return quiet, nil
}
