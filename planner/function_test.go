package planner

import (
	"encoding/json"
	"flag"
	"strings"
	"testing"

	"lapse/planner/expiry"
	"lapse/schemas"
)

var update = flag.Bool("update", false, "write the golden files")

func goldenDefinitions() map[string]Definition {
	return map[string]Definition{
		"plain": {
			ID: 1, Version: 3, Name: "sessions-30d", Table: "public.sessions", Expire: age("last_seen", 2, expiry.Timestamptz, "", expiry.Interval{Days: 30}), Key: []KeyColumn{{Name: "id", Number: 1, Type: "bigint", Plain: true}}, Batch: 5000,
		},
		"calendar": {
			ID: 2, Version: 1, Name: "orders-7y", Table: `shop."Or'ders"`, Expire: age(`closed"at`, 4, expiry.Timestamp, "Europe/Berlin", expiry.Interval{Months: 84}),
			Key: []KeyColumn{{Name: "email", Number: 2, Type: "public.citext"}, {Name: "closed\"at", Number: 4, Type: "timestamp without time zone", Plain: true}}, Batch: 100, SearchPath: `app, "O'dd"`,
		},
		"date": {
			ID: 3, Version: 1, Name: "visits", Table: "public.visits", Expire: age("day", 2, expiry.Date, "", expiry.Interval{Months: 1, Days: 2}), Key: []KeyColumn{{Name: "id", Number: 1, Type: "uuid", Plain: true}}, Batch: 1000,
		},
		"drop_partition": {
			ID: 9, Version: 2, Name: "events", Table: "public.events", Expire: age("at", 2, expiry.Timestamp, "", expiry.Interval{Days: 30}), Action: "drop_partition",
			Key: []KeyColumn{{Name: "id", Number: 1, Type: "bigint", Plain: true}, {Name: "at", Number: 2, Type: "timestamp without time zone", Plain: true}}, Batch: 5000,
		},
		"soft": {
			ID: 10, Version: 1, Name: "docs", Table: "public.docs", Expire: age("at", 2, expiry.Timestamptz, "", expiry.Interval{Days: 30}), Action: "soft",
			Soft:  &expiry.Column{Name: `dele"ted'at`, Number: 3, Type: expiry.Timestamp},
			Where: &Where{SQL: `(t."dele""ted'at" IS NULL)`, Columns: []expiry.Column{{Name: `dele"ted'at`, Number: 3, Type: expiry.Timestamp}}},
			Key:   []KeyColumn{{Name: "id", Number: 1, Type: "bigint", Plain: true}}, Batch: 5000,
		},
		"soft_sidecar": {
			ID: 11, Version: 1, Name: "carts", Table: "public.carts", Expire: sidecar(), Action: "soft", Soft: &expiry.Column{Name: "gone", Number: 3, Type: "boolean"},
			Where: &Where{SQL: `(t."gone" IS NOT TRUE)`, Columns: []expiry.Column{{Name: "gone", Number: 3, Type: "boolean"}}},
			Key:   []KeyColumn{{Name: "id", Number: 1, Type: "bigint", Plain: true}}, Batch: 5000,
		},
		"sidecar": {
			ID: 7, Version: 1, Name: "carts", Table: "public.carts", Expire: sidecar(), Key: []KeyColumn{{Name: "id", Number: 1, Type: "bigint", Plain: true}}, Batch: 5000,
		},
		"sliced": {
			ID: 8, Version: 1, Name: "carts", Table: "public.carts", Expire: age("last_seen", 2, expiry.Timestamptz, "", expiry.Interval{Days: 30}),
			Slices: []expiry.Column{{Name: "tenant", Number: 3}, {Name: "it's", Number: 4}}, Key: []KeyColumn{{Name: "id", Number: 1, Type: "bigint", Plain: true}}, Batch: 5000,
		},
		"ttl": {
			ID: 5, Version: 1, Name: "carts", Table: "public.carts", Expire: &expiry.TTL{
				Kind: "ttl", Moment: expiry.Moment{Column: "last_seen", Number: 2, Type: expiry.Timestamptz}, TTLColumn: "ttl", TTLNumber: 3, TTLType: "integer",
			},
			Key: []KeyColumn{{Name: "id", Number: 1, Type: "bigint", Plain: true}}, Batch: 5000,
		},
		"ttl_interval": {
			ID: 6, Version: 1, Name: "carts", Table: "public.carts", Expire: &expiry.TTL{
				Kind: "ttl", Moment: expiry.Moment{Column: "day", Number: 2, Type: expiry.Date, Zone: "Europe/Berlin"},
				TTLColumn: "keep", TTLNumber: 3, TTLType: "interval", Default: &expiry.Interval{Months: 3},
			},
			Key: []KeyColumn{{Name: "id", Number: 1, Type: "bigint", Plain: true}}, Batch: 5000,
		},
	}
}

