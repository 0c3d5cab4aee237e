// Package evidencetest is what tests of events and of the log share: the published JSON Schemas, keys, and what an event
// says of its row.
package evidencetest

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"lapse/schemas"
)

// The keys of the tests.
var (
	TagKey  = schemas.Key(bytes.Repeat([]byte{7}, schemas.MinKey))
	LogKey  = schemas.Key(bytes.Repeat([]byte{8}, schemas.MinKey))
	HashKey = schemas.Key(bytes.Repeat([]byte{9}, schemas.MinKey))
	RowsKey = schemas.Key(bytes.Repeat([]byte{10}, schemas.MinKey))
)

// RowsKeys has RowsKey for the months around an instant, and for the next ones.
func RowsKeys(around time.Time) schemas.EpochKeys {
	keys := schemas.EpochKeys{}
	for month := -1; month < 3; month++ {
		keys[schemas.EpochOf(around.AddDate(0, month, 1-around.Day()))] = RowsKey
	}
	return keys
}

// SchemasDir is the directory of the JSON Schemas; the golden files are below it. A test runs in its package's directory.
// The paths in a binary that was built with -trimpath are no directories.
func SchemasDir() string {
	dir := "schemas"
	for range 6 { // deeper than any package
		if _, err := os.Stat(filepath.Join(dir, "event.schema.json")); err == nil {
			break
		}
		dir = filepath.Join("..", dir)
	}
	return dir
}

var compiled sync.Map // by name

// Schema is a published JSON Schema, such as event or log-coverage.
func Schema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	if known, ok := compiled.Load(name); ok {
		return known.(*jsonschema.Schema)
	}
	schema, err := compile(name)
	if err != nil {
		t.Fatal(err)
	}
	compiled.Store(name, schema)
	return schema
}

// compile lets a schema refer to that of the default format, by its name.
func compile(name string) (*jsonschema.Schema, error) {
	compiler := jsonschema.NewCompiler()
	if name != "event" {
		text, err := os.ReadFile(filepath.Join(SchemasDir(), "event.schema.json"))
		if err != nil {
			return nil, err
		}
		event, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return nil, err
		}
		if err := compiler.AddResource("urn:lapse:schema:event:1", event); err != nil {
			return nil, err
		}
	}
	return compiler.Compile(filepath.Join(SchemasDir(), name+".schema.json"))
}

// ParseJSON reads a value that must be JSON in UTF-8.
func ParseJSON(t *testing.T, value []byte) any {
	t.Helper()
	if !utf8.Valid(value) {
		t.Errorf("not UTF-8: %q", value)
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		t.Fatalf("%v in %s", err, value)
	}
	return parsed
}

// KeysOf is what an event says of its row.
func KeysOf(t *testing.T, value []byte) (keys map[string]string, hashed []string) {
	t.Helper()
	var e struct {
		Mods []struct {
			Keys map[string]string `json:"keys"`
		} `json:"mods"`
		Lapse struct {
			Hashed []string `json:"hashed"`
		} `json:"lapse"`
	}
	if err := json.Unmarshal(value, &e); err != nil || len(e.Mods) != 1 {
		t.Fatalf("%v in %.200s", err, value)
	}
	return e.Mods[0].Keys, e.Lapse.Hashed
}

// HashOf is what an event has in place of a long value, under HashKey.
func HashOf(value string) string {
	mac := hmac.New(sha256.New, HashKey)
	mac.Write([]byte(value))
	return "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil))
}
