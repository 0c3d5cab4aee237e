package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/internal/setup"
	"lapse/planner"
	"lapse/schemas"
)

// installed puts the catalog of a former version in place of the newest, as an installation of that version has it.
func installed(t *testing.T, db *pgtest.DB, version int) {
	t.Helper()
	roles := schemas.RolesFor(schemas.DefaultRolePrefix)
	steps, err := schemas.Migrations(0, roles)
	if err != nil {
		t.Fatal(err)
	}
	db.Exec(t, "drop schema lapse cascade", "grant create on database "+db.Name+" to "+schemas.Identifier(roles.Owner))
	err = pgx.BeginFunc(t.Context(), db.Connect(t), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "set local role "+schemas.Identifier(roles.Owner)); err != nil {
			return err
		}
		for _, step := range steps {
			if step.Version > version {
				break
			}
			if _, err := tx.Exec(t.Context(), step.SQL); err != nil {
				return err
			}
		}
		_, err := tx.Exec(t.Context(), "insert into lapse.installation (schema_version, slot, audit_required) values ($1, 'lapse', false)", version)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// policyOfVersion4 makes what `lapse apply` of catalog version 4 made for policy p on sessions, which gets an owner of its
// own, and returns the deleter.
func policyOfVersion4(t *testing.T, db *pgtest.DB) string {
	t.Helper()
	text, err := os.ReadFile("testdata/version4.sql")
	if err != nil {
		t.Fatal(err)
	}
	role := db.NewRole(t, "owner")
	db.Exec(t, "alter table sessions owner to "+role)
	owner := one[uint32](t, db, "select oid from pg_roles where rolname = $1", role)
	deleter := schemas.RolesFor(schemas.DefaultRolePrefix).Deleter(owner)
	db.Exec(t, strings.NewReplacer("{{Deleter}}", deleter, "{{Role}}", role, "{{Owner}}", fmt.Sprint(owner)).Replace(string(text)))
	return deleter
}

// upgrade is what `lapse init` does to the catalog. It returns the version that it found.
func upgrade(t *testing.T, db *pgtest.DB) int {
	t.Helper()
	conn := db.Connect(t)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	found, err := setup.Catalog(t.Context(), conn, setup.Options{
		Roles: schemas.RolesFor(schemas.DefaultRolePrefix), Slot: "lapse", AuditRequired: false,
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// No batch runs by a text that this program would not write; `lapse apply` of the same file writes the functions anew.
func TestAPolicyOfVersion4WaitsForApplyAndGoesOn(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		const due, live = 300, 50
		installed(t, db, 4)
		sessions(t, db, due, live)
		deleter := policyOfVersion4(t, db)
		h := record(t, db)

		// A run with one batch done, by the functions of version 4.
		conn := db.ConnectAs(t, schemas.RolesFor(schemas.DefaultRolePrefix).Executor)
		_, err := conn.Exec(t.Context(), `select lapse.lease(r.run, 'h') from lapse.open_run(1, 1, gen_random_uuid()) r`)
		if err != nil {
			t.Fatal(err)
		}
		err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `
				select lapse.delete_1_1(row('1', d.oid, 1, lapse.timeline(), pg_current_xact_id(), now(), gen_random_uuid(), 1, 'p', 1, r.run, r.cutoff, 0,
				                            s.leaf, '{}', decode(repeat('00', 32), 'hex'))::lapse.claim, decode(repeat('00', 32), 'hex'), row(s.id, s.term, 'h', 20)::lapse.work)
				  from lapse.shard s
				  join lapse.run r on r.run = s.run
				  join pg_database d on d.datname = current_database()`)
			return err
		})
		if left := one[int](t, db, "select count(*) from sessions"); err != nil || left != due+live-20 {
			t.Fatalf("the batch of version 4 left %d rows, %v", left, err)
		}

		if found := upgrade(t, db); found != 4 {
			t.Errorf("it found version %d", found)
		}
		db.Exec(t, expireLeases)
		s, err := newExecutor(t, db).Once(t.Context(), nil)
		var outdated *planner.OutdatedError
		if !errors.As(err, &outdated) || !strings.Contains(err.Error(), "policy p: its functions are those of another lapse") || only(t, s).Deleted != 0 {
			t.Errorf("with the functions of version 4: %+v, %v", s, err)
		}
		arm(t, db, policies(policy("p", "public.sessions", "batch: 20")))
		if got := one[string](t, db, "select version || ' ' || state from lapse.gate"); got != "2 armed" {
			t.Errorf("after apply of the same file the policy is version %s", got)
		}
		if p := only(t, once(t, newExecutor(t, db), "p")); p.Deleted != due-20 || p.Outcome != Finished {
			t.Errorf("after apply it did %+v", p)
		}
		noRowTwice(t, h, "public.sessions", due)
		for _, f := range schemas.DeleterFunctions() {
			if !one[bool](t, db, "select has_function_privilege($1, $2, 'execute')", deleter, f) {
				t.Errorf("%s may not call %s", deleter, f)
			}
		}
		arm(t, db, policies(policy("p", "public.sessions", "batch: 20")))
		if got := one[string](t, db, "select version || ' ' || state from lapse.gate"); got != "2 armed" {
			t.Errorf("applied once more the policy is version %s", got)
		}
		if found := upgrade(t, db); found != schemas.Version {
			t.Errorf("the second time it found version %d", found)
		}
	})
}

