package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/cobra"

	"lapse/audit/export"
	"lapse/executor"
	"lapse/internal/setup/holds"
	"lapse/internal/setup/uninstall"
	"lapse/internal/status"
)

var update = flag.Bool("update", false, "write schemas/result.schema.json")

const resultSchemaFile = "../../schemas/result.schema.json"

// results are what each command prints with --json.
var results = map[string]any{
	"init": initReport{}, "doctor": findings{}, "apply": appliedChanges{}, "scaffold": scaffolded{}, "import": imported{}, "hide": hidden{},
	"policy list": []status.Line{}, "policy show": status.Shown{}, "policy history": status.Past{},
	"policy arm": stateChanges{}, "policy pause": stateChanges{}, "policy resume": stateChanges{},
	"pause": status.Halt{}, "resume": status.Halt{}, "plan": []plan{},
	"hold place": placedHold{}, "hold move": holds.Record{}, "hold release": holds.Record{}, "hold list": holdList{}, "hold show": shownHold{},
	"quarantine list": quarantineList{}, "quarantine retry": changedRows{}, "quarantine forgive": changedRows{},
	"clock": clocks{}, "clock accept": acceptance{}, "history": historyView{}, "history accept": acceptedHistory{},
	"status": status.Status{}, "run": executor.Summary{}, "audit": auditedTo{}, "events": export.Manifest{}, "verify": verified{}, "version": versions{},
	"prove": proven{}, "report": reported{}, "keys list": keyList{}, "keys rotate": rotatedKeys{}, "keys destroy": destroyedKey{},
	"uninstall": uninstalled{},
}

// schemaOf is the JSON Schema of what jsonValue makes of a field's type, and may is whether that may be null.
func schemaOf(t reflect.Type, field string, may bool) any {
	typed := func(name string, more ...any) map[string]any {
		s := map[string]any{"type": name}
		if may {
			s["type"] = []string{name, "null"}
		}
		for i := 0; i < len(more); i += 2 {
			s[more[i].(string)] = more[i+1]
		}
		return s
	}
	switch {
	case t.Kind() == reflect.Pointer:
		return schemaOf(t.Elem(), field, true)
	case t == reflect.TypeFor[time.Time]():
		return typed("string", "format", "date-time")
	case t == reflect.TypeFor[time.Duration]() && strings.HasSuffix(field, "_seconds"):
		return typed("number")
	case t == reflect.TypeFor[uuid.UUID](): // zero: there is none
		may = true
		return typed("string", "format", "uuid")
	case t.Implements(reflect.TypeFor[json.Marshaler]()):
		return typed("object")
	}
	switch t.Kind() {
	case reflect.Slice:
		may = false
		return typed("array", "items", schemaOf(t.Elem(), "", false))
	case reflect.Map:
		may = false
		return typed("object", "additionalProperties", schemaOf(t.Elem(), "", false))
	case reflect.Interface:
		return map[string]any{}
	case reflect.Struct:
		fields := map[string]any{}
		schemaOfFields(t, fields)
		return typed("object", "properties", fields, "required", slices.Sorted(maps.Keys(fields)), "additionalProperties", false)
	case reflect.String:
		return typed("string")
	case reflect.Bool:
		return typed("boolean")
	case reflect.Float64:
		return typed("number")
	case reflect.Int, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint64:
		if t != reflect.TypeFor[time.Duration]() {
			return typed("integer")
		}
	}
	panic(fmt.Sprintf("%s: how is a %s written? A length of time has _seconds in its name", field, t))
}

func schemaOfFields(t reflect.Type, into map[string]any) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		embedded := field.Type
		if embedded.Kind() == reflect.Pointer {
			embedded = embedded.Elem()
		}
		switch {
		case field.Anonymous && name == "":
			schemaOfFields(embedded, into)
		case name != "" && name != "-":
			into[name] = schemaOf(field.Type, name, options == "omitzero")
		}
	}
}

// resultSchema describes what --json prints.
func resultSchema() map[string]any {
	schema := schemaOf(reflect.TypeFor[envelope](), "", false).(map[string]any)
	properties := schema["properties"].(map[string]any)
	properties["schema"], properties["exit"] = map[string]any{"const": envelopeSchema}, map[string]any{"enum": []int{exitDone, exitFailed, exitInvalid, exitPerson}}
	properties["result"] = map[string]any{"description": "As $defs has it under the command's name, or null after an error."}
	defs, cases := map[string]any{}, []any{}
	for _, command := range slices.Sorted(maps.Keys(results)) {
		defs[command] = schemaOf(reflect.TypeOf(results[command]), "", false)
		cases = append(cases, map[string]any{
			"if": map[string]any{"properties": map[string]any{"command": map[string]any{"const": command}}},
			"then": map[string]any{"properties": map[string]any{"result": map[string]any{"anyOf": []any{
				map[string]any{"type": "null"}, map[string]any{"$ref": "#/$defs/" + strings.ReplaceAll(command, " ", "%20")},
			}}}},
		})
	}
	maps.Copy(schema, map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:lapse:schema:result:1", "$defs": defs, "allOf": cases,
		"title":       "What lapse prints with --json, schema 1",
		"description": "One object for each command, whatever becomes of it. Each key is always there: what is absent is null, \"\", 0 or []. Lengths of time are numbers of seconds.",
	})
	return schema
}

