package setup_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/pgtest"
	"lapse/internal/setup/access"
	"lapse/schemas"
)

// applied makes sure that the policies' functions belong to the owner's deleter, and that the deleter is what it must be:
// a member of one owner, usable by who applied and nobody else, with the rights in schema lapse that it needs and no others.
func (p *place) applied(owner, table, login string) {
	p.t.Helper()
	deleter := p.deleter(owner)
	for what, query := range map[string]string{
		"it may not log in and has no attribute": `select not (rolcanlogin or rolsuper or rolcreaterole or rolcreatedb or rolreplication or rolbypassrls)
			from pg_roles where rolname = $1`,
		"it is a member of one role":      `select count(*) = 1 from pg_auth_members where member = $1::regrole`,
		"it has functions":                `select count(*) >= 2 from pg_proc where proowner = $1::regrole and pronamespace = 'lapse'::regnamespace`,
		"it owns nothing else":            `select count(*) = 0 from pg_shdepend where refobjid = $1::regrole and deptype = 'o' and classid <> 'pg_proc'::regclass`,
		"it may not create in the schema": `select has_schema_privilege($1, 'lapse', 'usage') and not has_schema_privilege($1, 'lapse', 'create')`,
		"it has no right on a table of ours": `select not bool_or(has_table_privilege($1, c.oid, r) or has_any_column_privilege($1, c.oid, 'select, insert, update'))
			from pg_class c, unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']) r
			where c.relnamespace = 'lapse'::regnamespace and c.relkind = 'r'`,
		"it is on record": `select exists (select from lapse.deleter where role = $1)`,
	} {
		if !one[bool](p, query, deleter) {
			p.t.Errorf("%s: not so: %s", deleter, what)
		}
	}
	if got := one[string](p, `select g.rolname from pg_auth_members m join pg_roles g on g.oid = m.roleid where m.member = $1::regrole`, deleter); got != owner {
		p.t.Errorf("%s is a member of %s, want %s", deleter, got, owner)
	}
	// On 16 and later the maker of a role may grant it: that is a membership without use.
	members := one[[]string](p, `select array(select distinct u.rolname::text from pg_auth_members m join pg_roles u on u.oid = m.member
		where m.roleid = $1::regrole
		  and coalesce((to_jsonb(m) ->> 'inherit_option')::boolean or (to_jsonb(m) ->> 'set_option')::boolean, true))`, deleter)
	if want := slices.DeleteFunc([]string{login}, func(s string) bool { return s == "postgres" }); !slices.Equal(members, want) {
		p.t.Errorf("members of %s are %v, want %v", deleter, members, want)
	}
	callable := one[[]string](p, `select array(select f.oid::regprocedure::text from pg_proc f
		where f.pronamespace = 'lapse'::regnamespace and f.proowner <> $1::regrole and has_function_privilege($1, f.oid, 'execute') order by 1)`, deleter)
	wanted := one[[]string](p, `select array(select w::regprocedure::text from unnest($1::text[]) w order by 1)`, schemas.DeleterFunctions())
	if !slices.Equal(callable, wanted) {
		p.t.Errorf("%s may call %v, want %v", deleter, callable, wanted)
	}
	if !one[bool](p, `select has_table_privilege($1, $2, 'select') and has_table_privilege($1, $2, 'delete')`, deleter, table) {
		p.t.Errorf("%s may not delete from %s", deleter, table)
	}
	if one[int](p, `select current_setting('server_version_num')::int`) >= 160000 && !one[bool](p,
		`select bool_and(not (to_jsonb(m) ->> 'set_option')::boolean and (to_jsonb(m) ->> 'inherit_option')::boolean)
		   from pg_auth_members m where m.member = $1::regrole`, deleter) {
		p.t.Errorf("%s may become %s", deleter, owner)
	}
}

func TestADeleterHasTheRightsOfItsOwnerAndNoOthers(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		a, tableA := p.table("a")
		b, tableB := p.table("b")
		p.must(p.apply(p.admin, tableA, tableB))
		p.applied(a, tableA, "postgres")
		p.applied(b, tableB, "postgres")
		p.must(p.apply(p.admin, tableA, tableB)) // nothing to do
		if n := one[int](p, `select count(*) from lapse.policy`); n != 2 {
			t.Errorf("%d versions, want 2", n)
		}
	})
}

// On 14 and 15 CREATEROLE may grant any role; on 16 and later it takes ADMIN OPTION on the owner.
func TestALoginWithCreateroleMakesADeleter(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		owner, table := p.table("app")
		login, conn := p.login("dba", "createrole")
		if db.Major >= 16 {
			err := p.apply(conn, table)
			var refused *access.GrantError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), fmt.Sprintf(`grant "%s" to "%s" with inherit true, set false`, owner, p.deleter(owner))) {
				t.Errorf("without ADMIN OPTION: got %v, want the statement", err)
			}
			db.Exec(t, fmt.Sprintf(`grant %s to %s with admin option`, owner, login))
		}
		p.must(p.apply(conn, table))
		p.applied(owner, table, login)
	})
}

