package tables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/site"
	"lapse/planner"
	"lapse/planner/expiry"
	"lapse/schemas"
)

// Scaffolder makes and removes what gives a table's rows a due time: see planner.Scaffold. Everything belongs to the table's owner; the
// login is a member of that role. It reads no rows and runs no code of the owner: the owner runs the backfill, because that would fire the
// table's triggers in this session.
type Scaffolder struct {
	site.Session
	Table          string // schema.table, as SQL writes it
	Option         planner.ScaffoldOption
	After, Column  string
	Refresh        bool
	Backfill       bool // also write SQL for existing rows
	Drop, DropData bool // remove it, and what was added to the table
}

// ScaffoldError says what is wrong with a request.
type ScaffoldError struct{ Problem string }

func (e *ScaffoldError) Error() string { return e.Problem }

// Scaffolding is a scaffold for a table as it is.
type Scaffolding struct {
	planner.Scaffold
	SQL      string // one script with its own transaction
	Backfill string // another one, for the table's owner to run; "" if not requested

	oid      uint32
	powerful bool // it belongs to a superuser or to the database's owner
}

const scaffoldTableSQL = `
	select c.oid, n.nspname::text, c.relname::text, pg_get_userbyid(c.relowner)::text, c.relkind::text, c.relispartition,
	       n.nspname in ('pg_catalog', 'information_schema', 'lapse') or n.nspname like 'pg\_toast%',
	       o.rolsuper or o.rolname = 'pg_database_owner'
	  from pg_class c
	  join pg_roles o on o.oid = c.relowner
	  join pg_namespace n on n.oid = c.relnamespace
	 where n.nspname = $1 and c.relname = $2`

const scaffoldColumnsSQL = `
	select a.attname::text,
	       format_type(a.atttypid, a.atttypmod)
	         || case when a.attcollation <> t.typcollation then (select format(' collate %I.%I', m.nspname, l.collname)
	              from pg_collation l join pg_namespace m on m.oid = l.collnamespace where l.oid = a.attcollation) else '' end,
	       coalesce(col_description(a.attrelid, a.attnum) = $2, false),
	       coalesce(array_position(k.indkey::int2[], a.attnum), -1)::int
	  from pg_attribute a
	  join pg_type t on t.oid = a.atttypid
	  left join pg_index k on k.indrelid = a.attrelid and k.indisprimary
	 where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
	 order by 4, a.attnum`

// scaffoldWritersSQL names the roles other than the owner that may insert into the table.
const scaffoldWritersSQL = `
	select distinct case when x.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(x.grantee)) end
	  from (select c.relacl as acl from pg_class c where c.oid = $1
	        union all
	        select a.attacl from pg_attribute a where a.attrelid = $1 and a.attacl is not null) acls
	 cross join lateral aclexplode(acls.acl) x
	 where x.privilege_type = 'INSERT' and x.grantee <> (select relowner from pg_class where oid = $1)
	 order by 1`

// Preview compares the request with the table, and writes the SQL. It changes nothing. A *ScaffoldError says what to do.
func (s *Scaffolder) Preview(ctx context.Context) (*Scaffolding, error) {
	w := &Scaffolding{Scaffold: planner.Scaffold{Option: s.Option, Column: s.Column, Refresh: s.Refresh}}
	err := pgx.BeginTxFunc(ctx, s.Conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := s.findTable(ctx, tx, w); err != nil {
			return err
		}
		if err := s.findColumns(ctx, tx, w); err != nil {
			return err
		}
		if s.Drop {
			return nil
		}
		after, problem, err := expiry.ReadInterval(ctx, tx, s.After)
		if problem != "" {
			return &ScaffoldError{"--after: " + problem}
		}
		w.After = after
		return err
	})
	if err != nil {
		return nil, err
	}
	if s.Drop {
		w.SQL, err = w.DropSQL(s.DropData)
	} else {
		w.SQL, err = w.Scaffold.SQL()
	}
	if err == nil && s.Backfill {
		w.Backfill, err = w.BackfillSQL()
	}
	if err != nil {
		return nil, &ScaffoldError{err.Error()}
	}
	return w, nil
}

