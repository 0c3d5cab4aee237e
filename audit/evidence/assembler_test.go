package evidence_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

func assembler(standing evidence.Standing) *evidence.Assembler {
	return evidence.NewAssembler(source, []schemas.Key{evidencetest.TagKey}, standing)
}

// assemble sends a transaction through an assembler and describes its events. What a change borrows from the stream is
// overwritten when its first event was taken: a full sink lets the stream read.
func assemble(a *evidence.Assembler, changes ...*replication.Change) (events []string, outcome *evidence.Conclusion) {
	take := func(change *replication.Change) {
		for e := a.Next(); e != nil; e = a.Next() {
			text := fmt.Sprintf("%d %v %s", e.Ordinal, e.Cause, e.Table)
			for _, key := range e.Keys {
				text += fmt.Sprintf(" %s=%s", key.Name, key.Value)
			}
			events = append(events, text)
			overwrite(change)
		}
		overwrite(change)
	}
	tx := exampleTx()
	a.Begin(tx)
	for i, change := range changes {
		change.Ordinal = uint32(i)
		a.Change(change)
		take(change)
	}
	outcome = a.Commit(tx, exampleAncestry)
	take(&replication.Change{})
	return events, outcome
}

// overwrite is what the stream does to a change when it reads.
func overwrite(change *replication.Change) {
	for _, value := range slices.Concat(change.Old, change.New) {
		for k := range value.Bytes {
			value.Bytes[k] = '?'
		}
	}
}

// The first event may find the sink full, and then the stream reads before the second one is routed.
func TestAnEventBehindOneThatWaitedKeepsItsKeysWhileTheStreamReads(t *testing.T) {
	t.Parallel()
	a := assembler(evidence.Standing{})
	a.Pair(func(change *replication.Change, _ evidence.Finding) bool { return change.Relation == target }, nil)
	got, _ := assemble(a, del(target, 1), del(child, 2, 3), del(target, 4), del(target, 5), del(child, 6, 7))
	plain, _ := assemble(assembler(evidence.Standing{}), del(target, 1), del(child, 2, 3), del(target, 4), del(target, 5), del(child, 6, 7))
	if !slices.Equal(got, plain) || len(got) != 5 {
		t.Errorf("got\n%q, want\n%q", got, plain)
	}
}

func TestADeleteThatIsHeldBackComesWithTheNextChangeOrTheCommit(t *testing.T) {
	t.Parallel()
	a := assembler(evidence.Standing{})
	waited := 0
	a.Pair(func(change *replication.Change, _ evidence.Finding) bool {
		if change.Relation == target {
			waited++
		}
		return change.Relation == target
	}, nil)
	a.Begin(exampleTx())
	step := func(change *replication.Change, want ...uint32) {
		t.Helper()
		a.Change(change)
		var got []uint32
		for e := a.Next(); e != nil; e = a.Next() {
			got = append(got, e.Ordinal)
		}
		if !slices.Equal(got, want) {
			t.Errorf("change %d makes events %v certain, want %v", change.Ordinal, got, want)
		}
	}
	at := func(ordinal uint32, change *replication.Change) *replication.Change {
		change.Ordinal = ordinal
		return change
	}
	step(at(0, del(stranger, 1)), 0)
	step(at(1, del(target, 1)))
	step(at(2, del(target, 2)), 1)
	step(at(3, del(child, 2, 1)), 2, 3)
	step(at(4, del(target, 3)))
	step(at(5, insert(target, row(3, nil))), 4)
	step(at(6, del(target, 4)))
	a.Commit(exampleTx(), exampleAncestry)
	if e := a.Next(); e == nil || e.Ordinal != 6 || string(e.Keys[0].Value) != "4" {
		t.Errorf("the commit makes %+v certain, want the last delete", e)
	}
	if e := a.Next(); e != nil {
		t.Errorf("and %+v", e)
	}
	if waited != 4 {
		t.Errorf("%d waited, want 4", waited)
	}
	a.Begin(exampleTx())
	step(at(0, del(target, 5)))
	a.Begin(exampleTx()) // the stream broke: that transaction comes again
	step(at(0, del(stranger, 1)), 0)
}

// Whatever waits, the events are the same in the same order, and none has bytes of a later change.
func TestHoldingBackChangesNoEvent(t *testing.T) {
	t.Parallel()
	holding := assembler(evidence.Standing{})
	rapid.Check(t, func(t *rapid.T) {
		kinds := rapid.SliceOfN(rapid.IntRange(0, 4), 1, 30).Draw(t, "changes")
		signedFirst := rapid.Bool().Draw(t, "claimed")
		build := func() (changes []*replication.Change) {
			if signedFirst {
				changes = append(changes, signed(exampleClaim()))
			}
			for i, kind := range kinds {
				changes = append(changes, []*replication.Change{
					del(target, i), del(child, i, i*1000), truncate(target), insert(target, row(i, nil)), resultRow(exampleClaim(), 1),
				}[kind])
			}
			return changes
		}
		hold := rapid.SliceOfN(rapid.Bool(), 32, 32).Draw(t, "held")
		holding.Pair(func(change *replication.Change, _ evidence.Finding) bool { return hold[change.Ordinal] }, nil)
		got, outcome := assemble(holding, build()...)
		want, plain := assemble(assembler(evidence.Standing{}), build()...)
		if !slices.Equal(got, want) {
			t.Fatalf("got\n%q, want\n%q", got, want)
		}
		if outcome.Verdict != plain.Verdict {
			t.Fatalf("verdict %s, want %s", outcome.Verdict, plain.Verdict)
		}
	})
}

