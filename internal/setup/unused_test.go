package setup_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/internal/setup/access"
)

// dropUnused is what apply does after it has dropped policies.
func (p *place) dropUnused(conn *pgx.Conn) string {
	p.t.Helper()
	warnings, err := access.DropUnusedDeleters(p.t.Context(), conn, p.roles)
	p.must(err)
	return strings.Join(warnings, "\n")
}

// gone fails the test unless role and record of a deleter are gone.
func (p *place) gone(deleter string) {
	p.t.Helper()
	if one[bool](p, `select exists (select from pg_roles where rolname = $1) or exists (select from lapse.deleter where role = $1)`, deleter) {
		p.t.Errorf("%s is still there", deleter)
	}
}

func TestTheLastPolicyOfAnOwnerTakesTheDeleterAlong(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		a, tableA := p.table("a")
		b, tableB := p.table("b")
		db.Exec(t, `create schema shop; create table shop.t (id int primary key, at timestamptz)`,
			fmt.Sprintf(`revoke all on schema %s from %[1]s; grant usage on schema %[1]s to %[1]s`, a))
		p.must(p.apply(p.admin, tableA, tableB, "shop.t"))
		deleterA, deleterB, deleterS := p.deleter(a), p.deleter(b), p.deleter("postgres")
		if said := p.dropUnused(p.admin); said != "" {
			t.Errorf("with all policies in force: %s", said)
		}
		p.must(p.apply(p.admin, tableB))
		if said := p.dropUnused(p.admin); said != "" {
			t.Errorf("after two were dropped: %s", said)
		}
		p.gone(deleterA)
		p.gone(deleterS)
		p.applied(b, tableB, "postgres")
		if n := one[int](p, `select count(*) from pg_proc where pronamespace = 'lapse'::regnamespace and proname ~ '^(delete|find|survey|due)_'`); n != 4 {
			t.Errorf("%d functions are left, want 2", n)
		}
		p.must(p.apply(p.admin, tableA))
		p.must(p.apply(p.admin, tableA, tableB))
		p.applied(a, tableA, "postgres")
		p.applied(b, tableB, "postgres")
		if p.deleter(b) != deleterB {
			t.Error("the deleter has another name")
		}
	})
}

// acls are the rights of deleters outside schema lapse, and their memberships.
func (p *database) acls() []string {
	p.t.Helper()
	return ask[[]string](p, `
		select array(
		  select c.oid::regclass || ': ' || a.privilege_type
		    from pg_class c cross join lateral aclexplode(c.relacl) a
		   where pg_get_userbyid(a.grantee) like current_database() || '\_deleter\_%' and c.relnamespace is distinct from to_regnamespace('lapse')
		  union all
		  select c.oid::regclass || ': column ' || t.attname
		    from pg_attribute t join pg_class c on c.oid = t.attrelid cross join lateral aclexplode(t.attacl) a
		   where pg_get_userbyid(a.grantee) like current_database() || '\_deleter\_%'
		  union all
		  select 'schema ' || n.nspname from pg_namespace n cross join lateral aclexplode(n.nspacl) a
		   where pg_get_userbyid(a.grantee) like current_database() || '\_deleter\_%' and n.nspname <> 'lapse'
		  union all
		  select g.rolname || ' to ' || u.rolname
		    from pg_auth_members m join pg_roles g on g.oid = m.roleid join pg_roles u on u.oid = m.member
		   where u.rolname like current_database() || '\_deleter\_%' or g.rolname like current_database() || '\_deleter\_%'
		  order by 1)`)
}

func TestWhatADroppedPolicyWasGrantedIsRevokedInTheSameApply(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		p := newInstalled(t, db)
		db.Exec(t, `create schema a; create schema b; create schema c; create table a.t (id int primary key, at timestamptz);
			create table a.u (id int primary key, at timestamptz);
			create table b.t (id int, at timestamptz, primary key (id, at)) partition by range (at); create table c.leaf partition of b.t default`)
		p.applies(file(t, "", "a.t"))
		alone := p.acls()
		p.applies(file(t, "", "a.t", "a.u", "b.t"))
		if len(p.acls()) < 2*len(alone) {
			t.Errorf("with three policies there is %q", p.acls())
		}
		changes := p.applies(file(t, "", "a.t"))
		same(t, "with one policy", p.acls(), alone)
		if len(changes) != 3 {
			t.Errorf("%d changes", len(changes))
		}
		p.applies(file(t, "", "b.t")) // another policy on the owner's other table, at once
		for _, line := range p.acls() {
			if strings.HasPrefix(line, "a.") || line == "schema a" {
				t.Errorf("left is %s", line)
			}
		}
		// What an apply that was cut off left is taken by the next one that changes anything.
		role := p.roles.Deleter(10)
		db.Exec(t, `grant select, update (at) on a.u to `+role+`; grant usage on schema a to `+role)
		p.applies(file(t, ", owner: x", "b.t"))
		for _, line := range p.acls() {
			if strings.HasPrefix(line, "a.") || line == "schema a" {
				t.Errorf("left is %s", line)
			}
		}
		p.applies(file(t, "", append(p.family(), "b.t")...))
		p.applies(file(t, ""))
		if got := p.acls(); len(got) > 0 {
			t.Errorf("without policies there is %q", got)
		}
	})
}

