package policyfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"lapse/internal/yamldoc"
	"lapse/planner/expiry"
	"lapse/planner/schedule"
	"lapse/schemas"
)

const supportedFile = `policies:
  - name: sessions-30d
    table: public.sessions
    expire: { column: last_seen, after: 30 days }
    every: 5 minutes
    state: armed                           # default: observing

  - name: orders-7y
    table: shop.orders
    expire: "INTERVAL '7 years' ON closed_at"      # the same as column + after
    daily: "03:00 Europe/Berlin"
    batch: 5000                            # largest batch
    action: delete
    events: { values: keys }
    owner: "orders team"
    basis: "HGB §257"
    latitude: 1 day                        # due + latitude = the deadline the report judges by
    triggers: refuse
    evidence: claimed

  - name: visits
    table: '"Web"."Visits"'
    expire:
      column: Day
      after: P30D
      zone: Europe/Berlin
    every: 00:05
    state: paused

  - name: carts
    table: shop.carts
    expire: { column: opened, ttl_column: ttl_seconds, ttl_default: 90 days }
`

func TestAPolicyFileIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	file, err := Parse("policies.yaml", []byte(supportedFile))
	if err != nil {
		t.Fatal(err)
	}
	want := []Policy{
		{
			Name: "sessions-30d", Table: "public.sessions", Expire: expiry.Entry{"column": "last_seen", "after": "30 days"},
			Every: "5 minutes", Terms: Terms{Batch: 5000}, State: schemas.Armed,
		},
		{
			Name: "orders-7y", Table: "shop.orders", Expire: expiry.Entry{"column": "closed_at", "after": "84 mons 0 days"},
			Terms: Terms{Daily: &schedule.Daily{Hour: 3, Zone: "Europe/Berlin"}, Batch: 5000, Owner: "orders team", Basis: "HGB §257", Latitude: "1 day"},
		},
		{
			Name: "visits", Table: `"Web"."Visits"`, Expire: expiry.Entry{"column": "Day", "after": "P30D", "zone": "Europe/Berlin"},
			Every: "00:05", Terms: Terms{Batch: 5000}, State: schemas.Paused,
		},
		{
			Name: "carts", Table: "shop.carts", Expire: expiry.Entry{"column": "opened", "ttl_column": "ttl_seconds", "ttl_default": "90 days"},
			Every: "1 hour", Terms: Terms{Batch: 5000},
		},
	}
	for i := range file.Policies {
		p := &file.Policies[i]
		if p.File != "policies.yaml" {
			t.Errorf("policy %s is in %q", p.Name, p.File)
		}
		p.places, p.lines, p.File, p.source = nil, nil, "", ""
	}
	if !reflect.DeepEqual(file.Policies, want) {
		t.Errorf("got  %+v\nwant %+v", file.Policies, want)
	}
}