func TestWhatIsMissingForADeleterIsSaidAndIsEnough(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		owner, table := p.table("app")
		login, conn := p.login("nobody")
		err := p.apply(conn, table)
		var refused *access.GrantError
		if !errors.As(err, &refused) {
			t.Fatalf("got %v, want a GrantError", err)
		}
		if one[bool](p, `select exists (select from pg_roles where rolname = $1) or exists (select from lapse.policy)`, p.deleter(owner)) {
			t.Error("something was written before the grants were there")
		}
		db.Exec(t, refused.SQL)
		p.must(p.apply(conn, table))
		p.applied(owner, table, login)
	})
}

func TestAScriptByADBAIsEnoughForALoginWithoutRights(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		p := newPlace(t, db)
		owner, table := p.table("app")
		login := db.Name + "_one"
		script := access.GrantsSQL(p.roles, db.Name, access.OneLogin(login), []access.PolicyTable{{Name: table, Column: "at"}}, access.OwnServer)
		db.Exec(t, script, script) // safe to repeat
		conn := p.connect(login)
		p.must(p.catalog(conn))
		p.must(p.apply(conn, table))
		p.applied(owner, table, login)
		if one[bool](p, `select rolsuper or rolcreaterole from pg_roles where rolname = $1`, login) {
			t.Error("the login has more than it needs")
		}
		// What the DBA's script makes is what a superuser's apply makes.
		p.must(p.apply(p.admin))
		p.must(p.apply(p.admin, table))
		p.applied(owner, table, login)
	})
}

// As on a managed server: the DBA owns the database and may make roles. Only a superuser gives REPLICATION on 14 and 15.
func TestADBAWhoIsNoSuperuserMayRunTheScript(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		p := newPlace(t, db)
		owner, table := p.table("app")
		login := db.Name + "_one"
		attribute := "replication"
		if db.Major < 16 {
			attribute = ""
			db.Exec(t, `create role `+login+` login replication`)
		}
		dba := db.Name + "_dba" // it cannot be dropped before what it granted, on 16 and later
		db.Exec(t, `create role `+dba+` login createrole `+attribute, fmt.Sprintf(`alter database %s owner to %s; grant %s to %[2]s with admin option`, db.Name, dba, owner))
		script := access.GrantsSQL(p.roles, db.Name, access.OneLogin(login), []access.PolicyTable{{Name: table, Column: "at"}}, access.OwnServer)
		conn := db.ConnectAs(t, dba)
		for range 2 {
			_, err := conn.PgConn().Exec(t.Context(), script).ReadAll()
			p.must(err)
		}
		apply := p.connect(login)
		p.must(p.catalog(apply))
		p.must(p.apply(apply, table))
		p.applied(owner, table, login)
		missing, err := access.MissingGrants(t.Context(), apply, p.roles, access.OneLogin(login))
		if err != nil || len(missing) > 0 {
			t.Errorf("missing still: %v, %v", missing, err)
		}
	})
}

// On the servers of the test a role plays the provider's; what nobody may do there, it may not do either. Only the attribute
// REPLICATION cannot be played on 14 and 15, where nobody but a superuser may give it: there the login has it already.
func TestTheScriptForAManagedServerIsEnoughForItsAdministrator(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		db.Exec(t, `do $$ begin create role rds_replication; exception when duplicate_object or unique_violation then null; end $$`)
		for _, managed := range access.ManagedServers() {
			p := newPlace(t, db)
			p.roles = schemas.RolesFor(db.Name + managed + "_")
			owner := db.NewRole(t, managed+"_app")
			db.Exec(t, fmt.Sprintf(`create schema %[1]s; grant usage on schema %[1]s to %[1]s; create table %[1]s.t (id int primary key, at timestamptz);
				alter table %[1]s.t owner to %[1]s; create table %[1]s.u (id int primary key, data jsonb); alter table %[1]s.u owner to %[1]s`, owner))
			login, dba := db.Name+managed+"_one", db.Name+managed+"_dba"
			attribute := ""
			switch {
			case managed == string(access.RDS):
			case db.Major >= 16:
				attribute = "replication"
			default:
				db.Exec(t, `create role `+login+` login replication`)
			}
			db.Exec(t, `create role `+dba+` login createrole `+attribute, fmt.Sprintf(`alter database %s owner to %s; alter schema %s owner to %[2]s; grant %[3]s, rds_replication to %[2]s with admin option`, db.Name, dba, owner))
			script := access.GrantsSQL(p.roles, db.Name, access.OneLogin(login),
				[]access.PolicyTable{{Name: owner + ".t", Column: "at", Index: true}, {Name: owner + ".u"}}, access.Managed(managed))
			for range 2 {
				_, err := db.ConnectAs(t, dba).PgConn().Exec(t.Context(), script).ReadAll()
				p.must(err)
			}
			if !one[bool](p, `select has_schema_privilege($1::name, $1::text, 'create') and not rolsuper and not rolcreaterole from pg_roles where rolname = $2`, owner, login) {
				t.Errorf("%s: the owner cannot make an index, or the login has more than it needs", managed)
			}
			missing, err := access.MissingGrants(t.Context(), p.admin, p.roles, access.OneLogin(login))
			if err != nil || len(missing) > 0 {
				t.Errorf("%s: missing still: %v, %v", managed, missing, err)
			}
			if (managed == string(access.RDS)) == strings.Contains(script, "  alter role ") || !strings.Contains(script, "pg_hba.conf") {
				t.Errorf("%s: the script is\n%s", managed, script)
			}
			if managed == string(access.RDS) {
				conn := p.connect(login)
				p.must(p.catalog(conn))
				p.must(p.apply(conn, owner+".t"))
			}
		}
	})
}

