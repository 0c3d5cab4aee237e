package evidencetest

import (
	"bytes"
	"encoding/json"
	"math/big"
	"os"
	"path/filepath"
	"testing"

	"lapse/replication"
)

// Recorded is what Debezium's own connector was seen to write: values of all common types, and an event of each kind.
type Recorded struct {
	Values []RecordedValue
	Events map[string]struct{ Key, Value json.RawMessage }
}

// RecordedValue is a value as the server sends it, and as it is written.
type RecordedValue struct {
	Column   string
	OID      uint32
	Mod      int32
	Named    replication.TypeName
	Type     string // in SQL
	Text     string
	Debezium json.RawMessage
	Lapse    json.RawMessage // where Debezium loses something; nil elsewhere
}

// Want is what is to be written.
func (v *RecordedValue) Want() json.RawMessage {
	if v.Lapse != nil {
		return v.Lapse
	}
	return v.Debezium
}

// ReadRecorded reads it.
func ReadRecorded(t *testing.T) *Recorded {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(SchemasDir(), "..", "audit", "evidence", "testdata", "debezium-3.7.0.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r Recorded
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// Exactly parses JSON whose numbers keep all their digits, and are alike where their values are.
func Exactly(t *testing.T, text []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var parsed any
	if err := d.Decode(&parsed); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	var walk func(v any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case json.Number:
			n, ok := new(big.Rat).SetString(v.String())
			if !ok {
				t.Fatalf("%s in %q is no number", v, text)
			}
			return n.String()
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		}
		return v
	}
	return walk(parsed)
}
