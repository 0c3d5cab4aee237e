package main

import (
	"strings"
	"testing"

	"lapse/audit"
)

func TestTheHistoryNamesTheTopicsThatLackSomething(t *testing.T) {
	for outcome, want := range map[audit.CheckOutcome]string{
		audit.OutcomeGap:      "one history, and shop.user lacks what was acknowledged in it: the audit writes a gap",
		audit.OutcomeAccepted: "next: shop.user lacks what was acknowledged in it: the audit writes a gap",
	} {
		var out strings.Builder
		p := &historyView{}
		p.setResult(&audit.CheckResult{Outcome: outcome, Why: "shop.user lacks what was acknowledged in it", Lacking: []string{"shop.user"}})
		p.Log = &logSide{}
		p.advise()
		if err := (&app{out: &out}).printHistory(p); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s:\n%s", outcome, out.String())
		}
	}
}
