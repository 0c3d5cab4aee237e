package planner

import (
	"path/filepath"
	"strings"
	"testing"

	"lapse/internal/fixture"
	"lapse/internal/fixture/definitions"
	"lapse/planner/expiry"
)

// A DBA reads these files before running them.
func TestTheTextOfWhatHidesRowsIsAPureFunctionOfThePolicy(t *testing.T) {
	t.Parallel()
	all := definitions.Golden()
	days, months, soft := all["plain"], all["calendar"], all["soft"]
	sets := HideUnder(&soft)
	sets.Schema, sets.Table, sets.Owner, sets.As, sets.Columns = "public", "docs", "app", HideView, []string{"id"}
	for name, h := range map[string]*Hide{
		"view":   {Schema: "public", Table: "sessions", Owner: "app", As: HideView, Columns: []string{"id", `Last "seen"`}, Readers: []string{"web"}, Invoker: true, condition: days.Condition()},
		"policy": {Schema: "shop", Table: "Or'ders", Owner: "app", As: HidePolicy, Open: true, Shut: true, condition: months.Condition()},
		"soft":   sets,
	} {
		made, err := h.SQL()
		if err != nil {
			t.Fatal(err)
		}
		gone, err := h.DropSQL()
		if err != nil {
			t.Fatal(err)
		}
		fixture.WantFile(t, *update, filepath.Join("testdata", "hide", name+".sql"), made+"\n"+gone)
	}
	h := &Hide{Schema: "a", Table: "b\nc", As: HideView, condition: expiry.Condition{Kind: days.Expire}}
	if sql, err := h.SQL(); err == nil || !strings.Contains(err.Error(), "rename") || sql != "" {
		t.Errorf("a name with a line break: %v", err)
	}
}
