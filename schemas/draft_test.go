package schemas_test

import (
	"slices"
	"strings"
	"testing"

	"lapse/schemas"
)

// A function whose text were passed over would be missing from a draft that calls it.
func TestDraftsKnowEachFunctionOfTheCatalog(t *testing.T) {
	t.Parallel()
	roles := schemas.RolesFor("lapse_")
	all, err := schemas.CatalogFunctions(roles)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := schemas.DraftTexts(roles)
	if err != nil || len(texts) != len(all) {
		t.Errorf("%d texts of %d functions: %v", len(texts), len(all), err)
	}
	for i := range all {
		if name := strings.TrimPrefix(all[i].Name, "lapse."); !strings.Contains(texts[name], all[i].Body) {
			t.Errorf("%s has not its text", name)
		}
	}
}

func TestADraftHasWhatItsFunctionsCallAndNothingThatOnlyTheCatalogHas(t *testing.T) {
	t.Parallel()
	script, names, err := schemas.DraftSQL(schemas.RolesFor("lapse_"), "intruders")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(names, "reach") {
		t.Errorf("a draft of intruders, which calls reach, has %v", names)
	}
	if strings.Contains(script, "lapse.") || !strings.Contains(script, "create function pg_temp.intruders(") || !strings.Contains(script, "from pg_temp.reach(") {
		t.Errorf("the script is\n%s", script)
	}
	script, _, err = schemas.DraftSQL(schemas.RolesFor("lapse_"), "part_of")
	if err != nil || strings.Contains(script, "lapse.") || strings.Count(script, "create type pg_temp.part as (parent text,") != 1 || !strings.Contains(script, "returns pg_temp.part") {
		t.Errorf("a draft of a function that returns a type of the catalog: %v\n%s", err, script)
	}
	if _, _, err := schemas.DraftSQL(schemas.RolesFor("lapse_"), "intruders", "nothing"); err == nil || !strings.Contains(err.Error(), "lapse.nothing") {
		t.Errorf("a function that is not there: %v", err)
	}
	const sql = `select lapse.leaves(1), lapse.delete_1_1(2), lapse.leaves_of(3), elapse.leaves(4)`
	const want = `select pg_temp.leaves(1), lapse.delete_1_1(2), lapse.leaves_of(3), elapse.leaves(4)`
	if got := schemas.InDraft(sql, []string{"leaves"}); got != want {
		t.Errorf("got %s", got)
	}
}
