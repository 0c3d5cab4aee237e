package main

import (
	"strings"
	"testing"

	"lapse/internal/setup/apply"
	"lapse/planner/change"
	"lapse/schemas"
)

// The rows that newly fall due are counted over all policies, and those to be armed are some of them: the line says of how many.
func TestTheTotalSaysOfHowManyPoliciesSomeAreArmed(t *testing.T) {
	changes := apply.Changes{
		{Change: change.Change{Kind: change.New, ToState: schemas.Arming}},
		{Change: change.Change{Kind: change.New, ToState: schemas.Observing}},
		{Change: change.Change{Kind: change.Removed, ToState: schemas.Dropped}},
	}
	if got, want := (&applier{}).total(changes), "; 1 of 3 policies to be armed, and to delete "; !strings.Contains(got, want) {
		t.Errorf("%q, want %q in it", got, want)
	}
}
