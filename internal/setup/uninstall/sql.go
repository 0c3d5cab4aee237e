package uninstall

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/access"
	"lapse/internal/setup/apply"
	"lapse/internal/setup/site"
	"lapse/planner/database"
	"lapse/replication"
	"lapse/schemas"
)

// SQL returns the statements that do the same as Uninstall, in order, for a superuser or a login that may do all of it. Run each by itself:
// an index is not dropped inside a transaction. The first changes nothing and fails if the others would, naming what is missing. They can
// be repeated. If nothing is installed the error is ErrNotInstalled, unless an interrupted Uninstall has left the slot. If legal holds are
// in force, dropHolds must be set.
func SQL(ctx context.Context, q database.Querier, roles schemas.Roles, slot string, dropHolds bool) ([]string, error) {
	installed, err := site.ReadInstallation(ctx, q, roles)
	if errors.Is(err, site.ErrNotInstalled) {
		var left bool
		if err := q.QueryRow(ctx, leftSlotSQL, slot).Scan(&left); err != nil {
			return nil, fmt.Errorf("look for a slot that is left: %w", err)
		}
		if left {
			return []string{dropSlotSQL(slot)}, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if err := refuseHolds(ctx, q, dropHolds); err != nil {
		return nil, err
	}
	deleters, err := readDeleters(ctx, q)
	if err != nil {
		return nil, err
	}
	made, err := apply.MadeIndexes(ctx, q)
	if err != nil {
		return nil, err
	}
	all := []string{checkSQL(lackingSQL(roles.Owner, deleters, made), installed.Slot), pauseSQL(roles.Owner)}
	for i := range made {
		if m := &made[i]; m.There {
			all = append(all, m.DropSQL())
		}
	}
	return append(all, dropAllSQL(roles.Owner, deleters), dropSlotSQL(installed.Slot)), nil
}

// leftSlotSQL finds a slot of this database without a catalog, which an interrupted Uninstall left.
const leftSlotSQL = `
	select exists (select from pg_catalog.pg_replication_slots s
	                where s.slot_name = $1 and s.database = pg_catalog.current_database() and s.plugin = 'pgoutput' and not s.temporary)`

// dropSlotSQL drops the slot if the catalog is gone, because psql continues after a failed statement.
func dropSlotSQL(slot string) string {
	return fmt.Sprintf(`select pg_catalog.pg_drop_replication_slot(s.slot_name)
  from pg_catalog.pg_replication_slots s
 where s.slot_name = %s and s.database = pg_catalog.current_database() and pg_catalog.to_regnamespace('lapse') is null`, schemas.Literal(slot))
}

// checkSQL fails if an auditor reads the slot, or if the login lacks a right.
func checkSQL(lackingSQL, slot string) string {
	return access.Block(fmt.Sprintf(`declare
  lacking text;
begin
  if exists (select from pg_catalog.pg_replication_slots s where s.slot_name = %s and s.active) then
    raise exception 'an auditor reads from slot %%: stop the executors, run lapse audit --once, and stop the auditor first', %[1]s;
  end if;
  if pg_catalog.to_regnamespace('lapse') is not null then
    select pg_catalog.string_agg(l.statement, '; ') into lacking from (select * from (%[2]s) o union all (%[3]s)) l(statement);
    if lacking is not null then
      raise exception 'nothing was changed: %% may not do all of it: have a superuser run this, or who may grant it: %%', session_user, lacking;
    end if;
  end if;
end`, schemas.Literal(slot), lackingSQL, lackingReplicationSQL))
}

// becomeOwner makes a block act as the catalog's owner; a superuser need not.
func becomeOwner(owner string) string {
	return fmt.Sprintf(`  if not (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = session_user) then
    set local role %s;
  end if;`, schemas.Identifier(owner))
}

// pauseSQL stops every deletion, because the next step drops the indexes that find the rows.
func pauseSQL(owner string) string {
	return access.Block(fmt.Sprintf(`begin
  if pg_catalog.to_regnamespace('lapse') is not null then
  %s
    lock table lapse.gate in exclusive mode;
    insert into lapse.halt (halted, reason) values (true, 'lapse uninstall');
  end if;
end`, becomeOwner(owner)))
}

// dropAllSQL drops publications, catalog and deleters, or nothing.
func dropAllSQL(owner string, deleters []string) string {
	var sql strings.Builder
	fmt.Fprintf(&sql, "begin\n%s\n", becomeOwner(owner))
	for _, name := range replication.Publications() {
		fmt.Fprintf(&sql, "  drop publication if exists %s;\n", schemas.Identifier(name))
	}
	fmt.Fprintf(&sql, "  drop schema if exists %s cascade;\n  set local role none;\n", schemas.Identifier(schemas.LedgerSchema))
	for _, name := range deleters {
		fmt.Fprintf(&sql, `  begin
    if exists (select from pg_catalog.pg_roles r where r.rolname = %s) then
      drop owned by %s;
      drop role %[2]s;
    end if;
  exception when dependent_objects_still_exist then
    drop owned by %[2]s;
    raise notice 'role %% stays: another database of the cluster needs it', %[1]s;
  end;
`, schemas.Literal(name), schemas.Identifier(name))
	}
	return access.Block(sql.String() + "end")
}

// DropRolesSQL returns the statements that drop the roles of an installation, and the logins that play them, if Lapse made them and the
// session's login is none of them. They belong to the cluster: another database may need them.
func DropRolesSQL(ctx context.Context, q database.Querier, roles schemas.Roles) (all []string, err error) {
	rows, _ := q.Query(ctx, `
		select distinct m.rolname::text
		  from pg_auth_members a join pg_roles r on r.oid = a.roleid join pg_roles m on m.oid = a.member
		 where r.rolname = any ($1) and m.rolname <> all ($1) and m.rolcanlogin
		 order by 1`, []string{roles.Owner, roles.Executor, roles.Auditor}) // CollectRows has its error
	logins, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for the logins that play the roles: %w", err)
	}
	ours, err := access.OfLapse(ctx, q, append([]string{roles.Executor, roles.Auditor, roles.Owner}, logins...)...)
	if err != nil {
		return nil, err
	}
	var self string
	if err := q.QueryRow(ctx, `select session_user::text`).Scan(&self); err != nil {
		return nil, fmt.Errorf("read the login's name: %w", err)
	}
	for _, name := range ours {
		if name != self {
			all = append(all, "drop owned by "+schemas.Identifier(name), "drop role "+schemas.Identifier(name))
		}
	}
	return all, nil
}
