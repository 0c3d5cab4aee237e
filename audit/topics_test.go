package audit_test

import (
	"encoding/json"
	"testing"

	"lapse/audit/evidence"
	"lapse/audit/verify"
	"lapse/internal/evidencetest"
	"lapse/internal/kafkatest"
	"lapse/schemas"
)

// event is an event as a consumer sees it.
type event struct {
	ID      string `json:"event_id"`
	Table   string `json:"table_name"`
	ModType string `json:"mod_type"`
	Lapse   struct {
		Cause     string `json:"cause"`
		CommitLSN string `json:"commit_lsn"`
		Policy    string `json:"policy"`
		Cascade   bool   `json:"cascade"`
	} `json:"lapse"`
}

// logRecord is a record of the log as a reader sees it.
type logRecord struct {
	Kind      string `json:"kind"`
	Reached   string `json:"reached"`
	CommitLSN string `json:"commit_lsn"`
	Verdict   string `json:"verdict"`
	position  evidence.LogPosition
	more      bool
	parsed    *evidence.LogRecord
	Observed  []struct {
		Table  string `json:"table"`
		Op     string `json:"op"`
		Cause  string `json:"cause"`
		Events int    `json:"events"`
	} `json:"observed"`
}

// read reads a topic without its fences.
func (r *rig) read(t *testing.T, topic string) []kafkatest.Record {
	t.Helper()
	var records []kafkatest.Record
	for _, record := range r.readAll(t, topic) {
		if record.Header("lapse-op") != "fence" {
			records = append(records, record)
		}
	}
	return records
}

func (r *rig) readLog(t *testing.T) []logRecord {
	t.Helper()
	var records []logRecord
	for _, record := range r.read(t, r.settings.Log) {
		var l logRecord
		if err := json.Unmarshal(record.Value, &l); err != nil {
			t.Fatal(err)
		}
		if got := record.Header("lapse-op"); got != l.Kind {
			t.Errorf("header lapse-op is %q of a record of kind %q", got, l.Kind)
		}
		if err := evidencetest.Schema(t, "log-"+l.Kind).Validate(evidencetest.ParseJSON(t, record.Value)); err != nil {
			t.Errorf("%s: %v", record.Value, err)
		}
		parsed, err := evidence.ParseLogRecord(record.Value)
		if err != nil {
			t.Fatal(err)
		}
		l.position, l.more, l.parsed = parsed.LogPosition, parsed.More, parsed
		records = append(records, l)
	}
	return records
}

// verify is the oracle: what was committed is in its topic, once, in order, under its cause, and the log says the same.
func (r *rig) verify(t *testing.T, want *expected) {
	t.Helper()
	got, everywhere := map[string]string{}, map[string]int{}
	byTransaction := map[string]int{}
	duplicates := 0
	order := verify.Order{System: r.settings.System, Broken: func(what string) { t.Error(what) }}
	for _, topic := range []string{r.settings.System, r.settings.User} {
		for _, record := range r.read(t, topic) {
			e := r.checkEvent(t, topic, record)
			order.Event(topic, record.Partition, asRead(topic, record), record.Offset)
			if e.ModType == "TRUNCATE" || e.ModType == "DROP" {
				everywhere[e.ModType]++
				if record.Partition == 0 {
					byTransaction[e.Lapse.CommitLSN]++
				}
				continue
			}
			byTransaction[e.Lapse.CommitLSN]++
			key := rowKey(e.Table, string(record.Key))
			if _, twice := got[key]; twice {
				duplicates++
			}
			got[key] = e.Lapse.Cause
			if e.ModType == "MOVE" {
				got[key] += ", moved"
			}
		}
	}
	missing := 0
	for key, cause := range want.causes {
		if got[key] == "" {
			missing++
		} else if got[key] != cause {
			t.Errorf("%s is %s, want %s", key, got[key], cause)
		}
	}
	if missing > 0 || duplicates > 0 || len(got) > len(want.causes) {
		t.Errorf("missing %d, duplicate %d, unknown %d of %d rows",
			missing, duplicates, len(got)-len(want.causes)+missing, len(want.causes))
	}
	if want.truncates*partitions != everywhere["TRUNCATE"] || want.drops*partitions != everywhere["DROP"] {
		t.Errorf("%v events of %d truncates and %d drops in %d partitions", everywhere, want.truncates, want.drops, partitions)
	}
	r.verifyLog(t, want, byTransaction)
	r.verifyTree(t)
	r.verifyAccount(t)
}

