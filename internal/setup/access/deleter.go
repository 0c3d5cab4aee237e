package access

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// Table is a policy's table, for its deleter.
type Table struct {
	OID      uint32
	Name     string // schema.table, quoted where SQL wants it
	Owner    string // the role that owns it
	OwnerOID uint32
	Column   string     // the policy's
	Leaves   []Relation // what holds its rows
}

// oids are the table and its leaves.
func (t *Table) oids() []uint32 {
	oids := []uint32{t.OID}
	for _, l := range t.Leaves {
		oids = append(oids, l.OID)
	}
	return oids
}

// Relation is a table or partition.
type Relation struct {
	OID  uint32
	Name string
}

// deleter is the state of a policy's deleter and its table.
type deleter struct {
	Exists     bool
	Super      bool   // the table's owner is a superuser, or its database's owner by role: no role to be a member of
	Circle     bool   // the owner is a member of the catalog's owner
	Member     bool   // the deleter has the owner's rights
	Others     string // roles other than the owner that the deleter is a member of
	Strangers  string // members of the deleter, or roles that may add members, that may not change the catalog
	Powerful   bool   // it has an attribute, LOGIN for instance
	MayGive    bool   // this login may become the deleter, which it must to give it a function
	Inherits   bool   // this login inherits the rights of the catalog's owner, which it must to give its functions away
	Equipped   bool   // it may call what it needs in schema lapse
	Recorded   bool
	Schemas    []string // schemas of the table and its leaves that neither deleter nor owner may use, quoted
	Refused    string   // the first leaf that the deleter cannot work on, and its owner
	RefusedOf  string
	Blind      string // the first leaf on which row security blinds it
	SetOptions bool   // memberships have options: PostgreSQL 16 and later
}

const deleterSQL = `
	with facts as (
	  select o.oid as owner, o.rolname as owner_name, o.rolsuper or o.rolname = 'pg_database_owner' as super, d.oid as deleter,
	         coalesce(d.rolbypassrls, false) as bypass,
	         coalesce(d.rolsuper or d.rolcanlogin or d.rolcreaterole or d.rolcreatedb or d.rolreplication, false) as powerful,
	         current_setting('server_version_num')::int >= 160000 as options
	    from pg_class c
	    join pg_roles o on o.oid = c.relowner
	    left join pg_roles d on d.rolname = $2
	   where c.oid = $1
	), leaf as (
	  select format('%I.%I', n.nspname, r.relname) as name, pg_get_userbyid(r.relowner) as owner,
	         has_table_privilege(f.deleter, r.oid, 'select') and has_table_privilege(f.deleter, r.oid, 'delete')
	           and has_column_privilege(f.deleter, r.oid, $4, 'update') as granted,
	         r.relrowsecurity and (r.relforcerowsecurity or not pg_has_role(f.deleter, r.relowner, 'usage')) and not f.bypass as blind
	    from unnest($3::oid[]) l(oid)
	    join pg_class r on r.oid = l.oid
	    join pg_namespace n on n.oid = r.relnamespace
	   cross join facts f
	   where f.deleter is not null
	)
	select f.deleter is not null, f.super, not f.super and pg_has_role(f.owner, $5::name, 'member'),
	       coalesce(pg_has_role(f.deleter, f.owner, 'usage'), false),
	       coalesce((select string_agg(quote_ident(g.rolname), ', ')
	                   from pg_auth_members m join pg_roles g on g.oid = m.roleid
	                  where m.member = f.deleter and m.roleid <> f.owner), ''),
	       coalesce((select string_agg(distinct quote_ident(u.rolname), ', ')
	                   from pg_auth_members m join pg_roles u on u.oid = m.member
	                  where m.roleid = f.deleter and not pg_has_role(u.oid, $5::name, 'member')
	                    and coalesce((to_jsonb(m) ->> 'inherit_option')::boolean or (to_jsonb(m) ->> 'set_option')::boolean
	                                 or m.admin_option and u.rolname <> session_user, true)), ''),
	       f.powerful,
	       coalesce(pg_has_role(session_user, f.deleter, case when f.options then 'set' else 'member' end), false),
	       pg_has_role(session_user, $5::name, 'usage'),
	       coalesce(has_schema_privilege(f.deleter, 'lapse', 'usage') and has_table_privilege(f.deleter, $7, 'select')
	                and (select bool_and(has_function_privilege(f.deleter, w, 'execute')) from unnest($6::text[]) w), false),
	       exists (select from lapse.deleter r where r.role = $2 and r.owner = f.owner),
	       array(select distinct quote_ident(s.nspname)
	               from pg_class k join pg_namespace s on s.oid = k.relnamespace
	              where k.oid = any ($3::oid[] || $1::oid)
	                and not coalesce(has_schema_privilege(f.deleter, s.oid, 'usage'), false)
	                and (f.super or not has_schema_privilege(f.owner, s.oid, 'usage'))),
	       coalesce((select min(name) from leaf where not granted), ''),
	       coalesce((select (array_agg(owner order by name))[1] from leaf where not granted), ''),
	       coalesce((select min(name) from leaf where blind), ''),
	       f.options
	  from facts f`