// What a move needs: the delete and the insert after it are one event, at the delete's place.
func TestADeleteAndTheChangeBehindItMayBeOneEvent(t *testing.T) {
	t.Parallel()
	a := assembler(evidence.Standing{})
	a.Pair(
		func(change *replication.Change, _ evidence.Finding) bool { return change.Relation == target },
		func(waiting *evidence.Event, change *replication.Change) bool {
			if change.Op != replication.OpInsert {
				return false
			}
			waiting.Table = "moved"
			return true
		})
	a.Begin(exampleTx())
	var got []string
	take := func() {
		for e := a.Next(); e != nil; e = a.Next() {
			got = append(got, fmt.Sprintf("%d %s", e.Ordinal, e.Table))
		}
	}
	for i, change := range []*replication.Change{
		del(target, 1), insert(target, row(1, nil)), del(target, 2), del(child, 2, 1), del(target, 3), insert(stranger, row(3, nil)), del(target, 4),
	} {
		change.Ordinal = uint32(i)
		a.Change(change)
		take()
	}
	a.Commit(exampleTx(), exampleAncestry)
	take()
	want := []string{"0 moved", "2 " + evidence.TableName(target), "3 " + evidence.TableName(child), "4 moved", "6 " + evidence.TableName(target)}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestADeleteThatWaitsCostsNoMemory(t *testing.T) {
	a := assembler(evidence.Standing{})
	a.Pair(func(*replication.Change, evidence.Finding) bool { return true }, nil)
	a.Begin(exampleTx())
	change := del(target, 4711000)
	if n := testing.AllocsPerRun(1000, func() {
		change.Ordinal++
		a.Change(change)
		drain(a)
	}); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
}

var fullBeatRelation = relation(16130, "lapse", "heartbeat", "nonce*", "former", "at", "history", "timeline", "server_start", "fault", "faults")

// beatRow is the row of lapse.heartbeat with a number, which names the one before it.
func beatRow(number, former byte) *replication.Change {
	var name any
	if former != 0 {
		name = beatNonce(former)
	}
	return insert(fullBeatRelation, row(beatNonce(number), name, "2026-11-21 10:15:30+00", 1, 1, "2026-11-21 09:15:30+00", nil, 0))
}

func beatNonce(number byte) uuid.UUID { return uuid.UUID{15: number} }

// standing is a log whose last heartbeat has a number.
func standing(number byte, replaced ...string) evidence.Standing {
	return evidence.Standing{
		Last: evidence.LastBeat{
			Beat: &evidence.Heartbeat{Nonce: beatNonce(number)}, Reach: evidence.Reach{History: 1, Timeline: 1, LSN: 0x19C2000},
		},
		Origin: evidence.Reach{History: 1, Timeline: 1, LSN: 0x1000}, Replaced: replaced,
	}
}

// written describes what a transaction leaves in the topics and in the log beside its events.
func written(o *evidence.Conclusion) (lines []string) {
	for _, m := range o.Markers {
		lines = append(lines, fmt.Sprintf("%s %s from %s to %s at %d", m.Op, m.Reason, m.From.LSN, m.To.LSN, m.At.Ordinal))
	}
	for _, c := range o.Records {
		entry := evidence.NewLogWriter(&exampleRoute, evidencetest.HashKey, uuid.New(), nil).Write(c, evidence.LogPosition{}, false)
		record, err := evidence.ParseLogRecord(entry.Value)
		if err != nil {
			return []string{err.Error()}
		}
		line := string(record.Kind)
		if record.Heartbeat != nil {
			line += fmt.Sprintf(" beat %d", record.Heartbeat.Nonce[15])
		}
		lines = append(lines, line)
	}
	return lines
}

// A topic that was made again while the process before this one published has events that this one reads again. The gap is above
// them, and its record after those that a process which knew nothing of it has left.
func TestAGapInATopicStandsAboveWhatIsInIt(t *testing.T) {
	t.Parallel()
	ahead, first := standing(1, "user"), exampleTx().CommitLSN
	ahead.Tail = replication.Position{History: 1, Timeline: 1, Commit: first + 1}
	a := evidence.NewAssembler(exampleRoute.Source, nil, ahead)
	leaves := func(commit schemas.LSN, changes ...*replication.Change) []string {
		tx := exampleTx()
		tx.CommitLSN = commit
		a.Begin(tx)
		for _, c := range changes {
			a.Change(c)
		}
		return written(a.Commit(tx, nil))
	}
	for _, step := range []struct {
		commit schemas.LSN
		beat   *replication.Change
		want   []string
	}{
		{first, beatRow(2, 1), []string{"coverage beat 2"}},
		{first + 1, beatRow(3, 2), []string{"gap topic from 0/1000 to 0/19C2A78 at 0", "coverage beat 3", "gap"}},
		{first + 2, beatRow(4, 3), []string{"coverage beat 4"}},
	} {
		if got := leaves(step.commit, step.beat); !slices.Equal(got, step.want) {
			t.Errorf("at %s: %q, want %q", step.commit, got, step.want)
		}
	}
}

func TestATransactionLeavesAsManyRecordsAsItIsAbout(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		standing evidence.Standing
		changes  []*replication.Change
		want     []string
	}{
		{"nothing that is evidence", standing(1), []*replication.Change{insert(target, row(1, nil))}, nil},
		{"deletes", standing(1), []*replication.Change{del(target, 1)}, []string{"transaction"}},
		{"a heartbeat", standing(1), []*replication.Change{beatRow(2, 1)}, []string{"coverage beat 2"}},
		{
			"a heartbeat among deletes", standing(1),
			[]*replication.Change{del(target, 1), beatRow(2, 1), del(target, 2)},
			[]string{"transaction", "coverage beat 2"},
		},
		{"two heartbeats", standing(1), []*replication.Change{beatRow(2, 1), beatRow(3, 2)}, []string{"coverage beat 3"}},
		{
			"a heartbeat that was not sent before this one", standing(1),
			[]*replication.Change{beatRow(3, 2)},
			[]string{"gap publications from 0/19C2000 to 0/19C2A78 at 0", "gap beat 3"},
		},
		{
			"a heartbeat that was not sent between two", standing(1),
			[]*replication.Change{beatRow(2, 1), beatRow(4, 3)},
			[]string{"gap publications from 0/19C2000 to 0/19C2A78 at 0", "gap beat 4"},
		},
		{
			"the same, among deletes: the gap comes after them", standing(1),
			[]*replication.Change{del(target, 1), beatRow(3, 2), del(target, 2), insert(target, row(1, nil))},
			[]string{"gap publications from 0/19C2000 to 0/19C2A78 at 4", "transaction", "gap beat 3"},
		},
		{
			"two gaps, and the first has the heartbeat", standing(1, "user"),
			[]*replication.Change{beatRow(3, 2)},
			[]string{
				"gap publications from 0/19C2000 to 0/19C2A78 at 0", "gap topic from 0/1000 to 0/19C2A78 at 1", "gap beat 3", "gap",
			},
		},
		{"a topic that was replaced waits for a heartbeat", standing(1, "user"), []*replication.Change{del(target, 1)}, []string{"transaction"}},
	} {
		_, outcome := assemble(assembler(test.standing), test.changes...)
		if got := written(outcome); !slices.Equal(got, test.want) {
			t.Errorf("%s:\n got %q\nwant %q", test.name, got, test.want)
		}
	}
}

