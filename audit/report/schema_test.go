package report_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lapse/audit/report"
	"lapse/internal/evidencetest"
)

const schemaName = "report"

func TestTheSchemaIsOfTheTypes(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		kind, title, description string
		t                        reflect.Type
	}{
		schemaName: {
			"report", "The canonical JSON of a report",
			"What a log says of a period. The package audit/report has what each member means, and the rules of the canonical form.", reflect.TypeFor[report.Report](),
		},
		"redacted-report": {
			"redacted_report", "The canonical JSON of a redacted report",
			"What a log says of a month, without names and without numbers from 1 to 4. The type Redacted of the package audit/report has what each member means.", reflect.TypeFor[report.Redacted](),
		},
	} {
		schema := objectOf(of.t)
		maps.Copy(schema, map[string]any{
			"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": fmt.Sprintf("urn:lapse:schema:%s:%d", name, report.Schema),
			"title": fmt.Sprintf("%s, schema %d", of.title, report.Schema), "description": of.description,
		})
		properties := schema["properties"].(map[string]any)
		properties["kind"], properties["schema"] = map[string]any{"const": of.kind}, map[string]any{"const": report.Schema}
		text, err := json.MarshalIndent(schema, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, '\n')
		file := filepath.Join(evidencetest.SchemasDir(), name+".schema.json")
		if *update {
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if is, err := os.ReadFile(file); err != nil || !bytes.Equal(is, text) {
			t.Errorf("%s is not what the types say: go test ./audit/report -update: %v", file, err)
		}
	}
}

// objectOf is the schema of a struct.
func objectOf(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		properties[name] = schemaOf(f.Type, options == "")
		if options == "" {
			required = append(required, name)
		}
	}
	s := map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	if t == reflect.TypeFor[report.Figure]() {
		delete(s, "required")
		s["oneOf"] = []any{map[string]any{"required": []string{"value"}}, map[string]any{"required": []string{"not_assessed"}}}
	}
	return s
}

func schemaOf(t reflect.Type, null bool) any {
	switch t {
	case reflect.TypeFor[report.Grade]():
		return map[string]any{"enum": []report.Grade{report.Fail, report.Unknown, report.Warn, report.Pass}}
	case reflect.TypeFor[report.About]():
		return map[string]any{"enum": slices.Sorted(maps.Keys(report.Titles))}
	case reflect.TypeFor[report.Reason]():
		return map[string]any{"enum": slices.Sorted(maps.Keys(report.Reasons))}
	case reflect.TypeFor[report.Instant]():
		return map[string]any{"type": "string", "pattern": `^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?Z)?$`}
	}
	switch t.Kind() {
	case reflect.Pointer:
		of := schemaOf(t.Elem(), false)
		if !null {
			return of
		}
		return map[string]any{"anyOf": []any{map[string]any{"type": "null"}, of}}
	case reflect.Struct:
		return objectOf(t)
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem(), false)}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	default:
		return map[string]any{"type": "integer"}
	}
}

func checkSchema(t *testing.T, text []byte) {
	t.Helper()
	if err := evidencetest.Schema(t, schemaName).Validate(evidencetest.ParseJSON(t, text)); err != nil {
		t.Errorf("not of the schema: %v", err)
	}
}

func TestEveryCodeHasItsWords(t *testing.T) {
	t.Parallel()
	for about, words := range report.Titles {
		if words[0] == "" || !strings.HasSuffix(words[1], ".") {
			t.Errorf("%s: %q", about, words)
		}
	}
	for _, about := range report.ZeroLines {
		if about.Title() == "" || about.Means() == "" {
			t.Errorf("%s has no words", about)
		}
	}
	for reason := range report.Reasons {
		if !strings.HasSuffix(reason.Text(), ".") {
			t.Errorf("%s: %q", reason, reason.Text())
		}
	}
}
