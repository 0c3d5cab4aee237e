package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/access"
	"lapse/schemas"
)

// roles makes the roles and lets the logins play them, and warns if one login plays them all.
func (w *installing) roles(ctx context.Context) error {
	if err := w.equipRoles(ctx); err != nil {
		return err
	}
	superuser, err := access.Superusers(ctx, w.login, w.Others.Executor)
	if err != nil {
		return err
	}
	deletes := w.Others.Executor
	if superuser[deletes] {
		deletes = w.Roles.Login
	}
	warning, err := access.LoginOfPower(ctx, w.login, w.Roles, deletes)
	if warning != "" {
		w.result.Warnings = append(w.result.Warnings, warning)
	}
	return err
}

// equipRoles makes the roles and lets the logins play them, or says what a superuser must run.
func (w *installing) equipRoles(ctx context.Context) error {
	warnings, err := access.CheckRoles(ctx, w.login, w.Roles, w.Logins, w.Others)
	if err != nil {
		return err
	}
	w.result.Warnings = append(w.result.Warnings, warnings...)
	superuser, err := access.Superusers(ctx, w.login, append(w.Others.Names(), w.Logins.Owner)...)
	if err != nil {
		return err
	}
	if !superuser[w.Logins.Owner] {
		return w.mustBeThere(ctx)
	}
	makes := superuser[w.Others.Executor] || superuser[w.Others.Auditor]
	if makes {
		if err := w.checkLogin(ctx); err != nil {
			return err
		}
	}
	missing, err := access.MissingRoles(ctx, w.login, w.Roles, w.Others)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		if err := access.MakeRoles(ctx, w.login, w.Roles, w.Others); err != nil {
			return err
		}
		w.did("roles", "%s", strings.Join(missing, ", "))
	}
	if err := w.equip(ctx, w.Others); err != nil {
		return err
	}
	for _, login := range w.Others.Names() {
		if slices.Contains(missing, login) {
			w.result.NewLogins = append(w.result.NewLogins, login)
		}
	}
	if makes {
		return w.makeLogin(ctx)
	}
	return nil
}

// mustBeThere is roles for a login that may make none.
func (w *installing) mustBeThere(ctx context.Context) error {
	missing, err := access.MissingRoles(ctx, w.login, w.Roles, w.Logins)
	if err != nil {
		return err
	}
	config := w.login.Config()
	if len(missing) > 0 {
		return &SuperuserError{
			What: "roles are missing: " + strings.Join(missing, ", "), Login: config.User,
			SQL: access.GrantsSQL(w.Roles, config.Database, w.Logins, nil, access.OwnServer),
		}
	}
	grants, err := access.MissingGrants(ctx, w.login, w.Roles, w.Logins)
	if err != nil || len(grants) == 0 {
		return err
	}
	what := "grants are missing"
	other, err := access.UsedElsewhere(ctx, w.login, w.Roles)
	if err != nil {
		return err
	}
	if other != "" {
		what += fmt.Sprintf(", and the roles are those of database %s: a second database has roles, slot and topics of its own, "+
			"such as roles: { prefix: other_ } in lapse.yaml (docs/configuration.md, A second database), or it shares these", schemas.Identifier(other))
	}
	return &SuperuserError{What: what, Login: config.User, SQL: strings.Join(grants, ";\n") + ";\n"}
}

// equip grants logins what they lack.
func (w *installing) equip(ctx context.Context, logins access.Logins) error {
	missing, err := access.MissingGrants(ctx, w.login, w.Roles, logins)
	if err != nil || len(missing) == 0 {
		return err
	}
	done, err := access.Grant(ctx, w.login, w.Roles, logins)
	if err != nil {
		return err
	}
	w.did("grants", "%s", strings.Join(done, "; "))
	return nil
}

// makeLogin makes the login for all other commands, if the settings name only a superuser's.
func (w *installing) makeLogin(ctx context.Context) error {
	name := w.Roles.Login
	logins := access.OneLogin(name)
	missing, err := access.MissingRoles(ctx, w.login, w.Roles, logins)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		if err := access.MakeRoles(ctx, w.login, w.Roles, logins); err != nil {
			return err
		}
		w.did("login", "%s", name)
	}
	grants, err := access.MissingGrants(ctx, w.login, w.Roles, logins)
	if err != nil || len(missing) == 0 && len(grants) == 0 {
		return err
	}
	if err := w.equip(ctx, logins); err != nil {
		return err
	}
	w.result.Login = name
	return nil
}

// checkLogin refuses, before anything is made, a role of the login's name that neither init nor the script of --grants made, unless a
// person has made it play the roles. If they made it, checkLogin refuses it if another role is a member of it.
func (w *installing) checkLogin(ctx context.Context) error {
	var there, plays bool
	err := w.login.QueryRow(ctx, `
		select count(r.oid) > 0, coalesce(bool_and(not r.rolsuper and (select count(*) = 3 from pg_roles o where o.rolname = any ($2) and pg_has_role(r.oid, o.oid, 'member'))), false)
		  from pg_roles r where r.rolname = $1`,
		w.Roles.Login, []string{w.Roles.Owner, w.Roles.Executor, w.Roles.Auditor}).Scan(&there, &plays)
	if err != nil {
		return fmt.Errorf("check role %s: %w", w.Roles.Login, err)
	}
	if !there || plays {
		return nil
	}
	trouble, err := access.LoginTrouble(ctx, w.login, w.Roles)
	if err != nil {
		return err
	}
	made, err := access.OfLapse(ctx, w.login, w.Roles.Login)
	if err != nil {
		return err
	}
	if trouble == "" && len(made) == 0 {
		trouble = "neither init nor the script of --grants made it"
	}
	if trouble == "" {
		return nil
	}
	return fmt.Errorf("role %[1]s is there, and %[2]s: it would get all that Lapse may do. Nothing was given to it: choose other names with roles: {prefix: …} "+
		"in lapse.yaml, or say with database: in lapse.yaml which login the other commands use; if it is meant, have it named: "+
		"database: postgres://%[1]s@…", schemas.Identifier(w.Roles.Login), trouble)
}

// rights restores rights that executor and auditor have lost, all or nothing. Each grant is in its giver's name: for the functions of
// policies a deleter, which the login must be able to become.
func (w *installing) rights(ctx context.Context) error {
	var lost []access.LostRight
	err := pgx.BeginFunc(ctx, w.owner.Conn, func(tx pgx.Tx) (err error) {
		if lost, err = access.LostRights(ctx, tx, w.Roles); err != nil {
			return err
		}
		for _, l := range lost {
			if err := access.Become(ctx, tx, ""); err != nil {
				return err
			}
			for _, sql := range []string{"set local role " + schemas.Identifier(l.Owner), l.SQL} {
				if _, err := tx.Exec(ctx, sql); err != nil {
					return fmt.Errorf("%s: %w", sql, err)
				}
			}
		}
		return nil
	})
	if schemas.StateOf(err) == schemas.SQLStateInsufficientPrivilege {
		return &SuperuserError{What: "roles lost rights", Login: w.login.Config().User, SQL: lostSQL(lost)}
	}
	if err != nil {
		return fmt.Errorf("give rights back: %w", err)
	}
	if len(lost) > 0 {
		w.did("rights", "%d, that %s lacked in schema lapse", len(lost), strings.Join(access.Losers(lost), " and "))
	}
	return nil
}

func lostSQL(lost []access.LostRight) string {
	var sql strings.Builder
	for _, l := range lost {
		sql.WriteString(l.SQL + ";\n")
	}
	return sql.String()
}
