package setup_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/internal/setup/access"
)

func TestRolesThatCanDoTooMuchAreRefused(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		boss := db.NewRole(t, "boss", "superuser")
		for _, role := range []string{p.roles.Owner, p.roles.Executor, p.roles.Auditor} {
			for spoil, mend := range map[string]string{
				fmt.Sprintf("alter role %s superuser", role): fmt.Sprintf(`alter role "%s" nosuperuser`, role),
				fmt.Sprintf("grant %s to %s", boss, role):    fmt.Sprintf(`revoke "%s" from "%s"`, boss, role),
			} {
				db.Exec(t, spoil)
				_, err := access.CheckRoles(t.Context(), p.admin, p.roles)
				var refused *access.RoleError
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), mend) {
					t.Errorf("after %s: got %v, want: %s", spoil, err, mend)
				}
				db.Exec(t, mend)
			}
		}
		warnings, err := access.CheckRoles(t.Context(), p.admin, p.roles)
		if err != nil || len(warnings) > 0 {
			t.Errorf("got %q, %v", warnings, err)
		}
	})
}

func TestMembersOfTheRolesThatAreNoLoginsOfTheSettingsAreNamed(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		mallory, ours, app := db.NewRole(t, "mallory"), db.NewRole(t, "ours"), db.NewRole(t, "app")
		db.Exec(t, fmt.Sprintf("grant %[1]s to %[2]s, %[3]s; grant %[4]s to %[1]s", p.roles.Owner, mallory, ours, app))
		warnings, err := access.CheckRoles(t.Context(), p.admin, p.roles, access.OneLogin(ours))
		p.must(err)
		if len(warnings) != 2 ||
			!strings.Contains(warnings[0], fmt.Sprintf("revoke %s from %s", p.roles.Owner, mallory)) ||
			!strings.Contains(warnings[1], fmt.Sprintf("revoke %s from %s", app, p.roles.Owner)) {
			t.Errorf("got %q", warnings)
		}
		// The maker of the roles may grant them, and is named only on 14 and 15, where that is a membership like others.
		creator := db.NewRole(t, "creator", "createrole")
		conn := db.ConnectAs(t, creator)
		if _, err := conn.Exec(t.Context(), fmt.Sprintf("create role %s_x_owner", db.Name)); err != nil {
			t.Fatal(err)
		}
		made := p.roles
		made.Owner = db.Name + "_x_owner"
		if warnings, err = access.CheckRoles(t.Context(), p.admin, made); err != nil || len(warnings) > 0 {
			t.Errorf("the maker of the role is named: %q, %v", warnings, err)
		}
		// Unless the catalog's owner is none of theirs.
		if _, err := conn.Exec(t.Context(), fmt.Sprintf("create role %[1]s_y_executor; create role %[1]s_y_login login", db.Name)); err != nil {
			t.Fatal(err)
		}
		made = p.roles
		made.Executor, made.Login = db.Name+"_y_executor", db.Name+"_y_login"
		warnings, err = access.CheckRoles(t.Context(), p.admin, made, access.OneLogin(ours), access.OneLogin(mallory))
		p.must(err)
		trouble, err := access.LoginTrouble(t.Context(), p.admin, made)
		p.must(err)
		if db.Major >= 16 && (!strings.Contains(strings.Join(warnings, " "), fmt.Sprintf("revoke %s from %s", made.Executor, creator)) || trouble != "has a member, "+creator) {
			t.Errorf("got %q and %q, want %s named", warnings, trouble, creator)
		}
	})
}

func TestARoleOfSomebodyElsesIsNotTakenForTheLogin(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := newPlace(t, db)
		member := db.NewRole(t, "member")
		for _, c := range []struct{ make, trouble string }{
			{"create role %s login", ""},
			{"create role %s", "may not log in"},
			{"create role %s login superuser", "is a superuser"},
			{"create role %[1]s login; grant %[1]s to " + member, "has a member, " + member},
		} {
			db.Exec(t, fmt.Sprintf(c.make, p.roles.Login))
			if got, err := access.LoginTrouble(t.Context(), p.admin, p.roles); err != nil || got != c.trouble {
				t.Errorf("%s: got %q, %v, want %q", c.make, got, err, c.trouble)
			}
			db.Exec(t, "drop role "+p.roles.Login)
		}
	})
}

// The script is run by a superuser: no name in it may become a statement, and the DBA's session may be any.
func TestTheScriptIsWhatItSaysWhateverTheNamesAre(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := newPlace(t, db)
		owner := db.NewRole(t, `o"'$lapse$\`)
		db.Exec(t, `create schema "s.'$lapse$"; create table "s.'$lapse$"."t\'; drop table x; --" (id int primary key, "a""t'" timestamptz)`,
			`alter table "s.'$lapse$"."t\'; drop table x; --" owner to "`+strings.ReplaceAll(owner, `"`, `""`)+`"`,
			`grant usage on schema "s.'$lapse$" to "`+strings.ReplaceAll(owner, `"`, `""`)+`"`)
		login := db.Name + `_l"'$lapse1$`
		script := access.GrantsSQL(p.roles, db.Name, access.OneLogin(login), []access.PolicyTable{
			{Name: `"s.'$lapse$"."t\'; drop table x; --"`, Column: `a"t'`},
		}, access.OwnServer)
		// A planted format would be a better match than pg_catalog's own.
		db.Exec(t, `create schema evil; create sequence evil.hits;
			create function evil.format(text, text, text) returns text language sql as 'select nextval(''evil.hits''); select format($1, variadic array[$2, $3])';
			create function evil.pg_has_role(text, text, text) returns boolean language sql as 'select nextval(''evil.hits'') > 0'`)
		db.Exec(t, `set search_path = evil, pg_catalog; set standard_conforming_strings = off; set quote_all_identifiers = on;`+script)
		if one[bool](p, `select is_called from evil.hits`) {
			t.Error("a planted function ran")
		}
		if !one[bool](p, `select pg_has_role($1, $2, 'usage') and pg_has_role($1, $3, 'member') and (select rolreplication from pg_roles where rolname = $1)`,
			login, owner, p.roles.Owner) {
			t.Error("the login is not what the script is to make of it")
		}
		db.Exec(t, script)
		db.Exec(t, `drop owned by "`+strings.ReplaceAll(owner, `"`, `""`)+`"`)
		_, err := p.admin.PgConn().Exec(t.Context(), script).ReadAll()
		if err == nil || !strings.Contains(err.Error(), "there is no table") {
			t.Errorf("a missing table: got %v", err)
		}
	})
}