func TestALoginWithCreateroleDropsADeleter(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		owner, table := p.table("app")
		login, conn := p.login("dba", "createrole")
		db.Exec(t, fmt.Sprintf(`grant %s to %s with admin option`, owner, login))
		p.must(p.apply(conn, table))
		deleter := p.deleter(owner)
		p.must(p.apply(conn))
		if said := p.dropUnused(conn); said != "" {
			t.Error(said)
		}
		p.gone(deleter)
	})
}

func TestADeleterThatTheLoginMayNotDropIsNamedUntilItIsGone(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		p := newPlace(t, db)
		owner, table := p.table("app")
		login := db.Name + "_one"
		db.Exec(t, access.GrantsSQL(p.roles, db.Name, access.OneLogin(login), []access.PolicyTable{{Name: table, Column: "at"}}, access.OwnServer))
		conn := p.connect(login)
		p.must(p.catalog(conn))
		p.must(p.apply(conn, table))
		deleter := p.deleter(owner)
		p.must(p.apply(conn))
		for range 2 {
			if said := p.dropUnused(conn); !strings.Contains(said, "have a superuser run: drop role \""+deleter+"\"") {
				t.Errorf("got %q, want the statement", said)
			}
			names, err := access.UnusedDeleters(t.Context(), conn)
			if err != nil || len(names) != 1 || names[0] != deleter {
				t.Errorf("unused are %v, %v", names, err)
			}
		}
		if one[bool](p, `select has_schema_privilege($1, 'lapse', 'usage')`, deleter) {
			t.Errorf("%s may still use schema lapse", deleter)
		}
		db.Exec(t, `drop role `+deleter)
		if said := p.dropUnused(conn); said != "" {
			t.Error(said)
		}
		p.gone(deleter)
	})
}

func TestADeleterThatAnotherDatabaseNeedsStays(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 16, 18}, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		owner, table := p.table("app")
		other := &place{t: t, db: pgtest.New(t, db.Major), roles: p.roles}
		other.admin = other.db.Connect(t)
		p.must(access.MakeRoles(t.Context(), other.admin, other.roles))
		other.must(other.catalog(other.admin))
		other.db.Exec(t, fmt.Sprintf(`create schema %[1]s authorization %[1]s; set role %[1]s; create table %[2]s (id int primary key, at timestamptz)`, owner, table))
		p.must(p.apply(p.admin, table))
		other.must(other.apply(other.admin, table))
		deleter := p.deleter(owner)

		p.must(p.apply(p.admin))
		if said := p.dropUnused(p.admin); !strings.Contains(said, "another database of the cluster needs it") {
			t.Errorf("got %q", said)
		}
		other.applied(owner, table, "postgres")
		other.must(other.apply(other.admin))
		if said := other.dropUnused(other.admin); said != "" {
			t.Error(said)
		}
		other.gone(deleter)
		if said := p.dropUnused(p.admin); said != "" {
			t.Error(said)
		}
		p.gone(deleter)
	})
}

func TestDroppingADeleterWaitsForAPolicyThatNeedsItAgain(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		owner, table := p.table("app")
		p.must(p.apply(p.admin, table))
		p.must(p.apply(p.admin))

		needing := db.Connect(t)
		tx, err := needing.Begin(t.Context())
		p.must(err)
		r := one[uint32](p, `select oid from pg_roles where rolname = $1`, owner)
		p.must(access.EnsureDeleter(t.Context(), tx, access.Table{
			OID: one[uint32](p, `select $1::text::regclass::oid`, table), Name: table, Owner: owner, OwnerOID: r, Column: "at",
		}, p.roles))
		said := make(chan string, 1)
		dropping := db.Connect(t)
		go func() {
			warnings, err := access.DropUnusedDeleters(t.Context(), dropping, p.roles)
			said <- fmt.Sprint(warnings, err)
		}()
		for deadline := time.Now().Add(time.Minute); !one[bool](p, `select exists (select from pg_locks where not granted and pid = $1)`,
			int32(dropping.PgConn().PID())); {
			if time.Now().After(deadline) {
				t.Fatal("nobody waits")
			}
		}
		// The policy's functions, as far as they matter here.
		_, err = tx.Exec(t.Context(), fmt.Sprintf(`create function lapse.delete_9_1() returns int language sql as 'select 1';
			set local role none; grant create on schema lapse to %[1]s; alter function lapse.delete_9_1() owner to %[1]s;
			revoke create on schema lapse from %[1]s`, p.deleter(owner)))
		p.must(err)
		p.must(tx.Commit(t.Context()))
		if got := <-said; got != "[] <nil>" {
			t.Errorf("got %s", got)
		}
		if !one[bool](p, `select has_schema_privilege($1, 'lapse', 'usage')`, p.deleter(owner)) {
			t.Error("the deleter has lost its rights")
		}
	})
}