func TestTheSchemaOfResultsIsUpToDate(t *testing.T) {
	t.Parallel()
	text := []byte(indented(resultSchema(), "") + "\n")
	if *update {
		if err := os.WriteFile(resultSchemaFile, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(resultSchemaFile); err != nil || !bytes.Equal(is, text) {
		t.Errorf("%s is not what the results are: go test ./cmd/lapse -run Schema -update: %v", resultSchemaFile, err)
	}
}

var compiledResults = sync.OnceValues(func() (*jsonschema.Schema, error) {
	return jsonschema.NewCompiler().Compile(resultSchemaFile)
})

// checkEnvelope says what is wrong with what a command printed under --json. Streams of events are none of its business.
func checkEnvelope(args []string, out string) error {
	if !slices.Contains(args, "--json") || slices.Contains(args, "events") && !strings.HasPrefix(out, "{\n") {
		return nil
	}
	schema, err := compiledResults()
	if err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(out))
	d.UseNumber()
	for seen := false; ; seen = true {
		var printed map[string]any
		if err := d.Decode(&printed); errors.Is(err, io.EOF) && seen {
			return nil
		} else if err != nil {
			return fmt.Errorf("%q is no envelope: %w", out, err)
		}
		if err := schema.Validate(printed); err != nil {
			return err
		}
		if command := fmt.Sprint(printed["command"]); printed["result"] != nil && results[command] == nil {
			return fmt.Errorf("schemas/result.schema.json does not know %q", command)
		}
	}
}

// Every command with --json is in the schema, and the other way round.
func TestTheSchemaKnowsEveryCommandThatPrintsAResult(t *testing.T) {
	t.Parallel()
	known := maps.Clone(results)
	script, err := os.ReadFile("testdata/linejson.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		name := strings.TrimPrefix(cmd.CommandPath(), "lapse ")
		flag := cmd.Flags().Lookup("json")
		hasJSON := flag != nil && !flag.Hidden
		if hasJSON && known[name] == nil {
			t.Errorf("lapse %s has --json, and results does not have it", name)
		}
		ran := regexp.MustCompile(`(?m)^exits [03] lapse ` + name + `( .*)? --json`)
		if hasJSON && !ran.Match(script) {
			t.Errorf("testdata/linejson.txtar does not run lapse %s --json", name)
		}
		delete(known, name)
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(&app{}))
	if len(known) > 0 {
		t.Errorf("no such commands: %v", slices.Collect(maps.Keys(known)))
	}
}

// resultIn reads what a command printed with --json.
func resultIn(out string, into any) error {
	return json.Unmarshal([]byte(out), &struct{ Result any }{into})
}

// indented is JSON for a person: what fits is on one line.
func indented(value any, before string) string {
	text, err := encode(value)
	parts, of := []string{}, reflect.ValueOf(value)
	if err != nil {
		panic(err)
	}
	if _, names := value.([]string); names || len(before)+len(text) <= 140 || of.Kind() != reflect.Map && of.Kind() != reflect.Slice {
		return string(text)
	}
	if of.Kind() == reflect.Slice {
		for _, element := range of.Seq2() {
			parts = append(parts, before+" "+indented(element.Interface(), before+" "))
		}
		return "[\n" + strings.Join(parts, ",\n") + "\n" + before + "]"
	}
	for _, key := range slices.Sorted(maps.Keys(value.(map[string]any))) {
		parts = append(parts, fmt.Sprintf("%s %q: %s", before, key, indented(value.(map[string]any)[key], before+" ")))
	}
	return "{\n" + strings.Join(parts, ",\n") + "\n" + before + "}"
}

// A program gets what fixes a missing right from the one field for it, as after wrong usage.
func TestTheFixOfAnErrorIsInTheEnvelope(t *testing.T) {
	lacks := &uninstall.LackingError{Login: "app", SQL: []string{"drop publication a", "drop role b"}}
	for want, err := range map[string]error{
		"drop publication a; drop role b": fmt.Errorf("lapse uninstall: %w", lacks),
		"see lapse uninstall --help":      wrongUsage("unknown flag"),
		"":                                errors.New("cannot be reached"),
	} {
		if all := mistakesOf("lapse uninstall", err); len(all) != 1 || all[0].Fix != want {
			t.Errorf("%v: %+v, want the fix %q", err, all, want)
		}
	}
}
