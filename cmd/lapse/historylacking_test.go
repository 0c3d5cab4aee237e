package main

import (
	"strings"
	"testing"

	"lapse/audit/history"
)

func TestTheHistoryNamesTheTopicsThatLackSomething(t *testing.T) {
	for outcome, want := range map[history.Outcome]string{
		history.OutcomeGap:      "one history, and shop.user lacks what was acknowledged in it: the audit writes a gap",
		history.OutcomeAccepted: "next: shop.user lacks records that it had acknowledged: the audit writes a gap",
	} {
		var out strings.Builder
		p := &historyView{}
		p.setResult(&history.Result{Outcome: outcome, Why: "shop.user lacks what was acknowledged in it", Lacking: []string{"shop.user"}})
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
