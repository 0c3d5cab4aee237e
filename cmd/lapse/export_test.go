package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/export"
	"lapse/internal/evidencetest"
	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/schemas"
)

// wantExport exports and wants every record of these topics in the files, byte for byte.
func wantExport(t *testing.T, m *machine, broker *kafkaserver.Server, topics ...string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "evidence")
	m.lapse("events", "--export", dir)
	var manifest export.Manifest
	text, err := os.ReadFile(filepath.Join(dir, export.ManifestFile))
	if err == nil {
		err = json.Unmarshal(text, &manifest)
	}
	if err != nil {
		t.Fatal(err)
	}
	type place struct {
		topic     string
		partition int32
		offset    int64
	}
	written := map[place]export.Line{}
	for _, f := range manifest.Files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != f.SHA256 || bytes.Count(text, []byte("\n")) != f.Records {
			t.Errorf("%s is not what the manifest says", f.Name)
		}
		for line := range bytes.Lines(text) {
			var r export.Line
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatal(err)
			}
			written[place{f.Topic, f.Partition, r.Offset}] = r
		}
	}
	there := 0
	for _, topic := range topics {
		for _, record := range kafkatest.ReadAllOn(t, broker, topic) {
			there++
			r := written[place{topic, record.Partition, record.Offset}]
			same := bytes.Equal(r.Key, record.Key) && bytes.Equal(r.Value, record.Value) && r.Time.Equal(record.Time) && len(r.Headers) == len(record.Headers)
			for i := range min(len(r.Headers), len(record.Headers)) {
				same = same && r.Headers[i].Name == record.Headers[i].Name && bytes.Equal(r.Headers[i].Value, record.Headers[i].Value)
			}
			if !same {
				t.Errorf("%s/%d at %d is exported as %+v, and is %+v", topic, record.Partition, record.Offset, r, record)
			}
		}
	}
	if there == 0 || len(written) != there {
		t.Errorf("%d records in the files, %d in the topics", len(written), there)
	}
	wantVerified(t, m, dir)
	wantGoneOn(t, m, dir)
	if said := m.exits(exitInvalid, "events", "--export", filepath.Dir(dir)); !strings.Contains(said, "is not empty, and is no export") {
		t.Errorf("an export into a folder with other things: %s", said)
	}
	if said := m.exits(exitInvalid, "events", "--export", dir, "--cause", "user"); !strings.Contains(said, "exclude each other") {
		t.Errorf("a filtered export: %s", said)
	}
}

// manifestOf opens an export, and returns its manifest.
func manifestOf(t *testing.T, dir string) *export.Manifest {
	t.Helper()
	files, err := export.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return files.Manifest
}

func TestAKeyIsFoundHoweverItIsWritten(t *testing.T) {
	t.Parallel()
	hash := evidencetest.HashKey
	hashed := `{"id":"` + evidence.HashOf(hash, "42") + `","no":"` + evidence.HashOf(hash, "7") + `"}`
	for _, c := range []struct {
		asked, key string
		hash       schemas.Key
		want       bool
	}{
		{`42`, `{"id":"42"}`, nil, true},
		{`42`, `{"id":42}`, nil, true}, // as debezium has it
		{`43`, `{"id":"42"}`, nil, false},
		{`42`, `{"id":"42","no":"7"}`, nil, false},
		{`42,7`, `{"id":"42","no":"7"}`, nil, true},
		{`7,42`, `{"id":"42","no":"7"}`, nil, false},
		{`"a,b",7`, `{"id":"a,b","no":"7"}`, nil, true},
		{`{"no":7,"id":"42"}`, `{"id":"42","no":"7"}`, nil, true},
		{`{"id":"42"}`, `{"id":"42","no":"7"}`, nil, false},
		{`{"id":"42","no":null}`, `{"id":"42","no":null}`, nil, true},
		{`{"id":"42","other":"7"}`, `{"id":"42","no":"7"}`, nil, false},
		{`42,7`, hashed, hash, true},
		{`42,8`, hashed, hash, false},
		{`42,7`, hashed, nil, false},
		{`{"no":"7","id":"42"}`, hashed, hash, true},
		{`42`, `{}`, nil, false},
		{`{}`, `{}`, nil, false},
		{`42`, `"lapse-marker"`, nil, false},
		{`42`, `{"id":`, nil, false},
		{`42`, ``, nil, false},
	} {
		filter, err := readKey(c.asked)
		if err != nil {
			t.Errorf("%s: %v", c.asked, err)
			continue
		}
		if c.hash != nil {
			filter.hashes = []schemas.Key{schemas.Key(strings.Repeat("x", schemas.MinKey)), c.hash}
		}
		if filter.matches([]byte(c.key)) != c.want {
			t.Errorf("%s matches %s: %v", c.asked, c.key, !c.want)
		}
	}
	for _, wrong := range []string{`{"ix":`, `{]`, `"ax`, `{"ix"}`, `{"ix":"1"} {`} {
		if _, err := readKey(wrong); err == nil || strings.Contains(err.Error(), wrong) {
			t.Errorf("--key %s: %v", wrong, err)
		}
	}
}

func TestEventsAreOfTheTimeAndTheRowThatAreAskedFor(t *testing.T) {
	t.Parallel()
	at := func(s string) time.Time {
		moment, err := readMoment("--since", s)
		if err != nil {
			t.Fatal(err)
		}
		return moment
	}
	event := logRecord("delete", "lapse-cause", "user")
	event.Time = at("2026-11-21T10:15:30.123Z")
	truncate := logRecord("truncate", "lapse-cause", "user")
	truncate.Key, truncate.Time = []byte("{}"), event.Time
	one, err := readKey("1")
	if err != nil {
		t.Fatal(err)
	}
	two, err := readKey("2")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		consumer consumer
		record   *schemas.Record
		wants    bool
	}{
		{"since then", consumer{since: at("2026-11-21T10:15:30.1234Z")}, event, true}, // records keep milliseconds
		{"since later", consumer{since: at("2026-11-21T10:15:30.124Z")}, event, false},
		{"until then", consumer{until: event.Time}, event, false},
		{"until later", consumer{until: at("2026-11-21T12:15:30.124+02:00")}, event, true},
		{"since its day until the next", consumer{since: at("2026-11-21"), until: at("2026-11-22")}, event, true},
		{"its row", consumer{key: one}, event, true},
		{"another row", consumer{key: two}, event, false},
		{"all rows", consumer{key: two}, truncate, true},
		{"all rows, later", consumer{key: two, since: at("2026-11-22")}, truncate, false},
	} {
		if got := c.consumer.wants(c.record); got != c.wants {
			t.Errorf("%s: wants is %v", c.name, got)
		}
	}
	if _, err := readMoment("--since yesterday", "yesterday"); err == nil {
		t.Error("yesterday is read as a time")
	}
}
