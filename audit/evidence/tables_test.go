package evidence_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
)

var coveredRelation = relation(16150, "lapse", "covered", "number*", "relation", "name", "root", "ended", "moves_by", "file")

// heard is a heartbeat's row.
func heard(h *evidence.Heartbeat) *replication.Change {
	r := relation(16130, "lapse", "heartbeat", "id*", "nonce", "former", "at", "history", "timeline", "server_start", "looked_at", "faults", "covered")
	return insert(r, row(1, h.Nonce, h.Former, "2026-11-21 10:15:30+00", h.History, h.Timeline, "2026-11-21 09:15:30+00", h.LookedAt, h.Faults, h.Covered))
}

// found is a row of a table that is published, a partition of root if that is not empty, or published no longer.
func found(number int, oid uint32, name, root string, ended string) *replication.Change {
	return foundMoving(number, oid, name, root, "", ended)
}

// foundMoving is found for a table where moves are told from deletions.
func foundMoving(number int, oid uint32, name, root, movesBy, ended string) *replication.Change {
	return foundInFile(number, oid, name, root, movesBy, nil, ended)
}

// foundInFile is foundMoving of a partition with a file, if that is not nil.
func foundInFile(number int, oid uint32, name, root, movesBy string, file any, ended string) *replication.Change {
	values := []any{number, oid, name, root, ended, movesBy, file}
	for _, i := range []int{3, 5} {
		if values[i] == "" {
			values[i] = nil
		}
	}
	return insert(coveredRelation, row(values...))
}

// rooted says of the events of changes which table and root they name.
func rooted(a *evidence.Assembler, changes ...*replication.Change) string {
	var events []string
	a.Begin(exampleTx())
	for i, change := range changes {
		change.Ordinal = uint32(i)
		a.Change(change)
		for e := a.Next(); e != nil; e = a.Next() {
			events = append(events, fmt.Sprintf("%s of %q %t", e.Table, e.Root, e.Partition))
		}
	}
	a.Commit(exampleTx(), exampleAncestry)
	return strings.Join(events, ", ")
}

