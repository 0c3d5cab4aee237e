package batch

import (
	"errors"
	"testing"

	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/schemas"
)

// One reading serves the first look and the first batch. It only spares readings: a function that differs is refused by the transaction that runs it.
func TestFunctionsThatWereForeseenAreNotReadAgainAndAChangedOneIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := open(t, db, 1)
		list, err := record.LoadInForce(t.Context(), w.Control)
		if err != nil {
			t.Fatal(err)
		}
		programs := func() (looks, batches *Program) {
			t.Helper()
			c := NewCatalog(schemas.RolesFor(schemas.DefaultRolePrefix))
			looks, err := FunctionsToFind(&list[0], c)
			if err != nil {
				t.Fatal(err)
			}
			if batches, err = FunctionsToDelete(&list[0], c); err != nil {
				t.Fatal(err)
			}
			if err := Foresee(t.Context(), w.Control, looks, batches); err != nil {
				t.Fatal(err)
			}
			return looks, batches
		}
		looks, batches := programs()
		for _, f := range []*Program{looks, batches} {
			known, err := w.ask(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			if known.functions == nil {
				t.Error("the functions are to be read again")
			}
		}
		db.Exec(t, "alter function lapse.enter set work_mem = '1MB'") // of batches, not of looks
		if known, err := w.ask(t.Context(), batches); err != nil || known.functions != nil {
			t.Errorf("a function that was changed since counts as equal: %v", err)
		}
		looks, batches = programs()
		if known, err := w.ask(t.Context(), looks); err != nil || known.functions == nil {
			t.Errorf("the look does not run what differs, and is to be compared again: %v", err)
		}
		known, err := w.ask(t.Context(), batches)
		if err != nil {
			t.Fatal(err)
		}
		var tampered *TamperedError
		if _, err := batches.compare(t.Context(), w.Batches, known.functions); !errors.As(err, &tampered) || tampered.Function != "lapse.enter" {
			t.Errorf("a changed function: %v, want a refusal that names it", err)
		}
	})
}
