package setup

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/replication"
	"lapse/schemas"
)

// UninstallSQL returns the statements by which a superuser ends where Uninstall ends, in their order. Each runs as it is, on its own:
// an index is not dropped inside a transaction. They are safe to repeat, and after a crash between two of them to run again. Where
// nothing is installed the error is ErrNotInstalled; where legal holds are in force, and dropHolds does not say that they may go, a
// *HoldsInForceError.
func UninstallSQL(ctx context.Context, q Querier, roles schemas.Roles, dropHolds bool) ([]string, error) {
	installed, err := ReadInstallation(ctx, q, roles)
	if err != nil {
		return nil, err
	}
	if err := refuseHolds(ctx, q, installed, dropHolds); err != nil {
		return nil, err
	}
	slot := schemas.Literal(installed.Slot)
	all := []string{block(fmt.Sprintf(`begin
  if exists (select from pg_catalog.pg_replication_slots s where s.slot_name = %s and s.active) then
    raise exception 'an auditor reads from slot %%: stop the executors, run lapse audit --once, and stop the auditor first', %[1]s;
  end if;
end`, slot))}
	made, err := madeIndexes(ctx, q)
	if err != nil {
		return nil, err
	}
	for i := range made {
		if m := &made[i]; m.There {
			all = append(all, pick(m.Whole, "drop index if exists ", "drop index concurrently if exists ")+m.Index())
		}
	}
	all = append(all, fmt.Sprintf(`select pg_catalog.pg_drop_replication_slot(s.slot_name)
  from pg_catalog.pg_replication_slots s
 where s.slot_name = %s and s.database = pg_catalog.current_database()`, slot))
	for _, name := range replication.Publications() {
		all = append(all, "drop publication if exists "+schemas.Identifier(name))
	}
	rows, err := q.Query(ctx, `select d.role::text from lapse.deleter d order by 1`)
	if err != nil {
		return nil, fmt.Errorf("look for deleters: %w", err)
	}
	deleters, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for deleters: %w", err)
	}
	all = append(all, "drop schema if exists "+schemas.Identifier(schemas.LedgerSchema)+" cascade")
	for _, name := range deleters {
		all = append(all, dropDeleterSQL(name))
	}
	return all, nil
}

// dropDeleterSQL takes from a deleter what it has in this database, and drops it unless another one needs it.
func dropDeleterSQL(name string) string {
	return block(fmt.Sprintf(`begin
  if exists (select from pg_catalog.pg_roles r where r.rolname = %s) then
    drop owned by %s;
    drop role %[2]s;
  end if;
exception when dependent_objects_still_exist then
  drop owned by %[2]s;
  raise notice 'role %% stays: another database of the cluster needs it', %[1]s;
end`, schemas.Literal(name), schemas.Identifier(name)))
}

// DropRolesSQL returns the statements that drop the roles of an installation. They belong to the cluster: another database may need
// them.
func DropRolesSQL(roles schemas.Roles) (all []string) {
	for _, name := range []string{roles.Executor, roles.Auditor, roles.Owner} {
		all = append(all, "drop owned by "+schemas.Identifier(name), "drop role "+schemas.Identifier(name))
	}
	return all
}

// Players are the logins that are members of the roles and no superusers: they stay, as the roles do.
func Players(ctx context.Context, q Querier, roles schemas.Roles) ([]string, error) {
	rows, err := q.Query(ctx, `
		select distinct m.rolname::text
		  from pg_auth_members a join pg_roles r on r.oid = a.roleid join pg_roles m on m.oid = a.member
		 where r.rolname = any ($1) and m.rolname <> all ($1) and m.rolcanlogin and not m.rolsuper
		 order by 1`, []string{roles.Owner, roles.Executor, roles.Auditor})
	if err != nil {
		return nil, fmt.Errorf("look for the logins that play the roles: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