// asRead is a record as the product reads it.
func asRead(topic string, record kafkatest.Record) *schemas.Record {
	r := &schemas.Record{Topic: topic, Partition: record.Partition, Key: record.Key, Value: record.Value, Time: record.Time}
	for _, h := range record.Headers {
		r.Headers = append(r.Headers, schemas.Header{Key: h.Name, Value: h.Value})
	}
	return r
}

// checkEvent checks one event against its schema, its headers and its topic.
func (r *rig) checkEvent(t *testing.T, topic string, record kafkatest.Record) event {
	t.Helper()
	var e event
	if err := json.Unmarshal(record.Value, &e); err != nil {
		t.Fatalf("%v in %s", err, record.Value)
	}
	// Each kind of event is among the first; to hold all of many against the schema takes longer than all else.
	if record.Offset < 200 || record.Offset%97 == 0 {
		if err := evidencetest.Schema(t, "event").Validate(evidencetest.ParseJSON(t, record.Value)); err != nil {
			t.Errorf("%s: %v", record.Value, err)
		}
	}
	id := record.Header("lapse-sysid") + "/" + record.Header("lapse-db") + "/" + record.Header("lapse-history") + "/" + record.Header("lapse-tli") + "/" +
		record.Header("lapse-lsn") + "/" + record.Header("lapse-seq")
	if id != e.ID || record.Header("lapse-cause") != e.Lapse.Cause || record.Header("lapse-table") != e.Table {
		t.Errorf("headers say %s, %s, %s of %s", id, record.Header("lapse-cause"), record.Header("lapse-table"), record.Value)
	}
	if (topic == r.settings.System) != (e.Lapse.Cause == "system") {
		t.Errorf("an event of cause %s is in %s", e.Lapse.Cause, topic)
	}
	return e
}

// verifyLog checks that the log begins as it must, only goes forward, and counts what is in the topics.
func (r *rig) verifyLog(t *testing.T, want *expected, byTransaction map[string]int) {
	t.Helper()
	log := r.readLog(t)
	if len(log) < 2 || log[0].Kind != "origin" || log[1].Kind != "route" {
		t.Fatalf("the log of %d records does not begin with origin and route", len(log))
	}
	verdicts := map[string]int{}
	recorded := map[string]int{}
	routes := 0
	if log[0].position.LSN != r.settings.SlotStart {
		t.Errorf("the log begins at %s, the slot at %s", log[0].position, r.settings.SlotStart)
	}
	order := verify.Log{Broken: func(what string) { t.Error(what) }}
	for _, l := range log {
		order.Next(l.parsed)
		switch l.Kind {
		case "route":
			routes++
		case "transaction":
			verdicts[l.Verdict]++
			for _, o := range l.Observed {
				recorded[l.CommitLSN] += o.Events
			}
		}
	}
	if r.routes >= 0 && routes != max(r.routes, 1) {
		t.Errorf("the log has %d routes, want %d", routes, max(r.routes, 1))
	}
	order.End()
	for lsn, n := range byTransaction {
		if recorded[lsn] != n {
			t.Errorf("transaction %s has %d events in the topics and %d in the log", lsn, n, recorded[lsn])
		}
	}
	if len(recorded) != len(byTransaction) {
		t.Errorf("%d transactions with events in the log, %d in the topics", len(recorded), len(byTransaction))
	}
	for verdict, n := range want.verdicts {
		if verdicts[verdict] != n {
			t.Errorf("%d transactions are %s, want %d", verdicts[verdict], verdict, n)
		}
	}
}