// catalogFacts are what decides who may do what in schema lapse and what it means, as lines.
const catalogFacts = `
	select line from (
	  select format('function %s(%s) returns %s, %s, owner %s, %s %s %s, %s, %s', p.proname, pg_get_function_arguments(p.oid),
	                pg_get_function_result(p.oid), l.lanname, pg_get_userbyid(p.proowner), p.prosecdef, p.provolatile, p.proisstrict,
	                p.proconfig, md5(p.prosrc)) as line
	    from pg_proc p join pg_language l on l.oid = p.prolang where p.pronamespace = 'lapse'::regnamespace
	  union all
	  select format('%s may %s function %s(%s), given by %s, to pass on %s', coalesce(g.rolname, 'public'), a.privilege_type, p.proname,
	                pg_get_function_identity_arguments(p.oid), pg_get_userbyid(a.grantor), a.is_grantable)
	    from pg_proc p cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a left join pg_roles g on g.oid = a.grantee
	   where p.pronamespace = 'lapse'::regnamespace
	  union all
	  select format('relation %s, kind %s, owner %s', c.relname, c.relkind, pg_get_userbyid(c.relowner))
	    from pg_class c where c.relnamespace = 'lapse'::regnamespace
	  union all
	  select format('%s may %s relation %s', coalesce(g.rolname, 'public'), a.privilege_type, c.relname)
	    from pg_class c cross join lateral aclexplode(c.relacl) a left join pg_roles g on g.oid = a.grantee
	   where c.relnamespace = 'lapse'::regnamespace
	  union all
	  select format('column %s.%s number %s %s not null %s, default %s, rights %s', c.relname, a.attname, a.attnum, format_type(a.atttypid, a.atttypmod),
	                a.attnotnull, pg_get_expr(d.adbin, d.adrelid), a.attacl)
	    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
	    left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
	   where c.relnamespace = 'lapse'::regnamespace
	  union all
	  select format('constraint %s: %s', o.conname, pg_get_constraintdef(o.oid)) from pg_constraint o where o.connamespace = 'lapse'::regnamespace
	  union all
	  select pg_get_indexdef(i.indexrelid) from pg_index i join pg_class c on c.oid = i.indexrelid where c.relnamespace = 'lapse'::regnamespace
	  union all
	  select pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = t.tgrelid
	   where c.relnamespace = 'lapse'::regnamespace and not t.tgisinternal
	) facts order by line`

func TestAnUpgradedCatalogIsAsAFreshOne(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		facts := func(db *pgtest.DB) []string {
			t.Helper()
			return one[[]string](t, db, "select array_agg(line) from ("+catalogFacts+") f")
		}
		use := func(db *pgtest.DB) {
			t.Helper()
			sessions(t, db, 5, 5)
			arm(t, db, policies(policy("p", "public.sessions")))
		}
		fresh := pgtest.New(t, db.Major)
		use(fresh)
		installed(t, db, 3)
		if slices.Equal(facts(fresh), facts(db)) {
			t.Fatal("version 3 and the newest do not differ: the test shows nothing")
		}
		upgrade(t, db)
		use(db)
		want, got := facts(fresh), facts(db)
		for _, line := range want {
			if !slices.Contains(got, line) {
				t.Errorf("a fresh installation has, and the upgraded one has not: %s", line)
			}
		}
		for _, line := range got {
			if !slices.Contains(want, line) {
				t.Errorf("the upgraded installation has, and a fresh one has not: %s", line)
			}
		}
		if len(want) != len(got) {
			t.Errorf("%d facts and %d", len(want), len(got))
		}
		if there, err := setup.CheckSchema(t.Context(), db.Connect(t), schemas.RolesFor(schemas.DefaultRolePrefix)); !there || err != nil {
			t.Errorf("the upgraded schema is not taken for Lapse's: %v, %v", there, err)
		}
	})
}

// What a deleter may call is made anew, and so are its rights.
func TestAnUpgradeKeepsTheRightsOfTheDeletersThatAreThere(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		installed(t, db, 4)
		sessions(t, db, 1, 1)
		deleter := policyOfVersion4(t, db)
		upgrade(t, db)
		for _, f := range schemas.DeleterFunctions() {
			if !one[bool](t, db, "select has_function_privilege($1, $2, 'execute')", deleter, f) {
				t.Errorf("%s may not call %s", deleter, f)
			}
		}
	})
}

// A deleter that is gone from the cluster does not stand in an upgrade's way.
func TestAnUpgradePassesOverADeleterThatIsGone(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		installed(t, db, 3)
		db.Exec(t, fmt.Sprintf("insert into lapse.deleter (role, owner) values ('%s_gone', 1)", db.Name))
		if found := upgrade(t, db); found != 3 {
			t.Errorf("it found version %d", found)
		}
	})
}
