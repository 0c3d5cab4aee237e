package setup

import (
	"context"
	"slices"
	"strings"

	"lapse/schemas"
)

// roles makes the roles and lets the logins play them, or says what a superuser must run.
func (w *installing) roles(ctx context.Context) error {
	warnings, err := CheckRoles(ctx, w.login, w.Roles, w.Logins, w.Others)
	if err != nil {
		return err
	}
	w.result.Warnings = append(w.result.Warnings, warnings...)
	superuser, err := Superusers(ctx, w.login, append(w.Others.Names(), w.Logins.Owner)...)
	if err != nil {
		return err
	}
	if !superuser[w.Logins.Owner] {
		return w.mustBeThere(ctx)
	}
	missing, err := MissingRoles(ctx, w.login, w.Roles, w.Others)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		if err := MakeRoles(ctx, w.login, w.Roles, w.Others); err != nil {
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
	if superuser[w.Others.Executor] || superuser[w.Others.Auditor] {
		return w.makeLogin(ctx)
	}
	return nil
}

// mustBeThere is roles for whoever may not make any.
func (w *installing) mustBeThere(ctx context.Context) error {
	missing, err := MissingRoles(ctx, w.login, w.Roles, w.Logins)
	if err != nil {
		return err
	}
	config := w.login.Config()
	if len(missing) > 0 {
		return &SuperuserError{
			What: "roles are missing: " + strings.Join(missing, ", "), Login: config.User,
			SQL: GrantsSQL(w.Roles, config.Database, w.Logins, nil, OwnServer),
		}
	}
	grants, err := MissingGrants(ctx, w.login, w.Roles, w.Logins)
	if err != nil || len(grants) == 0 {
		return err
	}
	return &SuperuserError{What: "grants are missing", Login: config.User, SQL: strings.Join(grants, ";\n") + ";\n"}
}

// equip gives logins what they lack.
func (w *installing) equip(ctx context.Context, logins Logins) error {
	missing, err := MissingGrants(ctx, w.login, w.Roles, logins)
	if err != nil || len(missing) == 0 {
		return err
	}
	done, err := Grant(ctx, w.login, w.Roles, logins)
	if err != nil {
		return err
	}
	w.did("grants", "%s", strings.Join(done, "; "))
	return nil
}

// makeLogin makes the login for all other commands, where the settings name none but a superuser's. A role of its name that
// was there before is somebody's: it is taken only where nobody else is a member of it, and that is said.
func (w *installing) makeLogin(ctx context.Context) error {
	name := w.Roles.Login
	logins := OneLogin(name)
	missing, err := MissingRoles(ctx, w.login, w.Roles, logins)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		if err := MakeRoles(ctx, w.login, w.Roles, logins); err != nil {
			return err
		}
		w.did("login", "%s", name)
	} else if taken, err := w.takeLogin(ctx, logins); err != nil || !taken {
		return err
	}
	if err := w.equip(ctx, logins); err != nil {
		return err
	}
	w.result.Login = name
	return nil
}

// takeLogin says whether a login that was there before is to be given anything.
func (w *installing) takeLogin(ctx context.Context, logins Logins) (bool, error) {
	grants, err := MissingGrants(ctx, w.login, w.Roles, logins)
	if err != nil || len(grants) == 0 {
		return false, err
	}
	trouble, err := LoginTrouble(ctx, w.login, w.Roles)
	if err != nil {
		return false, err
	}
	name := schemas.Identifier(w.Roles.Login)
	if trouble != "" {
		w.warn("role %s was there before and %s, so that nothing was given to it: "+
			"name another login with database: in lapse.yaml and run lapse init again", name, trouble)
		return false, nil
	}
	w.warn("login %s was there before: whoever knows its password can delete what is due and read "+
		"the write-ahead log; if that is not meant, give it another password", name)
	return true, nil
}
