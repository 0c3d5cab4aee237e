package batch

import (
	"testing"

	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/schemas"
)

// What code in a former batch has left in the session decides nothing about a look that the driver sees for the first time: it has the
// statement described before the session is cleaned.
func TestALookIsDescribedAsInACleanSession(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := open(t, db, 1)
		var all string
		for _, name := range []string{"timestamptz", "timestamp", "bigint", "int8"} {
			all += `create type evil.` + name + ` as enum ('a'); create function evil.f(evil.` + name + `) returns timestamptz language plpgsql as
				$$ begin raise exception 'evil ran as %', session_user; end $$; create cast (evil.` + name + ` as timestamptz) with function evil.f(evil.` + name + `) as implicit; `
		}
		db.Exec(t, "create schema evil", all, "grant usage on schema evil to public")
		list, err := record.LoadInForce(t.Context(), w.Control)
		if err != nil {
			t.Fatal(err)
		}
		f, err := FunctionsToFind(&list[0], NewCatalog(schemas.RolesFor(schemas.DefaultRolePrefix)))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.compareFind(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Batches.Exec(t.Context(), "set search_path = evil, pg_catalog"); err != nil {
			t.Fatal(err)
		}
		if _, err := w.find(t.Context(), []Search{{Policy: &list[0], Functions: f}}); err != nil {
			t.Errorf("the look: %v", err)
		}
	})
}
