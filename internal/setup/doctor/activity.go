package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// old is how long a transaction may be open. It keeps dead rows in every table of its database, which deletions must read past, and keeps
// the server from removing log for every database.
const old = "1 hour"

func (e *examination) checkPrepared(ctx context.Context) ([]Finding, error) {
	rows, _ := e.Conn.Query(ctx, `
		select quote_literal(p.gid), p.database::text, date_trunc('second', clock_timestamp() - p.prepared)::text
		  from pg_prepared_xacts p
		 where p.prepared < clock_timestamp() - $1::interval
		 order by p.prepared`, old) // CollectRows has its error
	type prepared struct{ GID, Database, Age string }
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[prepared])
	if err != nil || len(all) == 0 {
		return ok("none older than %s", old), err
	}
	var found []Finding
	for _, p := range all {
		f := Finding{Grade: Warn, Text: fmt.Sprintf("transaction %s was prepared in database %s %s ago: it holds its locks, and the log, until somebody ends it", p.GID, p.Database, p.Age)}
		if p.Database == e.database {
			f.Fix = []string{"rollback prepared " + p.GID}
			f.Advice = "or commit prepared, if those who prepared it say so"
		} else {
			f.Advice = fmt.Sprintf("in database %s: rollback prepared %s", p.Database, p.GID)
		}
		found = append(found, f)
	}
	return found, nil
}

func (e *examination) checkLong(ctx context.Context) ([]Finding, error) {
	rows, err := e.Conn.Query(ctx, `
		select a.pid, coalesce(a.datname::text, ''), coalesce(a.usename::text, ''), date_trunc('second', clock_timestamp() - a.xact_start)::text
		  from pg_stat_activity a
		 where a.xact_start < clock_timestamp() - $1::interval and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'
		 order by a.xact_start`, old)
	if err != nil {
		return nil, err
	}
	type open struct {
		PID                 int32
		Database, User, Age string
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[open])
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, o := range all {
		found = append(found, one(Warn, []string{fmt.Sprintf("select pg_terminate_backend(%d)", o.PID)},
			"a transaction of %s in database %s has been open for %s: it keeps dead rows and the log", o.User, o.Database, o.Age)...)
	}
	var hidden bool
	err = e.Conn.QueryRow(ctx, `select not pg_has_role('pg_read_all_stats', 'usage')`).Scan(&hidden)
	switch {
	case err != nil:
		return nil, err
	case hidden:
		var login string
		if err := e.Conn.QueryRow(ctx, `select quote_ident(session_user)`).Scan(&login); err != nil {
			return nil, err
		}
		found = append(found, one(Warn, []string{"grant pg_read_all_stats to " + login}, "%s may not see how long others' transactions have been open", login)...)
	case len(found) == 0:
		return ok("none older than %s, in any database", old), nil
	}
	return found, nil
}

// checkLoad checks whether the executor can see the load that it is to spare. Without the right it deletes nevertheless.
func (e *examination) checkLoad(ctx context.Context) ([]Finding, error) {
	if !e.roles {
		return nil, nil
	}
	login := e.Logins.Executor
	if login == "" {
		login = e.Roles.Executor
	}
	var quoted string
	var sees, lags bool
	err := e.Conn.QueryRow(ctx, `
		select quote_ident(r.rolname), pg_has_role(r.oid, 'pg_read_all_stats', 'usage'), exists (select from pg_replication_slots s where s.slot_type = 'physical')
		  from pg_roles r where r.rolname = $1`, login).Scan(&quoted, &sees, &lags)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	case sees:
		return ok("%s may see the lag of standbys and old snapshots", quoted), nil
	}
	what := "%s may not see old snapshots, so batches do not slow down for them"
	if lags {
		what = "%s may not see the lag of standbys and old snapshots, so batches do not slow down for them"
	}
	f := one(Warn, []string{"grant pg_read_all_stats to " + quoted}, what, quoted)
	f[0].Advice = "it also shows the text of others' statements; everything else works without it"
	return f, nil
}
