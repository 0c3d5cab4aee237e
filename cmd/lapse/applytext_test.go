package main

import (
	"strings"
	"testing"

	"lapse/internal/setup/apply"
	"lapse/planner"
	"lapse/schemas"
)

// The rows that newly fall due are counted over all policies, and those to be armed are some of them: the line says of how many.
func TestTheTotalSaysOfHowManyPoliciesSomeAreArmed(t *testing.T) {
	changes := apply.Changes{
		{Change: planner.Change{Kind: planner.New, ToState: schemas.Arming}},
		{Change: planner.Change{Kind: planner.New, ToState: schemas.Observing}},
		{Change: planner.Change{Kind: planner.Removed, ToState: schemas.Dropped}},
	}
	if got, want := (&applier{}).total(changes), "; 1 of 3 policies to be armed, and to delete "; !strings.Contains(got, want) {
		t.Errorf("%q, want %q in it", got, want)
	}
}
