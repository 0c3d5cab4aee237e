package planner

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/fixture/catalog"
	"lapse/internal/pgtest"
	"lapse/internal/setup/site"
	"lapse/planner/change"
	"lapse/planner/functions"
	"lapse/schemas"
)

// inLatin1 makes a database of another encoding than the server's others, with the catalog in it.
func inLatin1(t *testing.T, beside *pgtest.DB) *pgtest.DB {
	t.Helper()
	db := &pgtest.DB{Name: beside.Name + "_latin1", Major: beside.Major, Server: beside.Server}
	db.URL = db.Server.URL("postgres", db.Name)
	beside.Exec(t, `create database `+db.Name+` encoding 'LATIN1' lc_collate 'C' lc_ctype 'C' template template0`,
		// Sessions of ours say so themselves.
		`alter database `+db.Name+` set client_encoding = 'UTF8'`)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		conn, err := pgx.Connect(ctx, beside.Server.URL("postgres", "postgres"))
		must(t, err)
		defer func() { _ = conn.Close(ctx) }()
		must(t, runSQL(conn, `drop database `+db.Name+` with (force)`))
		must(t, runSQL(conn, `drop role if exists `+db.Name+`_app`))
	})
	must(t, catalog.Install(t.Context(), db.Connect(t), site.Options{Roles: testRoles}))
	must(t, runSQL(db.Connect(t), `update lapse.installation set audit_required = false`))
	return db
}

// Names, keys and texts of a database that is not UTF-8: all that is read and written goes through the server's own
// conversion, and the functions' texts are the same on both sides of it.
func TestADatabaseInLatin1IsLikeAnyOther(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		db = inLatin1(t, db)
		w := newWorld(t, db)
		const table, column, key = `shop."Bestände"`, `geändert`, `"Schlüssel"`
		w.do(`create table ` + table + ` (` + key + ` text, "größe" char(9), "` + column + `" timestamptz not null, primary key (` + key + `, "größe"))`)
		w.do(`create index "nach_Änderung" on ` + table + ` ("` + column + `", ` + key + `, "größe")`)
		w.do(`create table "Zubehör" (id int primary key, "für" text, "groß" char(9), foreign key ("für", "groß") references ` + table + ` on delete cascade)`)
		w.do(`insert into ` + table + ` select chr(192 + n % 60) || 'ß' || n, 'é' || n, now() - interval '40 days' from generate_series(1, 100) n`)
		w.do(`insert into ` + table + ` select 'ÿ' || n, 'ü', now() from generate_series(1, 10) n`)
		w.do(`insert into "Zubehör" select row_number() over (), ` + key + `, "größe" from ` + table + ` where "größe" like 'é7%'`)
		p := w.armed(policyText(`'`+table+`'`, column, "30 days", "    state: armed"))
		if p.TableName != table || p.Definition.Key[0].Name != "Schlüssel" || p.Trouble != "" {
			t.Errorf("in force is %+v", p)
		}
		survey, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
		must(t, err)
		if survey.Due != 100 || survey.Trouble != "" || survey.Index != "nach_Änderung" && survey.Index != `shop."nach_Änderung"` {
			t.Errorf("the survey says %+v", survey)
		}
		want, err := functions.Of(&p.Definition, testRoles)
		must(t, err)
		wantFunctions(t, catalogFunctions(t, w.admin, fmt.Sprintf("_%d_%d$", p.ID, p.Version)), want)
		shared, _, err := schemas.RunFunctions(testRoles)
		must(t, err)
		var names []string
		for i := range shared {
			names = append(names, strings.TrimPrefix(shared[i].Name, "lapse."))
		}
		wantFunctions(t, catalogFunctions(t, w.admin, "^("+strings.Join(names, "|")+")$"), shared)

		r := w.open(&p)
		got := w.deleteAll(p, r, 7)
		if got.Deleted != 100 || got.Picked != 100 {
			t.Errorf("got %+v, want a hundred rows", got)
		}
		if n := value[int](w, `select count(*) from `+table); n != 10 {
			t.Errorf("%d rows are left, want the ten that are not due", n)
		}
		if n := value[int](w, `select count(*) from "Zubehör"`); n != 0 {
			t.Errorf("%d rows that a cascade deletes are left", n)
		}
		if made := w.apply(policyText(`'`+table+`'`, column, "31 days"))[0]; made.Kind != change.Changed {
			t.Errorf("got %+v", made)
		}
	})
}
