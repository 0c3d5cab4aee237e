package functions_test

import (
	"strings"
	"testing"

	"lapse/internal/fixture/definitions"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/schemas"
)

// A DBA reads these files to learn what can be deleted; a change to them is a change to what Lapse does.
func TestTheTextOfADeletionFunctionIsAPureFunctionOfThePolicy(t *testing.T) {
	for name := range definitions.Golden() {
		t.Run(name, func(t *testing.T) { wantGolden(t, name) })
	}
}

// Every text of a definition goes into a function's body or into the comment above it.
func TestANameThatWouldEndTheFunctionBodyIsRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(d *functions.Definition, text string){
		"policy":   func(d *functions.Definition, text string) { d.Name = schemas.PolicyName(text) },
		"table":    func(d *functions.Definition, text string) { d.Table = text },
		"column":   func(d *functions.Definition, text string) { d.Expire.(*expiry.Age).Column = text },
		"type":     func(d *functions.Definition, text string) { d.Expire.(*expiry.Age).Type = expiry.ColumnType(text) },
		"zone":     func(d *functions.Definition, text string) { d.Expire.(*expiry.Age).Zone = text },
		"key":      func(d *functions.Definition, text string) { d.Key[0].Name = text },
		"path":     func(d *functions.Definition, text string) { d.SearchPath = text },
		"slice":    func(d *functions.Definition, text string) { d.Slices = []expiry.Column{{Name: text}} },
		"key type": func(d *functions.Definition, text string) { d.Key[0].Type = text },
		"ttl column": func(d *functions.Definition, text string) {
			d.Expire = &expiry.TTL{Moment: d.Expire.(*expiry.Age).Moment, TTLColumn: text, TTLType: "integer"}
		},
		"ttl type": func(d *functions.Definition, text string) {
			d.Expire = &expiry.TTL{Moment: d.Expire.(*expiry.Age).Moment, TTLColumn: "ttl", TTLType: expiry.ColumnType(text)}
		},
	} {
		for _, text := range []string{"a$lapse$b", "a\n; drop table t; --", "a\rb"} {
			d := definitions.Golden()["plain"]
			change(&d, text)
			create, give, err := functions.SQL(&d, schemas.RolesFor("lapse_"))
			if err == nil || !strings.Contains(err.Error(), "rename") || create != "" || give != "" {
				t.Errorf("%s %q: got %v, want a refusal that says to rename", name, text, err)
			}
		}
	}
}

// Two equal definitions give the same text, and two that differ in anything that matters do not.
func TestWhateverDiffersInADefinitionDiffersInTheText(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for name, change := range map[string]func(d *functions.Definition){
		"nothing": func(*functions.Definition) {},
		"id":      func(d *functions.Definition) { d.ID++ },
		"version": func(d *functions.Definition) { d.Version++ },
		"name":    func(d *functions.Definition) { d.Name = "other" },
		"table":   func(d *functions.Definition) { d.Table = "public.other" },
		"column":  func(d *functions.Definition) { d.Expire.(*expiry.Age).Column = "other" },
		"type":    func(d *functions.Definition) { d.Expire.(*expiry.Age).Type = expiry.Timestamp },
		"zone": func(d *functions.Definition) {
			d.Expire.(*expiry.Age).Type, d.Expire.(*expiry.Age).Zone = expiry.Timestamp, "Europe/Berlin"
		},
		"after":  func(d *functions.Definition) { d.Expire.(*expiry.Age).After.Microseconds++ },
		"key":    func(d *functions.Definition) { d.Key[0].Name = "other" },
		"batch":  func(d *functions.Definition) { d.Batch++ },
		"path":   func(d *functions.Definition) { d.SearchPath = "public" },
		"slices": func(d *functions.Definition) { d.Slices = []expiry.Column{{Name: "id"}} },
	} {
		text := func() string {
			d := definitions.Golden()["plain"]
			change(&d)
			text, err := d.Text()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return text
		}
		if first, second := text(), text(); first != second {
			t.Errorf("%s: two equal definitions give two texts", name)
		}
		if other, same := seen[text()]; same {
			t.Errorf("%s and %s give the same text", name, other)
		}
		seen[text()] = name
	}
}

// The SELECT after the DELETE has the condition too: it is not enough that the text has it somewhere.
func TestADeletionThatDoesNotRestateTheConditionIsNotWritten(t *testing.T) {
	t.Parallel()
	for name, d := range definitions.Golden() {
		text, _, err := d.DeletionFunctions()
		if err != nil {
			t.Fatal(err)
		}
		exact := d.Condition().Exact("$1", "$2")
		if !functions.Restates(text, functions.Verb(&d), exact) {
			t.Errorf("%s: the DELETE does not restate the condition", name)
		}
		for what, broken := range map[string]string{
			"without the condition":   strings.Replace(text, functions.Inner(exact)+"';\n", "true';\n", 1),
			"without the variable":    strings.Replace(text, "' || due || '", "", 1),
			"with a second DELETE":    strings.Replace(text, "  outcome := lapse.leave", "  execute 'delete from x';\n  outcome := lapse.leave", 1),
			"with an earlier DELETE":  strings.Replace(text, "  execute 'lock", "  execute 'delete from x';\n  execute 'lock", 1),
			"without a DELETE at all": strings.ReplaceAll(text, functions.Verb(&d)+" only", "select from only"),
		} {
			if broken == text || functions.Restates(broken, functions.Verb(&d), exact) {
				t.Errorf("%s %s: it is written", name, what)
			}
		}
	}
}

func TestTheTextOfFunctionsWithWhereIsAPureFunctionOfThePolicy(t *testing.T) {
	for name := range definitions.Wheres() {
		wantGolden(t, name)
	}
	d := definitions.Wheres()["plain_where"]
	d.Where = &functions.Where{SQL: `(t."a" = '$lapse$')`}
	if _, _, err := functions.SQL(&d, schemas.RolesFor(schemas.DefaultRolePrefix)); err == nil || !strings.Contains(err.Error(), "ends a function's body") {
		t.Errorf("a where that ends the function's body: %v", err)
	}
}

func TestTheTextOfFunctionsWithAnExpressionIsAPureFunctionOfThePolicy(t *testing.T) {
	for name := range definitions.Expressions() {
		wantGolden(t, name)
	}
}

func TestTheFunctionsOfEachKindAreThoseOnRecord(t *testing.T) {
	t.Parallel()
	for name := range definitions.Kinds() {
		wantGolden(t, name)
	}
}

func TestTheTextsForOtherKindsAreWhatTheTestsRun(t *testing.T) {
	t.Parallel()
	for name := range definitions.Others() {
		wantGolden(t, name)
	}
}