// lockDeleters serializes a session that needs a deleter and one that drops it.
const lockDeleters = `lock table lapse.deleter in share row exclusive mode`

// planOnce keeps PostgreSQL from planning deleterSQL again for each policy, which takes longer than to run it.
const planOnce = `set local plan_cache_mode = force_generic_plan; `

// equipping prepares one policy's deleter.
type equipping struct {
	tx    pgx.Tx
	t     Table
	roles schemas.Roles
	name  string // the deleter
	made  bool   // it did not exist when this transaction began
}

// DeleterState is the result of InspectDeleter.
type DeleterState struct {
	// Grants are the statements that EnsureDeleter will run in this session, in their order.
	Grants []string
	// Lacks says that something is missing: the deleter is new, a partition was added, or a right was revoked. Whether this login may give it
	// functions does not count, because that only matters if there are some to give.
	Lacks   bool
	MayGive bool // this login may give functions to it
}

// InspectDeleter reports the state of the deleter of a policy's table. It changes nothing and locks nothing.
func InspectDeleter(ctx context.Context, tx pgx.Tx, t Table, roles schemas.Roles) (DeleterState, error) {
	e := &equipping{tx: tx, t: t, roles: roles, name: roles.Deleter(t.OwnerOID)}
	d, err := e.find(ctx)
	s := DeleterState{MayGive: d.MayGive && d.Inherits}
	if err == nil && !d.ready() && e.excess(&d) == nil && !d.Circle {
		missing, err := e.missing(ctx, &d)
		if err != nil {
			return s, err
		}
		for _, m := range missing {
			s.Grants = append(s.Grants, m.sql)
		}
		s.Grants = append(s.Grants, e.equipment()...)
	}
	d.MayGive, d.Inherits = true, true
	s.Lacks = !d.ready()
	return s, err
}

// EnsureDeleter makes sure that the deleter of the table's owner exists and may work on the policy's table. It is a role that no one can
// log in as, and a member of that owner alone, so that it covers partitions made later, row security does not apply, and the owner's code
// inside a deletion can do no more than the owner. If the owner is a superuser, the deleter gets rights on the table and on each existing
// partition instead.
//
// It acts in the login's own name, and in schema lapse as the catalog's owner, which the transaction's role is afterwards. If the session
// may not do it, the error is a GrantError with the statement. It takes no lock on the table. Safe to repeat.
func EnsureDeleter(ctx context.Context, tx pgx.Tx, t Table, roles schemas.Roles) error {
	once := func() error {
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return ensureDeleter(ctx, tx, t, roles) })
	}
	err := once()
	if schemas.StateOf(err) == schemas.SQLStateUndefinedObject {
		err = once() // another database of the cluster has dropped the role meanwhile, which it shares
	}
	return err
}

func ensureDeleter(ctx context.Context, tx pgx.Tx, t Table, roles schemas.Roles) error {
	e := &equipping{tx: tx, t: t, roles: roles, name: roles.Deleter(t.OwnerOID)}
	if err := Become(ctx, tx, roles.Owner); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, planOnce+lockDeleters); err != nil {
		return fmt.Errorf("wait for the session that drops a deleter: %w", err)
	}
	d, err := e.find(ctx)
	if err != nil {
		return err
	}
	if e.made = !d.Exists; d.Circle {
		return &CircleError{t.Owner, t.Name, roles.Owner}
	}
	if err := e.excess(&d); err != nil {
		return err
	}
	if d.ready() {
		return nil
	}
	if err := Become(ctx, tx, ""); err != nil {
		return err
	}
	if err := e.grants(ctx, &d); err != nil {
		return err
	}
	if err := e.equip(ctx); err != nil {
		return err
	}
	if d, err = e.find(ctx); err != nil {
		return err
	}
	return e.refusal(&d)
}

func (e *equipping) find(ctx context.Context) (deleter, error) {
	rows, err := e.tx.Query(ctx, deleterSQL, e.t.OID, e.name, e.t.oids()[1:], e.t.Column, e.roles.Owner, schemas.DeleterFunctions(), schemas.CallerView)
	if err != nil {
		return deleter{}, fmt.Errorf("check %s: %w", e.name, err)
	}
	d, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[deleter])
	if err != nil {
		return deleter{}, fmt.Errorf("check %s, which deletes from %s: %w", e.name, e.t.Name, err)
	}
	return d, nil
}

// statement is a statement that only a role with power over the table's owner can run, and why it is needed.
type statement struct{ sql, why string }

// grants makes the role and grants it what it lacks. If one statement is refused the error has all of them, because none of them persists.
func (e *equipping) grants(ctx context.Context, d *deleter) error {
	missing, err := e.missing(ctx, d)
	if err != nil {
		return err
	}
	for _, s := range missing {
		refused, err := e.try(ctx, s.sql)
		if err != nil {
			return err
		}
		if refused != nil {
			all := make([]string, len(missing))
			for i, m := range missing {
				all[i] = m.sql
			}
			return &GrantError{SQL: strings.Join(all, "; "), Why: s.why, Cause: refused, Login: true}
		}
	}
	return nil
}