func TestEveryMistakeIsNamedWithItsPlaceAllAtOnce(t *testing.T) {
	t.Parallel()
	golden := filepath.Join("testdata", "mistakes.txt")
	text, err := os.ReadFile(filepath.Join("testdata", "mistakes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Parse("mistakes.yaml", text)
	var all yamldoc.Errors
	if !errors.As(err, &all) {
		t.Fatalf("got %v, want yamldoc.Errors", err)
	}
	got := []byte(err.Error() + "\n")
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestATextThatIsNoPolicyFileIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                "1:1: the file is empty",
		"# only a comment\n":              "1:1: the file is empty",
		"policies:\n\t- name: a":          "not YAML",
		"policies: 3":                     "list of policies",
		"policies:":                       "list of policies",
		"- name: a":                       "1:1: the file must be a mapping",
		"polices: []":                     "did you mean policies?",
		"policies: []\n---\npolicies: []": "second document",
		"policies: [a]":                   "a policy must be a mapping",
		"policies: []\npolicies: []":      "is there twice, first in line 1",
		"policies:\n  - &a {name: x, table: a.b, expire: {column: c, after: 1d}}": "anchor",
		"policies: [{name: x, <<: *a}]":                                           "",
		strings.Repeat(" ", yamldoc.MaxFile+1):                                    "larger than",
	} {
		_, err := Parse("f", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: got %v, want %q", text, err, want)
		}
	}
}

var update = flag.Bool("update", false, "write the golden files")

// policySchema is the JSON Schema of the policy file, as editors and pipelines use it.
func policySchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	text, err := os.Open(filepath.Join("..", "..", "schemas", "policies.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = text.Close() }()
	document, err := jsonschema.UnmarshalJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("policies.schema.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("policies.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// validate holds a YAML text to the schema, by way of a parser that knows nothing of policies.
func validate(schema *jsonschema.Schema, text []byte) error {
	var value any
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // as every editor does
	if err := yaml.Unmarshal(text, &value); err != nil {
		return err
	}
	asJSON, err := json.Marshal(value)
	if err != nil {
		return err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		return err
	}
	return schema.Validate(document)
}

func TestTheSchemaTakesWhatTheParserTakes(t *testing.T) {
	t.Parallel()
	schema := policySchema(t)
	if err := validate(schema, []byte(supportedFile)); err != nil {
		t.Errorf("the schema refuses the example: %v", err)
	}
	mistakes, err := os.ReadFile(filepath.Join("testdata", "mistakes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate(schema, mistakes); err == nil {
		t.Error("the schema takes a file full of mistakes")
	}
	for _, policy := range []string{
		"{name: a, table: b.c, expire: {after: 3 days}}",
		"{name: a, table: b.c, expire: {column: d, epoch: us}}",
		"{name: a, table: b.c, expire: {column: d, epoch: s, zone: UTC}}",
		"{name: a, table: b.c, expire: {column: d, epoch: s, path: ''}}",
		"{name: a, table: b.c, expire: {column: d, after: 3 days, ttl_column: e}}",
		"{name: a, table: b.c, expire: {column: d, ttl_default: 3 days}}",
		"{name: a, table: b.c, expire: {ttl_column: e}}",
		"{name: A, table: b.c, expire: {column: d, after: 3 days}}",
		"{name: a, table: b.c, expire: {column: d, after: 3 days}, every: 1 hour, daily: '03:00'}",
		"{name: a, table: b.c, expire: {column: d, after: 3 days}, batch: 0}",
		"{name: a, table: b.c, expire: {column: d, after: 3 days}, batch: 50001}",
		"{name: a, table: b.c, expire: {column: d, after: 3 days, zone: CET}}",
		"{name: a, table: b.c, expire: {column: d, after: 3 days}, daily: '24:00'}",
		"{name: a, table: b.c, expire: {column: d, after: 3 days}, state: arming}",
		"{name: a, table: b.c, expire: '7 days'}",
		"{name: a, table: b.c, expire: {column: d, after: 3 days}, where: 3}",
		"{name: a, table: b.c, expire: {column: d, after: 3 days}, owner: ' '}",
	} {
		text := []byte("policies: [" + policy + "]")
		if err := validate(schema, text); err == nil {
			t.Errorf("the schema takes %s", policy)
		}
		if _, err := Parse("f", text); err == nil {
			t.Errorf("the parser takes %s", policy)
		}
	}
}

func TestDefaultsInTheSchemaAreThoseOfThePolicy(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "schemas", "policies.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf(`"default": "%s"`, DefaultEvery), fmt.Sprintf(`"default": %d`, DefaultBatch), fmt.Sprintf(`"maximum": %d`, MaxBatch),
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the schema does not say %s", want)
		}
	}
}

// Whatever the parser takes the schema takes too; whatever it refuses is refused with a place inside the text.
func FuzzParse(f *testing.F) {
	schema := policySchema(f)
	f.Add([]byte(supportedFile))
	mistakes, err := os.ReadFile(filepath.Join("testdata", "mistakes.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(mistakes)
	for _, dir := range []string{"good", "bad"} {
		for _, text := range corpus(f, dir) {
			f.Add(text)
		}
	}
	f.Add([]byte("policies: [{name: a, table: b.c, expire: INTERVAL '1 day' ON \"a\"\"b\"}]"))
	f.Add([]byte("policies:\n- name: |\n    a\n  table: >-\n    b.c\n  expire: {column: &x d, after: *x, <<: {}}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse("f", text)
		var all yamldoc.Errors
		switch {
		case err == nil:
			if err := validate(schema, text); err != nil {
				t.Errorf("the parser takes what the schema refuses: %v", err)
			}
			for _, p := range file.Policies {
				if p.Place("table") == (yamldoc.Place{}) {
					t.Error("a policy without a place")
				}
			}
		case !errors.As(err, &all) || len(all) == 0:
			t.Errorf("got %v, want yamldoc.Errors", err)
		default:
			lines := bytes.Count(text, []byte("\n")) + bytes.Count(text, []byte("\r")) + 1
			for _, one := range all {
				if one.Place.Line < 1 || one.Place.Line > lines || one.Place.Column < 1 || one.Message == "" {
					t.Errorf("a complaint without a place in the text: %v", one)
				}
			}
		}
	})
}

func TestAPaceIsGentleOrUnlimitedOrAShareOfTheTime(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		kept  string
		share float64
	}{
		"gentle": {"", 0}, "unlimited": {PaceUnlimited, 0}, "20%": {"20%", 0.2}, "'20 %'": {"20%", 0.2}, "100.0%": {"100%", 1}, "0.5%": {"0.5%", 0.005},
	} {
		f, err := Parse("policies.yaml", []byte("policies: [{name: a, table: b.c, expire: {column: d, after: 3 days}, pace: "+text+"}]"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := f.Policies[0].Limits; got.Pace != want.kept || got.PaceShare() != want.share {
			t.Errorf("%s: %q, a share of %v", text, got.Pace, got.PaceShare())
		}
	}
}

func TestTheLargestBatchOfAPolicyThatNamesNoneIsThatOfItsPace(t *testing.T) {
	t.Parallel()
	for more, want := range map[string]int{
		"": DefaultBatch, ", pace: gentle": DefaultBatch, ", pace: unlimited": DefaultUnlimitedBatch, ", pace: unlimited, batch: 7": 7,
	} {
		f, err := Parse("policies.yaml", []byte("policies: [{name: a, table: b.c, expire: {column: d, after: 3 days}"+more+"}]"))
		if err != nil || f.Policies[0].Batch != want {
			t.Errorf("%q: %v, %v; want %d", more, f, err, want)
		}
	}
}
