package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/internal/config"
	"lapse/planner/database"
	"lapse/schemas"
)

// whereTimeout finds where the session's statement_timeout comes from, in PostgreSQL's order of precedence: its value, and the statement that
// removes it. No row means the server's configuration.
const whereTimeout = `
	select pg_catalog.split_part(c.entry, '=', 2),
	       case when s.setrole operator(pg_catalog.=) 0 and s.setdatabase operator(pg_catalog.=) 0 then 'alter role all'
	            when s.setrole operator(pg_catalog.=) 0 then pg_catalog.format('alter database %I', pg_catalog.current_database())
	            when s.setdatabase operator(pg_catalog.=) 0 then pg_catalog.format('alter role %I', session_user)
	            else pg_catalog.format('alter role %I in database %I', session_user, pg_catalog.current_database()) end
	  from pg_catalog.pg_db_role_setting s
	 cross join lateral pg_catalog.unnest(s.setconfig) c(entry)
	 where s.setdatabase in (0, (select d.oid from pg_catalog.pg_database d where d.datname operator(pg_catalog.=) pg_catalog.current_database()))
	   and s.setrole in (0, (select r.oid from pg_catalog.pg_roles r where r.rolname operator(pg_catalog.=) session_user))
	   and pg_catalog.starts_with(c.entry, 'statement_timeout=')
	 order by s.setrole operator(pg_catalog.<>) 0 desc, s.setdatabase operator(pg_catalog.<>) 0 desc
	 limit 1`

// canceled says which setting ended a statement of a session that was just opened, and how to remove it. It asks in a session without that
// setting. It returns any other err unchanged.
func (a *app) canceled(ctx context.Context, s *config.Settings, w session, err error) error {
	if schemas.StateOf(err) != schemas.SQLStateQueryCanceled {
		return err
	}
	asks, failed := a.configOf(s, w)
	if failed != nil {
		return err
	}
	asks.RuntimeParams["statement_timeout"] = "0"
	conn, failed := pgx.ConnectConfig(ctx, asks)
	if failed != nil {
		return err
	}
	defer database.Close(conn)
	var value, alter string
	if failed := conn.QueryRow(ctx, whereTimeout).Scan(&value, &alter); failed != nil {
		return fmt.Errorf("%w; if nobody canceled it, statement_timeout is too short in postgresql.conf or in the connection string", err)
	}
	return fmt.Errorf("%w; statement_timeout is set to %s, which is too short for this command: set a longer one, or run: %s reset statement_timeout", err, value, alter)
}
