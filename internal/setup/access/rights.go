package access

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/schemas"
)

// A role that was dropped (after DROP OWNED) and made again has lost what init and apply granted it. This file restores that. Apply
// restores the rights of a deleter: see deleter.go.

// LostRight is a right that a role of ours lacks, and who must grant it.
type LostRight struct {
	Role  string
	SQL   string
	Owner string // the role that gives it
}

// LostRights lists the rights that executor and auditor lack in schema lapse, in the catalog of this version: on its objects, and on the
// functions of policies.
func LostRights(ctx context.Context, q database.Querier, roles schemas.Roles) ([]LostRight, error) {
	rights := schemas.Rights(roles)
	var on, objects, named, privileges, columns []string
	for i := range rights {
		r := &rights[i]
		on, objects, named = append(on, r.On), append(objects, r.Object), append(named, r.Role)
		privileges, columns = append(privileges, r.Privilege), append(columns, strings.Join(r.Columns, ","))
	}
	rows, _ := q.Query(ctx, `
		select w.n - 1
		  from unnest($1::text[], $2::text[], $3::name[], $4::text[], $5::text[]) with ordinality w(kind, object, role, privilege, columns, n)
		 where not case w.kind
		         when 'schema' then has_schema_privilege(w.role, w.object, w.privilege)
		         when 'function' then has_function_privilege(w.role, w.object, w.privilege)
		         else has_table_privilege(w.role, w.object, w.privilege)
		              or w.columns <> '' and (select bool_and(has_column_privilege(w.role, w.object, c, w.privilege)) from unnest(string_to_array(w.columns, ',')) c)
		       end
		 order by w.n`, on, objects, named, privileges, columns) // CollectRows has its error
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, fmt.Errorf("check the rights in schema lapse: %w", err)
	}
	var lost []LostRight
	for _, n := range numbers {
		lost = append(lost, LostRight{Role: rights[n].Role, SQL: rights[n].Statement(), Owner: roles.Owner})
	}
	rows, err = q.Query(ctx, `
		select $1::text, format('grant execute on function lapse.%I(%s) to %I', f.proname, pg_get_function_identity_arguments(f.oid), $1::name), o.rolname::text
		  from pg_proc f
		  join pg_roles o on o.oid = f.proowner
		  join lapse.deleter d on d.role = o.rolname
		 where f.pronamespace = 'lapse'::regnamespace and f.proname ~ '^(delete|survey|due|drop)_[0-9]+_[0-9]+$'
		   and not has_function_privilege($1::name, f.oid, 'execute')
		 order by f.proname`, roles.Executor)
	if err != nil {
		return nil, fmt.Errorf("check the rights on functions: %w", err)
	}
	functions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[LostRight])
	if err != nil {
		return nil, fmt.Errorf("check the rights on functions: %w", err)
	}
	return append(lost, functions...), nil
}

// Losers are the roles that lack something, each once.
func Losers(lost []LostRight) []string {
	var names []string
	for _, l := range lost {
		if len(names) == 0 || names[len(names)-1] != l.Role {
			names = append(names, l.Role)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