func TestAnEventNamesTheRootThatTheLastHeartbeatBeforeItFound(t *testing.T) {
	t.Parallel()
	a := assembler(evidence.Standing{})
	beat := exampleHeartbeat()
	step := func(name, want string, changes ...*replication.Change) {
		t.Helper()
		if got := rooted(a, changes...); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	step("before any heartbeat", `public.sessions of "" false`, del(target, 1))
	step("without a heartbeat beside it", ``, found(1, target.OID, "public.sessions", `"Web".visits`, "f"))
	step("after that", `public.sessions of "" false`, del(target, 1))
	step("in the heartbeat's own transaction", `public.sessions of "" false`,
		found(1, target.OID, "public.sessions", `"Web".visits`, "f"), found(2, child.OID, "public.session_notes", "", "f"),
		found(3, stranger.OID, "x", "", "f"), heard(beat), del(target, 1))
	step("after it", `public.sessions of "\"Web\".visits" true, public.session_notes of "public.session_notes" false, shop."Orders ""old""" of "" false`,
		del(target, 1), del(child, 1, 1), truncate(stranger))
	beat.Former, beat.Nonce = beat.Nonce, beat.Former
	step("when it is detached", ``, found(4, target.OID, "public.sessions", `"Web".visits`, "t"), heard(beat))
	step("after that", `public.sessions of "" false`, del(target, 1))
}

// A start knows the tables of the heartbeats that the log has, and reads the others.
func TestTheTablesAfterARestartAreThoseOfBefore(t *testing.T) {
	t.Parallel()
	rows := []struct {
		oid               uint32
		name, root, ended string
	}{
		{target.OID, "public.sessions", "public.web", "f"},
		{child.OID, "public.session_notes", "", "f"},
		{target.OID, "public.sessions", "public.web", "t"},
		{target.OID, "public.sessions", "", "f"},
		{child.OID, "public.session_notes", "public.web", "f"},
	}
	want := make([]string, len(rows)+1)
	for restart := range len(rows) + 1 {
		var known []evidence.CoveredTable
		for i, r := range rows[:restart] {
			c, ok := evidence.NewCoveredTable(int64(i+1), r.oid, r.name, r.root, "", 0, "", false, r.ended == "t")
			if !ok {
				t.Fatal(r)
			}
			known = append(known, c)
		}
		a := assembler(evidence.Standing{Tables: known})
		for i := restart; ; i++ {
			got := rooted(a, del(target, 1), del(child, 1, 1))
			if want[i] == "" {
				want[i] = got
			}
			if got != want[i] {
				t.Errorf("from row %d on, after row %d: %s, want %s", restart, i, got, want[i])
			}
			if i == len(rows) {
				break
			}
			rooted(a, found(i+1, rows[i].oid, rows[i].name, rows[i].root, rows[i].ended), heard(exampleHeartbeat()))
		}
	}
}

// coverage is the records of the log that a heartbeat leaves that found these tables.
func coverage(a *evidence.Assembler, changes ...*replication.Change) []evidence.Content {
	tx := exampleTx()
	a.Begin(tx)
	for i, change := range changes {
		change.Ordinal = uint32(i)
		a.Change(change)
	}
	return slices.Clone(a.Commit(tx, exampleAncestry).Records)
}

func exampleTables() evidence.Content {
	a := assembler(evidence.Standing{Last: evidence.LastBeat{Reach: evidence.Reach{History: 1, Timeline: 1, LSN: 0x19C2000}}})
	first, second := exampleHeartbeat(), exampleHeartbeat()
	first.LookedAt, second.Former = 0x19C1FF0, first.Nonce
	coverage(a, found(1, 1, "public.a", "public.whole", "f"), found(2, 2, "public.b", "public.whole", "f"), found(3, 3, "public.c", "", "f"),
		found(4, 5, "public.e", "public.whole", "f"), foundInFile(5, 6, "public.f", "public.whole", "", 700, "f"), found(6, 7, "public.g", "public.whole", "f"),
		foundInFile(7, 8, "public.h", "public.whole", "", 800, "f"), heard(first))
	return coverage(a, found(8, 1, "public.a", "public.whole", "t"), found(9, 2, "public.b2", "public.whole", "f"), found(10, 3, "public.c", "", "f"),
		found(11, 4, `public."D"`, "", "f"), foundMoving(12, 5, "public.e", "public.whole", `day,"Kind"`, "f"),
		foundInFile(13, 6, "public.f", "public.whole", "", 701, "f"), found(14, 7, "public.g", "public.whole", "t"), found(15, 7, "public.g", "public.whole", "f"),
		foundInFile(16, 8, "public.i", "public.whole", "", 801, "f"), heard(second))[1]
}

func TestTheLogSaysFromWhichHeartbeatToWhichATableIsCovered(t *testing.T) {
	t.Parallel()
	a := assembler(evidence.Standing{})
	changes := make([]*replication.Change, 0, 1101)
	for i := range 1100 {
		changes = append(changes, found(i+1, uint32(i+1), fmt.Sprintf("public.t%d", i), "public.t", "f"))
	}
	beat := exampleHeartbeat()
	beat.Covered = 1100
	records := coverage(a, append(changes, heard(beat))...)
	writer := evidence.NewLogWriter(&exampleRoute, evidencetest.HashKey, beat.Nonce, nil)
	lines := 0
	for i, content := range records {
		entry := writer.Write(content, evidence.LogPosition{Reach: evidence.EndOf(exampleTx()), Seq: uint32(i)}, i < len(records)-1)
		if err := evidencetest.Schema(t, "log-coverage").Validate(evidencetest.ParseJSON(t, entry.Value)); err != nil {
			t.Error(err)
		}
		record, err := evidence.ParseLogRecord(entry.Value)
		if err != nil {
			t.Fatal(err)
		}
		if (record.Heartbeat != nil) != (i == 0) || i == 0 && record.Heartbeat.Covered != 1100 {
			t.Errorf("record %d has the heartbeat %+v: the first one is what a start knows the transaction by", i, record.Heartbeat)
		}
		lines += strings.Count(string(entry.Value), `"change":"begins"`)
	}
	if len(records) != 6 || lines != 1100 {
		t.Errorf("%d records with %d tables", len(records), lines)
	}
	if records := coverage(a, found(1101, 5, "public.t4", "public.t", "t"), insert(beatRelation, row(1, ""))); len(records) != 0 {
		t.Errorf("without a heartbeat: %d records", len(records))
	}
}