func TestTheTablesOfASuperuserAreGrantedOneByOne(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 16, 18}, func(t *testing.T, db *pgtest.DB) {
		p := newPlace(t, db)
		db.Exec(t, `create schema shop; create schema archive; revoke all on schema public from public`,
			`create table shop.visits (id int, at timestamptz, primary key (id, at)) partition by range (at);
			 create table archive.visits_old partition of shop.visits for values from (minvalue) to ('2025-01-01')`)
		login := db.Name + "_one"
		db.Exec(t, access.GrantsSQL(p.roles, db.Name, access.OneLogin(login), []access.PolicyTable{{Name: "shop.visits", Column: "at"}}, access.OwnServer))
		conn := p.connect(login)
		p.must(p.catalog(conn))
		p.must(p.apply(conn, "shop.visits"))
		deleter := p.deleter("postgres")
		if one[int](p, `select count(*) from pg_auth_members where member = $1::regrole`, deleter) != 0 {
			t.Errorf("%s is a member of a role", deleter)
		}
		if !one[bool](p, `select has_table_privilege($1, 'archive.visits_old', 'delete') and not has_table_privilege($1, 'archive.visits_old', 'truncate')
			and has_column_privilege($1, 'archive.visits_old', 'at', 'update') and not has_column_privilege($1, 'archive.visits_old', 'id', 'update')`, deleter) {
			t.Errorf("%s has not the rights that it needs and no others", deleter)
		}
		if got := p.quietly(conn, `delete from shop.visits`); got != "42501" {
			t.Errorf("the login may delete from a superuser's table: %q", got)
		}
	})
}

// quietly runs a statement that may fail, in the login's own name, and returns its SQLSTATE.
func (p *place) quietly(conn *pgx.Conn, sql string) string {
	p.t.Helper()
	_, err := conn.Exec(p.t.Context(), sql)
	if err != nil && stateOf(err) == "" {
		p.t.Fatal(err)
	}
	return stateOf(err)
}

func TestADeleterThatSomebodyElseCanUseIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		owner, table := p.table("app")
		_, other := p.table("other")
		mallory := db.NewRole(t, "mallory")
		p.must(p.apply(p.admin, table))
		deleter := p.deleter(owner)
		for _, c := range []struct{ spoil, mend, says string }{
			{fmt.Sprintf("grant %s to %s", deleter, mallory), fmt.Sprintf("revoke %s from %s", deleter, mallory), "could change its functions"},
			{fmt.Sprintf("grant %s to %s", strings.TrimSuffix(other, ".t"), deleter), fmt.Sprintf("revoke %s from %s", strings.TrimSuffix(other, ".t"), deleter), "deletes for " + owner + " alone"},
			{"alter role " + deleter + " login", "alter role " + deleter + " nologin", "has an attribute"},
			{"alter role " + deleter + " createrole", "alter role " + deleter + " nocreaterole", "has an attribute"},
		} {
			db.Exec(t, c.spoil)
			p.must(p.apply(p.admin)) // dropping asks for nothing
			err := p.apply(p.admin, table)
			var refused *access.GrantError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("after %s: got %v, want: %s", c.spoil, err, c.says)
				continue
			}
			db.Exec(t, refused.SQL)
			if err := p.apply(p.admin, table); err != nil {
				t.Errorf("after %s: %v", refused.SQL, err)
			}
			db.Exec(t, c.mend)
		}
	})
}

