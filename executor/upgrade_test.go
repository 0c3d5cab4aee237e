package executor

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/internal/setup"
	"lapse/schemas"
)

// version3 puts the catalog of version 3 in place of the newest, as an installation of that version has it.
func version3(t *testing.T, db *pgtest.DB) {
	t.Helper()
	roles := schemas.RolesFor(schemas.DefaultRolePrefix)
	steps, err := schemas.Migrations(0, roles)
	if err != nil {
		t.Fatal(err)
	}
	if steps[0].Version != 3 {
		t.Fatalf("the first step is version %d", steps[0].Version)
	}
	db.Exec(t, "drop schema lapse cascade", "grant create on database "+db.Name+" to "+schemas.Identifier(roles.Owner))
	err = pgx.BeginFunc(t.Context(), db.Connect(t), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "set local role "+schemas.Identifier(roles.Owner)); err != nil {
			return err
		}
		if _, err := tx.Exec(t.Context(), steps[0].SQL); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "insert into lapse.installation (schema_version, slot, audit_required) values (3, 'lapse', false)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
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

func TestARunThatVersion3OpenedGoesOnAfterTheUpgrade(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		const due, live = 300, 50
		version3(t, db)
		sessions(t, db, due, live)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 20")))
		h := record(t, db)

		// A run with one batch done, by the functions of version 3.
		w := &work{policy: &inForce(t, db)[0]}
		e := newExecutor(t, db)
		var err error
		if w.session, err = connect(t.Context(), e.config.Database, e.holder, Limits{BatchTime: time.Second}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.close)
		err = w.control.QueryRow(t.Context(), "select run, cutoff, started_at from lapse.open_run($1, $2, $3)", w.policy.ID, w.policy.Version, uuid.New()).
			Scan(&w.run.ID, &w.run.Cutoff, &w.run.StartedAt)
		if err != nil {
			t.Fatal(err)
		}
		w.acquire(t)
		begun, err := w.begin(t.Context(), w.a.functions)
		if err != nil {
			t.Fatal(err)
		}
		done, err := w.call(t.Context(), w.a, testKey, begun, 20)
		if err != nil || done.deleted != 20 {
			t.Fatalf("the batch of version 3 did %+v, %v", done, err)
		}
		if err := w.commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		cursor := one[[]string](t, db, "select cursor from lapse.shard")
		w.close()

		if found := upgrade(t, db); found != 3 {
			t.Errorf("it found version %d", found)
		}
		got := one[string](t, db, `select slice || ' ' || num_nonnulls(lower, upper, modulus, remainder) || ' ' || residual || ' ' || picked from lapse.shard`)
		if got != "0 0 false 20" || !slices.Equal(one[[]string](t, db, "select cursor from lapse.shard"), cursor) {
			t.Errorf("the shard is %s, want all of its leaf where it was", got)
		}
		db.Exec(t, expireLeases)
		s := once(t, newExecutor(t, db))
		if p := only(t, s); p.Run != w.run.ID || p.Deleted != due-20 || p.Outcome != Finished {
			t.Errorf("after the upgrade it did %+v, want to go on with run %v", p, w.run.ID)
		}
		noRowTwice(t, h, "public.sessions", due)
		if left := one[int](t, db, "select count(*) from sessions"); left != live {
			t.Errorf("%d rows are left, want %d", left, live)
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
		version3(t, db)
		use(db)
		if slices.Equal(facts(fresh), facts(db)) {
			t.Fatal("version 3 and the newest do not differ: the test shows nothing")
		}
		upgrade(t, db)
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

// A deleter that is gone from the cluster does not stand in an upgrade's way.
func TestAnUpgradePassesOverADeleterThatIsGone(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		version3(t, db)
		db.Exec(t, fmt.Sprintf("insert into lapse.deleter (role, owner) values ('%s_gone', 1)", db.Name))
		if found := upgrade(t, db); found != 3 {
			t.Errorf("it found version %d", found)
		}
	})
}
