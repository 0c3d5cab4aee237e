package database

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// Owner says who owns a table, and who the session is.
type Owner struct {
	Name      string
	OID       uint32
	Superuser bool
	login     string
	dba       string // a superuser that the session is or can become, or ""
	others    string // the first partition of another role, or ""
	othersOf  string
}

const ownerSQL = `
	with recursive tree(relation) as (
	  select $1::oid
	  union
	  select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.relation
	)
	select o.rolname::text, o.oid, o.rolsuper, current_user::text,
	       coalesce((select s.rolname::text from pg_roles s
	                  where s.rolsuper and pg_has_role(session_user, s.oid, 'member')
	                  order by s.rolname = session_user desc, s.rolname limit 1), ''),
	       coalesce(x.name, ''), coalesce(x.owner, '')
	  from pg_class c
	  join pg_roles o on o.oid = c.relowner
	  left join lateral (
	    select format('%I.%I', n.nspname, p.relname) as name, pg_get_userbyid(p.relowner)::text as owner
	      from tree
	     cross join lateral (select p.relname, p.relowner, p.relnamespace from pg_class p where p.oid = tree.relation offset 0) p
	      join pg_namespace n on n.oid = p.relnamespace
	     where p.relowner <> c.relowner
	     order by 1
	     limit 1
	  ) x on true
	 where c.oid = $1`

// OwnerOf reads the owner of the table with an oid and a name.
func OwnerOf(ctx context.Context, q Querier, oid uint32, name string) (*Owner, error) {
	o := &Owner{}
	err := q.QueryRow(ctx, ownerSQL, oid).Scan(&o.Name, &o.OID, &o.Superuser, &o.login, &o.dba, &o.others, &o.othersOf)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, &RefusedError{name + " is gone, or another table"}
	}
	if err != nil {
		return nil, fmt.Errorf("check the owner of %s: %w", name, err)
	}
	return o, nil
}

// Giving describes a function that another role is to own, so that it reads with that role's rights.
type Giving struct {
	Function string // with its arguments
	Name     string // of the table
	Owner    *Owner
	Reads    []string                  // the relations
	Deleter  func(owner uint32) string // nil, or the role that gets it if the owner cannot
	Ask      Querier                   // a session that may prepare statements, if this one may not; nil: this one may
}

// Give makes the table's owner own the function. If the session may not do that, it makes the owner's deleter own it.
func (t *DraftTx) Give(ctx context.Context, g Giving) (err error) {
	w, counts := g.Owner, g.Owner.login
	switch {
	case w.others != "":
		return &RefusedError{fmt.Sprintf("partition %s belongs to %s and its root to %s: alter table %s owner to %s",
			w.others, w.othersOf, w.Name, w.others, schemas.Identifier(w.Name))}
	case w.dba != "":
		if counts, err = t.giveAsSuperuser(ctx, w, g.Function); err != nil {
			return err
		}
	case w.login != w.Name:
		takers := []string{w.Name}
		if g.Deleter != nil {
			takers = append(takers, g.Deleter(w.OID))
		}
		if counts, err = t.giveOneOf(ctx, g.Function, takers, w.login); err != nil {
			return err
		}
	}
	t.alone = counts != w.Name
	ask := g.Ask
	if ask == nil || w.Superuser {
		ask = t // if only this transaction knows a role that it made
	}
	return mayRead(ctx, ask, g.Name, g.Reads, counts)
}

// giveOneOf gives the function to the first role that the session may give it to, and returns that role.
func (t *DraftTx) giveOneOf(ctx context.Context, function string, takers []string, login string) (string, error) {
	for _, taker := range takers {
		err := pgx.BeginFunc(ctx, t.Tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "alter function "+function+" owner to "+schemas.Identifier(taker))
			return err
		})
		switch state := schemas.StateOf(err); {
		case err == nil:
			return taker, nil
		case state != schemas.SQLStateInsufficientPrivilege && state != schemas.SQLStateUndefinedObject:
			return "", fmt.Errorf("give the function that counts to %s: %w", taker, err)
		}
	}
	return login, nil
}

// giveAsSuperuser gives the function to any owner.
func (t *DraftTx) giveAsSuperuser(ctx context.Context, w *Owner, function string) (counts string, err error) {
	var script string
	if w.login != w.dba {
		script = "set local role " + schemas.Identifier(w.dba) + ";\n"
	}
	counts = w.Name
	if w.Superuser {
		counts = "lapse_plan_" + uuid.NewString()
		reader := schemas.Identifier(counts)
		script += "create role " + reader + " nologin bypassrls;\ngrant pg_read_all_data to " + reader + ";\n"
	}
	script += "alter function " + function + " owner to " + schemas.Identifier(counts) + ";\n"
	if _, err := t.Exec(ctx, script, pgx.QueryExecModeSimpleProtocol); err != nil {
		return "", fmt.Errorf("give the function that counts to %s: %w", counts, err)
	}
	return counts, nil
}

// mayRead lists the grants that role lacks to read relations, all at once.
func mayRead(ctx context.Context, q Querier, table string, relations []string, role string) error {
	var grants []string
	err := q.QueryRow(ctx, `
		with read as (
		  select n.oid as schema, n.nspname, c.oid as relation, c.relname
		    from unnest($2::text[]) r(name)
		   cross join lateral parse_ident(r.name) p
		   cross join lateral (select n.oid, n.nspname from pg_namespace n where n.nspname = p[1] offset 0) n
		   cross join lateral (select c.oid, c.relname from pg_class c where c.relnamespace = n.oid and c.relname = p[2] offset 0) c
		)
		select array(
		  select text
		    from (select distinct 1 as place, format('grant usage on schema %I', nspname) as text from read
		           where not has_schema_privilege($1::name, schema, 'usage')
		          union all
		          select 2, format('grant select on %I.%I', nspname, relname) from read
		           where not has_table_privilege($1::name, relation, 'select')) missing
		   order by place, text)`, role, relations).Scan(&grants)
	if err != nil {
		return fmt.Errorf("check the rights of %s: %w", role, err)
	}
	if len(grants) > 0 {
		to := " to " + schemas.Identifier(role)
		return &RefusedError{fmt.Sprintf("%s may not read %s: %s", role, table, strings.Join(grants, to+"; ")+to)}
	}
	return nil
}