func (s *Scaffolder) findTable(ctx context.Context, tx pgx.Tx, w *Scaffolding) error {
	var kind string
	var partition, system bool
	var parts []string
	err := expiry.Attempt(ctx, tx, func(tx pgx.Tx) error { return tx.QueryRow(ctx, `select parse_ident($1)`, s.Table).Scan(&parts) })
	if expiry.IsDataException(err) || err == nil && len(parts) != 2 {
		return &ScaffoldError{fmt.Sprintf("--table %q: write schema.table, quoted as in SQL", s.Table)}
	} else if err != nil {
		return fmt.Errorf("read a table name: %w", err)
	}
	err = tx.QueryRow(ctx, scaffoldTableSQL, parts[0], parts[1]).Scan(&w.oid, &w.Schema, &w.Table, &w.Owner, &kind, &partition, &system, &w.powerful)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return &ScaffoldError{fmt.Sprintf("there is no table %s in this database", s.Table)}
	case err != nil:
		return fmt.Errorf("find table %s: %w", s.Table, err)
	case system || partition || kind != "r" && kind != "p":
		return &ScaffoldError{fmt.Sprintf("%s is no table of yours that a scaffold fits: name a table, and of a partitioned one the root", s.Table)}
	}
	return nil
}

func (s *Scaffolder) findColumns(ctx context.Context, tx pgx.Tx, w *Scaffolding) error {
	rows, err := tx.Query(ctx, scaffoldColumnsSQL, w.oid, planner.ScaffoldMark)
	if err != nil {
		return fmt.Errorf("read the columns of %s: %w", s.Table, err)
	}
	var c planner.ScaffoldColumn
	var at int
	_, err = pgx.ForEachRow(rows, []any{&c.Name, &c.Type, &c.Made, &at}, func() error {
		w.Present = append(w.Present, c)
		if at >= 0 && s.Option == planner.ScaffoldSidecar {
			w.Key = append(w.Key, c)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the columns of %s: %w", s.Table, err)
	}
	for _, c := range w.Present {
		if problem := s.misfit(c, w); problem != "" && !s.Drop {
			return &ScaffoldError{problem}
		}
	}
	leaves, err := tx.Query(ctx, `
		select format('%I.%I', n.nspname, c.relname)
		  from (select relid from pg_partition_tree($1) where isleaf union select $1) l
		  join pg_class c on c.oid = l.relid
		  join pg_namespace n on n.oid = c.relnamespace
		 where c.relkind = 'r'
		 order by 1`, w.oid)
	if err == nil {
		w.Leaves, err = pgx.CollectRows(leaves, pgx.RowTo[string])
	}
	if err != nil {
		return fmt.Errorf("list the partitions of %s: %w", s.Table, err)
	}
	if s.Option == planner.ScaffoldSidecar {
		if w.powerful && !s.Drop {
			return &ScaffoldError{fmt.Sprintf("%s belongs to %s, and the tables of a superuser or of the database's owner cannot have a sidecar, since deletion has not their owner's rights: "+
				"alter table %s owner to another role, or use another option", s.Table, w.Owner, s.Table)}
		}
		return s.findRegistry(ctx, tx, w)
	}
	return nil
}

// misfit says how an existing column differs from what the option needs.
func (s *Scaffolder) misfit(c planner.ScaffoldColumn, w *Scaffolding) string {
	for _, name := range w.Columns() {
		want := []string{"timestamp with time zone"}
		if name == "ttl_seconds" {
			want = []string{"bigint", "integer", "smallint"}
		}
		if c.Name == name && !slices.Contains(want, c.Type) {
			return fmt.Sprintf("%s has a column %s already, of type %s and not %s: name another with --column, or use another option", s.Table, name, c.Type, want[0])
		}
	}
	return ""
}

// findRegistry finds out whether the sidecar exists, and who writes to the table.
func (s *Scaffolder) findRegistry(ctx context.Context, tx pgx.Tx, w *Scaffolding) error {
	there, made, err := marked(ctx, tx, w.Schema, w.RegistryName(), planner.ScaffoldMark)
	switch {
	case err != nil:
		return fmt.Errorf("look for the sidecar of %s: %w", s.Table, err)
	case there && !made && !s.Drop:
		return &ScaffoldError{fmt.Sprintf("%s is there already, and no scaffold made it: rename it", schemas.Identifier(w.Schema, w.RegistryName()))}
	}
	w.Registry = made
	writers, err := tx.Query(ctx, scaffoldWritersSQL, w.oid)
	if err == nil {
		w.Writers, err = pgx.CollectRows(writers, pgx.RowTo[string])
	}
	if err != nil {
		return fmt.Errorf("read who writes to %s: %w", s.Table, err)
	}
	return nil
}

// Execute runs the scaffold's SQL.
func (s *Scaffolder) Execute(ctx context.Context, w *Scaffolding) error {
	return s.RunAsOwner(ctx, "scaffold "+s.Table, w.SQL, w.Schema, w.Owner)
}
