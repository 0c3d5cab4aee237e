package evidence

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/google/uuid"

	"lapse/replication"
)

// transactionRecord makes a transaction's record, of four three without escapes.
func (d drawn) transactionRecord() []byte {
	source := Source{SystemIdentifier: d.Uint64(), DatabaseOID: d.Uint32(), Database: "shop", Encoding: []string{"UTF8", "LATIN1", "SQL_ASCII"}[d.IntN(3)], Slot: "lapse"}
	route := &Route{Version: 1 + d.IntN(3), Source: source, Format: FormatSpanner, HashKey: "key"}
	account := d.account()
	account.Tallies = account.Tallies[:min(len(account.Tallies), 3)]
	if d.IntN(4) > 0 {
		for i := range account.Tallies {
			account.Tallies[i].Table = "public.été"
		}
		if account.Claim != nil {
			account.Claim.Policy = "sessions-30d"
		}
	}
	tx := d.tx()
	tx.Origin = d.maybe("node-2")
	c := newTransactionContents(tx, account, []Verdict{Match, Mismatch, Unclaimed}[d.IntN(3)])[0].(*TransactionContent)
	if d.IntN(2) == 0 {
		c.Rows = &RowsRoot{Epoch: "2026-11", Count: d.Uint64(), First: d.Uint32(), Root: []byte("root")}
	}
	return NewLogWriter(route, nil, d.id(), nil).Write(c, LogPosition{Reach: d.reach(), Seq: d.Uint32()}, d.IntN(2) == 0).Value
}

// changed changes a byte of a text.
func (d drawn) changed(value []byte) []byte {
	changed := append([]byte(nil), value...)
	at := d.IntN(len(changed))
	switch d.IntN(4) {
	case 0:
		const marks = "0-\"\\,:{}[] aZ/\x00\xff"
		changed[at] = marks[d.IntN(len(marks))]
	case 1:
		changed = append(changed[:at], changed[at+1:]...)
	case 2:
		changed = append(changed[:at], append([]byte{value[d.IntN(len(value))]}, changed[at:]...)...)
	default:
		changed[at] ^= byte(1 << d.IntN(8))
	}
	return changed
}

// What is scanned is what encoding/json reads, of records as they are written and of such that somebody has changed.
func TestATransactionIsScannedAsEncodingJSONReadsIt(t *testing.T) {
	t.Parallel()
	scanned := 0
	for seed := range uint64(120) {
		d := drawn{rand.New(rand.NewPCG(seed, 23))}
		value := d.transactionRecord()
		if head, _ := scanTransaction(value); head != nil {
			scanned++
		}
		for try := range 12 {
			changed := value
			if try > 0 {
				changed = d.changed(value)
			}
			got, err := ParseLogRecord(changed)
			want, wantErr := parseLogRecord(changed)
			if (err == nil) != (wantErr == nil) || !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: scanned it is\n%+v, %v\nand read\n%+v, %v\n%s", seed, got, err, want, wantErr, changed)
			}
		}
	}
	if scanned < 40 || scanned == 120 {
		t.Errorf("%d of 120 records were scanned", scanned)
	}
}

func TestALatenessIsScannedAsEncodingJSONReadsIt(t *testing.T) {
	t.Parallel()
	account := &Account{Tallies: []Tally{{OID: 1, Table: "public.t", Op: Delete, Cause: System, Events: 3, Judged: 3, Due: 3}}}
	c := newTransactionContents(&replication.Tx{}, account, Match)[0]
	value := NewLogWriter(&Route{Version: 1}, nil, uuid.UUID{}, nil).Write(c, LogPosition{}, false).Value
	for late, scans := range map[string]bool{
		`{"60":1,"300":2,"later":3}`: true, `{"later":3}`: true, `{}`: true,
		`{"later":3,"60":1}`: false, `{"300":1,"60":2}`: false, `{"60":1,"60":2}`: false, `{"later":1,"later":2}`: false, `{"61":1}`: false, `{"060":1}`: false, `{"60":1,}`: false, `{"60":-1}`: false, `null`: false,
	} {
		record := bytes.Replace(value, []byte(`"unknown":0`), []byte(`"unknown":0,"late":`+late), 1)
		if head, _ := scanTransaction(record); (head != nil) != scans {
			t.Errorf("%s: scanned: %t", late, head != nil)
		}
		got, err := ParseLogRecord(record)
		want, wantErr := parseLogRecord(record)
		if (err == nil) != (wantErr == nil) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is scanned as %+v, %v, and read as %+v, %v", late, got, err, want, wantErr)
		}
	}
}

// FuzzScanTransaction compares the two on any text.
func FuzzScanTransaction(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(drawn{rand.New(rand.NewPCG(seed, 24))}.transactionRecord())
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		got, err := ParseLogRecord(value)
		want, wantErr := parseLogRecord(value)
		if (err == nil) != (wantErr == nil) || !reflect.DeepEqual(got, want) {
			t.Errorf("scanned it is\n%+v, %v\nand read\n%+v, %v", got, err, want, wantErr)
		}
	})
}

func TestAnEventIsScannedAsEncodingJSONReadsIt(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("../../schemas/golden/*event*.json")
	if err != nil || len(names) < 40 {
		t.Fatalf("%d golden files: %v", len(names), err)
	}
	values, scanned := map[string][]byte{}, map[string]bool{}
	for _, name := range names {
		if values[name], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	values["event-judged.json"] = bytes.Replace(values["../../schemas/golden/event-system.json"], []byte(`"ordinal":1}`), []byte(`"ordinal":1,"due":null}`), 1)
	for seed, name := range slices.Sorted(maps.Keys(values)) {
		value := bytes.TrimSpace(values[name])
		scanned[filepath.Base(name)] = scanEvent(value) != nil
		d := drawn{rand.New(rand.NewPCG(uint64(seed), 24))}
		for try := range 1000 {
			changed := value
			if try > 0 {
				changed = d.changed(value)
			}
			got, err := ParseEventValue(changed)
			want, wantErr := parseEventValue(changed)
			if (err == nil) != (wantErr == nil) || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: scanned it is\n%+v, %v\nand read\n%+v, %v\n%s", name, got, err, want, wantErr, changed)
			}
		}
	}
	for name, want := range map[string]bool{
		"event-user.json": true, "event-system.json": true, "event-cascade.json": true, "event-judged.json": true, "event-origin.json": false,
		"event-truncate.json": false, "event-gap.json": false, "cloudevent-user.json": false, "debezium-event-user.json": false,
	} {
		if scanned[name] != want {
			t.Errorf("%s: scanned: %v", name, scanned[name])
		}
	}
}
