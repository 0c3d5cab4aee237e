package main

import (
	"strings"
	"testing"
)

func TestAReasonIsNoLongerThanTheLogKeepsIt(t *testing.T) {
	t.Parallel()
	if err := checkReason(strings.Repeat("ä", maxReason)); err != nil {
		t.Error(err)
	}
	if err := checkReason(strings.Repeat("a", maxReason+1)); err == nil || !strings.Contains(err.Error(), "name a ticket and no person") {
		t.Errorf("201 characters: %v", err)
	}
}