func TestEachHeartbeatFollowsTheLastOneOfTheTransactionBefore(t *testing.T) {
	t.Parallel()
	a := assembler(standing(1, "user"))
	for i, test := range []struct {
		changes []*replication.Change
		want    []string
	}{
		{[]*replication.Change{beatRow(2, 1)}, []string{"gap topic from 0/1000 to 0/19C2A78 at 0", "coverage beat 2", "gap"}},
		{[]*replication.Change{del(target, 1), beatRow(3, 2), beatRow(4, 3)}, []string{"transaction", "coverage beat 4"}},
		{[]*replication.Change{beatRow(5, 4)}, []string{"coverage beat 5"}},
		{[]*replication.Change{beatRow(7, 6)}, []string{"gap publications from 0/19C2A78 to 0/19C2A78 at 0", "gap beat 7"}},
	} {
		_, outcome := assemble(a, test.changes...)
		if got := written(outcome); !slices.Equal(got, test.want) {
			t.Errorf("transaction %d:\n got %q\nwant %q", i, got, test.want)
		}
	}
}

func TestPositionsOfTheLogAreInOneOrder(t *testing.T) {
	t.Parallel()
	at := func(history schemas.History, timeline schemas.Timeline, lsn schemas.LSN, seq uint32) evidence.LogPosition {
		return evidence.LogPosition{Reach: evidence.Reach{History: history, Timeline: timeline, LSN: lsn}, Seq: seq}
	}
	sorted := []evidence.LogPosition{at(1, 1, 5, 0), at(1, 1, 5, 1), at(1, 1, 6, 0), at(1, 2, 3, 0), at(2, 1, 1, 9), at(10, 1, 1, 0)}
	for i := range sorted {
		for k := range sorted {
			if got, want := sorted[i].Compare(sorted[k]), compareInts(i, k); got != want {
				t.Errorf("%s compared with %s: %d, want %d", sorted[i], sorted[k], got, want)
			}
		}
	}
}

func compareInts(a, b int) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return 0
	}
}
