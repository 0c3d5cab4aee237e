package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/access"
	"lapse/internal/setup/site"
	"lapse/replication"
)

// Fit is resolve.Fit: it asks replication, which decides what can be published.
func Fit(ctx context.Context, tx pgx.Tx, table uint32) (problem string, err error) {
	err = replication.CheckIdentity(ctx, tx, table)
	var identity *replication.IdentityError
	if errors.As(err, &identity) {
		return identity.Error(), nil
	}
	return "", err
}

// updated are the tables whose inserts and updates are published once the changes are in force.
func (cs Changes) updated() site.Updated {
	all := site.Updated{}
	for i := range cs {
		all[cs[i].PublishesChangesOf()] = true
	}
	return all
}

// checkPublished lists what is not published of each change, and what is wrong with publishing it, with as many statements for many changes as
// for one. Without an audit it lists how publications of others affect deletions.
func (a *Applier) checkPublished(ctx context.Context, db replication.Querier, members []replication.Member, updates site.Updated, checks []checked) error {
	var tables []uint32
	joining := map[uint32][]*checked{} // by the table that is not published
	for i := range checks {
		c := &checks[i]
		if c.Change == nil {
			continue
		}
		for _, table := range c.Resolved.Published {
			tables = append(tables, table.OID)
			if !a.AuditRequired {
				continue
			}
			c.tables = append(c.tables, table.OID)
			if !updates.IsMember(members, table.OID) {
				c.Publish = append(c.Publish, table.Name)
				joining[table.OID] = append(joining[table.OID], c)
			}
		}
	}
	check := replication.CheckIdentities
	if !a.AuditRequired {
		check = replication.CheckDeletes
	}
	found, err := check(ctx, db, tables)
	if err != nil {
		return err
	}
	for i := range checks {
		c := &checks[i]
		if c.Change == nil {
			continue
		}
		for _, table := range c.Resolved.Published {
			if problem := found[table.OID]; problem != nil {
				c.published = append(c.published, problem)
			}
		}
	}
	if len(joining) == 0 || a.Conn == nil {
		return nil
	}
	return a.checkOwners(ctx, joining)
}

// checkOwners finds the tables that this login may not publish: it needs their owners' rights, and the use of their schemas.
func (a *Applier) checkOwners(ctx context.Context, joining map[uint32][]*checked) error {
	rows, _ := a.Conn.Query(ctx, `
		select c.oid, format('%I.%I', n.nspname, c.relname), quote_ident(o.rolname), o.rolsuper, quote_ident(session_user), quote_ident(n.nspname),
		       pg_has_role(session_user, o.oid, 'usage')
		  from pg_class c
		  join pg_namespace n on n.oid = c.relnamespace
		  join pg_roles o on o.oid = c.relowner
		 where c.oid = any ($1)
		   and not (pg_has_role(session_user, o.oid, 'usage') and has_schema_privilege(session_user, n.oid, 'usage'))
		 order by 2`, slices.Collect(maps.Keys(joining))) // ForEachRow has its error
	var oid uint32
	var table, owner, login, schema string
	var super, owns bool
	_, err := pgx.ForEachRow(rows, []any{&oid, &table, &owner, &super, &login, &schema, &owns}, func() error {
		problem := &access.GrantError{
			Why: fmt.Sprintf("table %s belongs to %s, and only its owner may publish it", table, owner), SQL: fmt.Sprintf("grant %s to %s", owner, login), Login: true,
		}
		switch {
		case owns:
			problem = &access.GrantError{
				Why: fmt.Sprintf("%s may not use schema %s, and so may not publish table %s", login, schema, table), SQL: fmt.Sprintf("grant usage on schema %s to %s", schema, login), Login: true,
			}
		case super:
			problem = &access.GrantError{
				Why: fmt.Sprintf("table %s belongs to %s, a superuser, and only its owner may publish it", table, owner),
				SQL: fmt.Sprintf("alter table %s owner to ROLE, or `lapse apply` of this file", table), Login: true, Apart: true,
			}
		}
		for _, c := range joining[oid] {
			c.published = append(c.published, problem)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("ask who owns the tables to publish: %w", err)
	}
	return nil
}