// sidecar is a registry with a key of two columns, as it is read back from the record.
func sidecar() expiry.Kind {
	var r expiry.Record
	err := json.Unmarshal([]byte(`{"kind": "sidecar", "column": "until", "number": 3, "type": "timestamp with time zone", "after": "1 day", "sidecar": "public.\"Reg\"", "sidecar_oid": 9,
		"sidecar_key": [{"column": {"name": "ten\"ant", "number": 1, "type": "public.mood"}, "cast": "public.mood", "plain": false, "of": {"name": "tenant", "number": 2, "type": "public.mood"}},
		                {"column": {"name": "id", "number": 2, "type": "bigint"}, "cast": "bigint", "plain": true, "of": {"name": "id", "number": 1, "type": "bigint"}}]}`), &r)
	if err != nil {
		panic(err)
	}
	return r.Kind
}

// A DBA reads these files to learn what can be deleted; a change to them is a change to what Lapse does.
func TestTheTextOfADeletionFunctionIsAPureFunctionOfThePolicy(t *testing.T) {
	for name := range goldenDefinitions() {
		t.Run(name, func(t *testing.T) { wantGolden(t, name) })
	}
}

// Every text of a definition goes into a function's body or into the comment above it.
func TestANameThatWouldEndTheFunctionBodyIsRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(d *Definition, text string){
		"policy":   func(d *Definition, text string) { d.Name = schemas.PolicyName(text) },
		"table":    func(d *Definition, text string) { d.Table = text },
		"column":   func(d *Definition, text string) { d.Expire.(*expiry.Age).Column = text },
		"type":     func(d *Definition, text string) { d.Expire.(*expiry.Age).Type = expiry.ColumnType(text) },
		"zone":     func(d *Definition, text string) { d.Expire.(*expiry.Age).Zone = text },
		"key":      func(d *Definition, text string) { d.Key[0].Name = text },
		"path":     func(d *Definition, text string) { d.SearchPath = text },
		"slice":    func(d *Definition, text string) { d.Slices = []expiry.Column{{Name: text}} },
		"key type": func(d *Definition, text string) { d.Key[0].Type = text },
		"ttl column": func(d *Definition, text string) {
			d.Expire = &expiry.TTL{Moment: d.Expire.(*expiry.Age).Moment, TTLColumn: text, TTLType: "integer"}
		},
		"ttl type": func(d *Definition, text string) {
			d.Expire = &expiry.TTL{Moment: d.Expire.(*expiry.Age).Moment, TTLColumn: "ttl", TTLType: expiry.ColumnType(text)}
		},
	} {
		for _, text := range []string{"a$lapse$b", "a\n; drop table t; --", "a\rb"} {
			d := goldenDefinitions()["plain"]
			change(&d, text)
			create, give, err := FunctionsSQL(&d, schemas.RolesFor("lapse_"))
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
	for name, change := range map[string]func(d *Definition){
		"nothing": func(*Definition) {},
		"id":      func(d *Definition) { d.ID++ },
		"version": func(d *Definition) { d.Version++ },
		"name":    func(d *Definition) { d.Name = "other" },
		"table":   func(d *Definition) { d.Table = "public.other" },
		"column":  func(d *Definition) { d.Expire.(*expiry.Age).Column = "other" },
		"type":    func(d *Definition) { d.Expire.(*expiry.Age).Type = expiry.Timestamp },
		"zone": func(d *Definition) {
			d.Expire.(*expiry.Age).Type, d.Expire.(*expiry.Age).Zone = expiry.Timestamp, "Europe/Berlin"
		},
		"after":     func(d *Definition) { d.Expire.(*expiry.Age).After.Microseconds++ },
		"key":       func(d *Definition) { d.Key[0].Name = "other" },
		"key type":  func(d *Definition) { d.Key[0].Type = "integer" },
		"plain key": func(d *Definition) { d.Key[0].Plain = false },
		"batch":     func(d *Definition) { d.Batch++ },
		"path":      func(d *Definition) { d.SearchPath = "public" },
		"slices":    func(d *Definition) { d.Slices = []expiry.Column{{Name: "id"}} },
	} {
		text := func() string {
			d := goldenDefinitions()["plain"]
			change(&d)
			text, err := d.functionsText()
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

// The SELECT behind the DELETE has the condition too: it is not enough that the text has it somewhere.
func TestADeletionThatDoesNotRestateTheConditionIsNotWritten(t *testing.T) {
	t.Parallel()
	for name, d := range goldenDefinitions() {
		text, _, err := d.deletionFunctions()
		if err != nil {
			t.Fatal(err)
		}
		exact := d.condition().Exact("$1", "$2")
		if !restates(text, d.verb(), exact) {
			t.Errorf("%s: the DELETE does not restate the condition", name)
		}
		for what, broken := range map[string]string{
			"without the condition":   strings.Replace(text, inner(exact)+"';\n", "true';\n", 1),
			"without the variable":    strings.Replace(text, "' || due || '", "", 1),
			"with a second DELETE":    strings.Replace(text, "  outcome := lapse.leave", "  execute 'delete from x';\n  outcome := lapse.leave", 1),
			"with an earlier DELETE":  strings.Replace(text, "  execute 'lock", "  execute 'delete from x';\n  execute 'lock", 1),
			"without a DELETE at all": strings.ReplaceAll(text, d.verb()+" only", "select from only"),
		} {
			if broken == text || restates(broken, d.verb(), exact) {
				t.Errorf("%s %s: it is written", name, what)
			}
		}
	}
}