// missing lists the statements that grants runs.
func (e *equipping) missing(ctx context.Context, d *deleter) (all []statement, err error) {
	deleter, owner, table := schemas.Identifier(e.name), schemas.Identifier(e.t.Owner), e.t.Name
	add := func(sql, why string, args ...any) { all = append(all, statement{sql, fmt.Sprintf(why, args...)}) }
	inherit, set := "", ""
	if d.SetOptions {
		inherit, set = " with inherit true, set false", " with inherit false, set true"
	}
	if !d.Exists {
		add("create role "+deleter+" nologin", "there is no role %s to delete for %s, which owns %s", e.name, e.t.Owner, table)
	}
	if !d.Super && !d.Member {
		add("grant "+owner+" to "+deleter+inherit, "%s is not a member of %s, which owns %s", e.name, e.t.Owner, table)
	}
	var login string
	var super bool
	if err := e.tx.QueryRow(ctx, `select r.rolname, r.rolsuper from pg_roles r where r.rolname = session_user`).Scan(&login, &super); err != nil {
		return nil, fmt.Errorf("check the login: %w", err)
	}
	if !d.MayGive && !super {
		add("grant "+deleter+" to "+schemas.Identifier(login)+set, "%s may not give functions to %s", login, e.name)
	}
	if !d.Inherits {
		sql := "alter role " + schemas.Identifier(login) + " inherit"
		if d.SetOptions {
			sql = "grant " + schemas.Identifier(e.roles.Owner) + " to " + schemas.Identifier(login) + " with inherit true"
		}
		add(sql, "%s is a member of %s and does not inherit its rights", login, e.roles.Owner)
	}
	for _, schema := range d.Schemas {
		add("grant usage on schema "+schema+" to "+deleter, "%s may not use schema %s", e.name, schema)
	}
	if d.Super {
		ungranted, err := e.ungranted(ctx)
		if err != nil {
			return nil, err
		}
		for _, relation := range ungranted {
			add(fmt.Sprintf("grant select, delete, update (%s) on %s to %s", schemas.Identifier(e.t.Column), relation.Name, deleter),
				"%s may not delete from %s, whose owner %s is a superuser", e.name, relation.Name, e.t.Owner)
		}
	}
	return all, nil
}

// ungranted are the table and those of its leaves on which the deleter of a superuser's tables lacks a right.
func (e *equipping) ungranted(ctx context.Context) ([]Relation, error) {
	rows, _ := e.tx.Query(ctx, `
		select c.oid
		  from pg_class c
		  left join pg_roles d on d.rolname = $2
		 where c.oid = any ($1)
		   and not coalesce(has_table_privilege(d.oid, c.oid, 'select') and has_table_privilege(d.oid, c.oid, 'delete')
		                    and has_column_privilege(d.oid, c.oid, $3, 'update'), false)`, e.t.oids(), e.name, e.t.Column) // CollectRows has its error
	oids, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	if err != nil {
		return nil, fmt.Errorf("check the rights of %s: %w", e.name, err)
	}
	var relations []Relation
	for _, r := range append([]Relation{{OID: e.t.OID, Name: e.t.Name}}, e.t.Leaves...) {
		if slices.Contains(oids, r.OID) && !slices.Contains(relations, r) {
			relations = append(relations, r)
		}
	}
	return relations, nil
}

// try runs a statement in a savepoint. refused is PostgreSQL's error if the session may not run it.
func (e *equipping) try(ctx context.Context, sql string) (refused, err error) {
	err = pgx.BeginFunc(ctx, e.tx, func(inner pgx.Tx) error {
		_, err := inner.Exec(ctx, sql)
		return err
	})
	switch state := schemas.StateOf(err); {
	case err == nil:
		return nil, nil
	case state == schemas.SQLStateInsufficientPrivilege || state == schemas.SQLStateInvalidGrantOperation:
		return err, nil
	case state == schemas.SQLStateUniqueViolation || state == schemas.SQLStateDuplicateObject:
		return nil, nil // the role was made meanwhile, for another database of the cluster
	}
	return nil, fmt.Errorf("%s: %w", sql, err)
}

// equip grants the deleter its rights in schema lapse, and records it. Afterwards the transaction's role is the catalog's owner.
func (e *equipping) equip(ctx context.Context) error {
	if err := Become(ctx, e.tx, e.roles.Owner); err != nil {
		return err
	}
	for _, sql := range e.equipment() {
		if _, err := e.tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	_, err := e.tx.Exec(ctx, `insert into lapse.deleter (role, owner) values ($1, $2) on conflict (role) do update set owner = excluded.owner`,
		e.name, e.t.OwnerOID)
	if err != nil {
		return fmt.Errorf("record %s: %w", e.name, err)
	}
	return nil
}

// equipment are the grants in schema lapse.
func (e *equipping) equipment() []string {
	name := schemas.Identifier(e.name)
	return []string{
		"grant usage on schema lapse to " + name,
		"grant select on " + schemas.CallerView + " to " + name,
		"grant execute on function " + strings.Join(schemas.DeleterFunctions(), ", ") + " to " + name,
	}
}