// The statement must run as it is although the role that it speaks of was undone with the refusal.
func TestATableWithForcedRowSecurityIsAppliedAfterTheStatementThatTheRefusalNames(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		for _, before := range []string{"", "alter role {} nobypassrls"} {
			_, table := p.table("app" + fmt.Sprint(len(before)))
			role, _, _ := strings.Cut(table, ".")
			if before != "" {
				p.must(p.apply(p.admin, table))
				db.Exec(t, strings.ReplaceAll(before, "{}", p.deleter(role)))
			}
			db.Exec(t, `alter table `+table+` enable row level security, force row level security`)
			var refused *access.GrantError
			if err := p.apply(p.admin, table); !errors.As(err, &refused) || strings.Contains(err.Error(), "--grants") {
				t.Fatalf("got %v", err)
			}
			db.Exec(t, refused.SQL)
			p.must(p.apply(p.admin, table))
		}
	})
}

// The maker of a role keeps the right to grant it, on 16 and later.
func TestADeleterThatSomebodyElseMadeBeforehandIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{16, 18}, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		owner, table := p.table("app")
		deleter := p.deleter(owner)
		mallory := db.NewRole(t, "mallory", "createrole")
		accomplice := db.NewRole(t, "accomplice")
		script := access.GrantsSQL(p.roles, db.Name, access.OneLogin(db.Name+"_one"), []access.PolicyTable{{Name: table, Column: "at"}}, access.OwnServer)
		for _, also := range []string{"", "; grant " + deleter + " to " + accomplice} {
			_, err := db.ConnectAs(t, mallory).PgConn().Exec(t.Context(), "create role "+deleter+also).ReadAll()
			p.must(err)
			mend := fmt.Sprintf(`revoke "%s" from %s`, deleter, mallory)
			if also != "" {
				mend = fmt.Sprintf(`revoke "%s" from %s, %s`, deleter, accomplice, mallory)
			}
			err = p.apply(p.admin, table)
			var refused *access.GrantError
			if !errors.As(err, &refused) || refused.SQL != mend+" cascade" {
				t.Fatalf("got %v, want: %s", err, mend)
			}
			_, err = p.admin.PgConn().Exec(t.Context(), script).ReadAll()
			var server *pgconn.PgError
			if !errors.As(err, &server) || server.Hint != "have a superuser run: "+strings.ReplaceAll(mend, `"`, "")+" cascade" {
				t.Errorf("the script: got %v, want the hint: %s", err, mend)
			}
			_, err = p.admin.Exec(t.Context(), "rollback")
			p.must(err)
			db.Exec(t, refused.SQL, script)
			p.must(p.apply(p.admin, table))
			p.applied(owner, table, db.Name+"_one")
			if state := p.quietly(db.ConnectAs(t, mallory), "grant "+deleter+" to "+mallory); state != "42501" {
				t.Errorf("mallory may still grant the role: %q", state)
			}
			p.must(p.apply(p.admin))
			_, err = access.DropUnusedDeleters(t.Context(), p.admin, p.roles)
			p.must(err)
		}
	})
}

func TestAnOwnerWhoWouldOwnTheCatalogIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 16, 18}, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		owner, table := p.table("app")
		db.Exec(t, fmt.Sprintf(`grant %s, %s, %s to %s`, p.roles.Owner, p.roles.Executor, p.roles.Auditor, owner))
		for _, conn := range []*pgx.Conn{p.admin, p.connect(owner)} {
			err := p.apply(conn, table)
			var circle *access.CircleError
			if !errors.As(err, &circle) || !strings.Contains(err.Error(), "three logins") {
				t.Errorf("got %v, want the recipe of three logins", err)
			}
		}
		logins := access.Logins{Owner: p.roles.Owner[:len(p.roles.Owner)-5] + "apply", Executor: db.Name + "_run", Auditor: db.Name + "_audit"}
		for name, login := range map[string]access.Logins{"the owner's login": access.OneLogin(owner), "logins beside it": logins} {
			script := access.GrantsSQL(p.roles, db.Name, login, []access.PolicyTable{{Name: table, Column: "at"}}, access.OwnServer)
			_, err := p.admin.PgConn().Exec(t.Context(), script).ReadAll()
			if err == nil || !strings.Contains(err.Error(), "would own the catalog") {
				t.Errorf("%s: the script was not refused: %v", name, err)
			}
			_, _ = p.admin.Exec(t.Context(), "rollback")
		}
		if one[bool](p, `select exists (select from pg_roles where rolname = $1)`, logins.Owner) {
			t.Error("the script made roles before it refused")
		}
		db.Exec(t, fmt.Sprintf(`revoke %s, %s, %s from %s`, p.roles.Owner, p.roles.Executor, p.roles.Auditor, owner),
			access.GrantsSQL(p.roles, db.Name, logins, []access.PolicyTable{{Name: table, Column: "at"}}, access.OwnServer))
		p.must(p.apply(p.connect(logins.Owner), table))
		p.applied(owner, table, logins.Owner)
	})
}
