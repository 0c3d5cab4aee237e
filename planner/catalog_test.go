package planner

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/fixture/catalog"
	"lapse/internal/fixture/definitions"
	"lapse/internal/pgtest"
	"lapse/internal/setup/site"
	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/schemas"
)

// catalogFunctions reads functions of schema lapse as the catalog has them, in the form that the texts are read in.
func catalogFunctions(t testing.TB, conn *pgx.Conn, like string) []schemas.Function {
	t.Helper()
	all, err := database.Collect[schemas.Function](t.Context(), conn, `
		select 'lapse.' || p.proname, pg_get_userbyid(p.proowner)::text, l.lanname::text,
		       case p.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
		       p.prosecdef, p.proisstrict, coalesce(p.proconfig, '{}'), p.prosrc
		  from pg_proc p
		  join pg_language l on l.oid = p.prolang
		 where p.pronamespace = 'lapse'::regnamespace and p.proname ~ $1
		 order by p.proname collate "C"`, like)
	must(t, err)
	for i := range all {
		for j, s := range all[i].Settings {
			name, value, _ := strings.Cut(s, "=")
			all[i].Settings[j] = strings.ToLower(name) + "=" + value
		}
		slices.Sort(all[i].Settings)
		if len(all[i].Settings) == 0 {
			all[i].Settings = nil
		}
	}
	return all
}

func wantFunctions(t testing.TB, got, want []schemas.Function) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("the catalog has %d functions, want %d", len(got), len(want))
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("the catalog has\n%+v\nwant\n%+v", got[i], want[i])
		}
	}
	if schemas.DigestOf(got...) != schemas.DigestOf(want...) {
		t.Error("the digests differ")
	}
}

// The executor holds the catalog against these texts before every batch: what is installed must be they, to the byte.
func TestTheCatalogHasExactlyTheFunctionsOfTheTexts(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		shared, _, err := schemas.RunFunctions(testRoles)
		must(t, err)
		names := make([]string, 0, len(shared))
		for _, f := range shared {
			names = append(names, strings.TrimPrefix(f.Name, "lapse."))
		}
		wantFunctions(t, catalogFunctions(t, w.admin, "^("+strings.Join(names, "|")+")$"), shared)

		all := definitions.Golden()
		all["odd"] = functions.Definition{
			ID: 4, Version: 1, Name: "odd", Table: `shop."od\d'$""x$"`, Expire: definitions.Age(`a"t\'é`, 2, expiry.Timestamptz, "", expiry.Interval{Days: 1}),
			Key: []functions.KeyColumn{{Name: `k$1"\'`, Number: 1, Type: "text", Plain: true}, {Name: "lapse", Number: 3, Type: `shop."En'um"`}}, Batch: 1,
		}
		owner := valueOn[uint32](t, w.admin, `select oid from pg_roles where rolname = $1`, w.app)
		must(t, w.script(`create role `+testRoles.Deleter(owner)))
		for name, d := range all {
			d.TableOwner = owner
			create, give, err := functions.SQL(&d, testRoles)
			must(t, err)
			must(t, w.script("begin; set local role "+testRoles.Owner+";\n"+create+"reset role;\n"+give+"commit"))
			want, err := functions.Of(&d, testRoles)
			must(t, err)
			slices.SortFunc(want, func(a, b schemas.Function) int { return strings.Compare(a.Name, b.Name) })
			t.Log(name)
			wantFunctions(t, catalogFunctions(t, w.admin, fmt.Sprintf("_%d_%d$", d.ID, d.Version)), want)
		}
		for role, want := range map[string]bool{testRoles.Deleter(owner): false, testRoles.Executor: false, testRoles.Owner: true} {
			if got := valueOn[bool](t, w.admin, `select has_schema_privilege($1, 'lapse', 'create')`, role); got != want {
				t.Errorf("%s may create in schema lapse: %t, want %t", role, got, want)
			}
		}
	})
}

// Roles of any name: the texts hold them as identifiers and as text.
func TestTheFunctionsOfAnInstallationWithOddRolesAreThoseOfTheTexts(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := db.Connect(t)
		roles := schemas.RolesFor(db.Name + `_O"d d'\_`)
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			for _, role := range []string{roles.Owner, roles.Executor, roles.Auditor} {
				_, err := conn.PgConn().Exec(ctx, fmt.Sprintf("drop owned by %[1]s cascade; drop role %[1]s", schemas.Identifier(role))).ReadAll()
				must(t, err)
			}
		})
		must(t, runSQL(conn, `drop schema lapse cascade`))
		must(t, catalog.Install(t.Context(), conn, site.Options{Roles: roles}))
		shared, _, err := schemas.RunFunctions(roles)
		must(t, err)
		got := catalogFunctions(t, conn, ".")
		got = slices.DeleteFunc(got, func(f schemas.Function) bool {
			return !slices.ContainsFunc(shared, func(s schemas.Function) bool { return s.Name == f.Name })
		})
		wantFunctions(t, got, shared)
		// A superuser is a member of every role: past that question, the policy is not there.
		wantState(t, runSQL(conn, `select lapse.inspect(1, 1)`), schemas.SQLStateTarget)
	})
}
