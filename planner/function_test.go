package planner

import (
	"flag"
	"os"
	"path/filepath"
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
			Key: []KeyColumn{{Name: "email", Number: 2, Type: "public.citext"}, {Name: "closed\"at", Number: 4, Type: "timestamp without time zone", Plain: true}}, Batch: 100,
		},
		"date": {
			ID: 3, Version: 1, Name: "visits", Table: "public.visits", Expire: age("day", 2, expiry.Date, "", expiry.Interval{Months: 1, Days: 2}), Key: []KeyColumn{{Name: "id", Number: 1, Type: "uuid", Plain: true}}, Batch: 1000,
		},
		"ttl": {
			ID: 5, Version: 1, Name: "carts", Table: "public.carts", Expire: &expiry.TTL{
				Kind: "ttl", Moment: expiry.Moment{Column: "opened", Number: 2, Type: expiry.Timestamptz}, TTLColumn: "ttl", TTLNumber: 3, TTLType: "integer",
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

// A DBA reads these files to learn what can be deleted; a change to them is a change to what Lapse does.
func TestTheTextOfADeletionFunctionIsAPureFunctionOfThePolicy(t *testing.T) {
	for name, definition := range goldenDefinitions() {
		t.Run(name, func(t *testing.T) {
			wantGolden(t, name, &definition)
		})
	}
}

// wantGolden compares the text of a version's functions with a file.
func wantGolden(t *testing.T, name string, d *Definition) {
	t.Helper()
	create, give, err := FunctionsSQL(d, schemas.RolesFor(schemas.DefaultRolePrefix))
	if err != nil {
		t.Fatal(err)
	}
	got := create + "\n" + give
	file := filepath.Join("testdata", name+".sql")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the text differs from %s; look at it and run with -update", file)
	}
}

func TestANameThatWouldEndTheFunctionBodyIsRefused(t *testing.T) {
	for _, column := range []string{"a$lapse$b", "a\n; drop table t; --"} {
		d := goldenDefinitions()["plain"]
		d.Expire = age(column, 2, expiry.Timestamptz, "", expiry.Interval{Days: 30})
		if _, _, err := FunctionsSQL(&d, schemas.RolesFor("lapse_")); err == nil || !strings.Contains(err.Error(), "rename") {
			t.Errorf("column %q: got %v, want a refusal that says to rename", column, err)
		}
	}
}
