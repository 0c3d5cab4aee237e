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

// The partitions of the tests: of public.a by day, one of them by kind again; of public.b by day; of public.c, where nobody asks for
// moves; and of public.d, whose identity is what it is partitioned by.
var (
	leafA1 = relation(16601, "public", "a1", "id*", "day*", "kind*", "note")
	leafA2 = relation(16602, "public", "a2", "note", "kind*", "day*", "id*") // attached: its columns have another order
	leafA3 = relation(16603, "public", "a3", "id*", "day*", "kind*", "note")
	leafB1 = relation(16611, "public", "b1", "id*", "day*")
	leafB2 = relation(16612, "public", "b2", "id*", "day*")
	leafC1 = relation(16621, "public", "c1", "id*", "day*")
	leafC2 = relation(16622, "public", "c2", "id*", "day*")
	leafD1 = relation(16631, "public", "d1", "day*")
	leafD2 = relation(16632, "public", "d2", "day*")
	young  = relation(16641, "public", "a4", "id*", "day*", "kind*", "note") // no heartbeat has found it
)

// partitions are what the heartbeats have found.
func partitions(t testing.TB) evidence.Standing {
	t.Helper()
	var s evidence.Standing
	for i, of := range []struct {
		leaf          *replication.Relation
		root, movesBy string
	}{
		{leafA1, "public.a", "day"},
		{leafA2, "public.a", "day"},
		{leafA3, "public.a", "day,kind"},
		{leafB1, "public.b", "day"},
		{leafB2, "public.b", "day"},
		{leafC1, "public.c", ""},
		{leafC2, "public.c", ""},
		{leafD1, "public.d", "day"},
		{leafD2, "public.d", "day"},
	} {
		row, ok := evidence.NewCoveredTable(int64(i+1), of.leaf.OID, "public."+of.leaf.Name, of.root, of.movesBy, 0, "", false, false)
		if !ok {
			t.Fatal(of)
		}
		s.Tables = append(s.Tables, row)
	}
	return s
}

// moveEvent is that of a row that an update moved.
func moveEvent(route *evidence.Route) *evidence.Routed {
	columns := []string{"id*", "day*", "note"}
	left, came := numbered(relation(16540, "public", "sessions_2026_09", columns...)), numbered(relation(16541, "public", "sessions_2026_10", columns...))
	var standing evidence.Standing
	for i, r := range []*replication.Relation{left, came} {
		r.Columns[1].TypeOID = 1082 // a date
		known, _ := evidence.NewCoveredTable(int64(i+1), r.OID, "public."+r.Name, "public.sessions", "day", 0, "", false, false)
		standing.Tables = append(standing.Tables, known)
	}
	a := assembler(standing)
	a.Begin(exampleTx())
	a.Change(del(left, 42, "2026-09-30"))
	a.Change(insert(came, row(42, "2026-10-01", "secret")))
	return evidence.NewRouter(route, evidencetest.HashKey).Route(a.Next())
}

// here is the row of a leaf with these values, whatever the order of its columns.
func here(leaf *replication.Relation, id, day, kind any) (all []any) {
	for _, c := range leaf.Columns {
		all = append(all, map[string]any{"id": id, "day": day, "kind": kind, "note": "n"}[c.Name])
	}
	return all
}

func leaves(leaf *replication.Relation, id, day, kind any) *replication.Change {
	change := del(leaf)
	for i, value := range here(leaf, id, day, kind) {
		if leaf.Columns[i].Key {
			change.Old[i] = row(value)[0]
		}
	}
	return change
}

func comes(leaf *replication.Relation, id, day, kind any) *replication.Change {
	return insert(leaf, row(here(leaf, id, day, kind)...))
}

// told says of each event which change it is, who did what, and where to.
func told(a *evidence.Assembler, tx *replication.Tx, changes ...*replication.Change) (events []string, outcome *evidence.Conclusion) {
	take := func() {
		for e := a.Next(); e != nil; e = a.Next() {
			letter := letterOf(evidence.Finding{Op: e.Op, Cause: e.Cause, Cascade: e.Cascade})
			text := ""
			if e.Op == evidence.Move {
				letter, text = strings.Replace(letter, "u", "m", 1), " to "+e.MovedTo
				for _, key := range e.Values {
					text += fmt.Sprintf(" %s=%s", key.Name, key.Value)
				}
			} else if e.MovedTo != "" || e.Cause == evidence.User && len(e.Values) > 0 {
				text = " and yet somewhere"
			}
			events = append(events, fmt.Sprintf("%d%s%s", e.Ordinal, letter, text))
		}
	}
	a.Begin(tx)
	for i, change := range changes {
		change.Ordinal = uint32(i)
		a.Change(change)
		take()
		for _, value := range slices.Concat(change.Old, change.New) {
			for k := range value.Bytes {
				value.Bytes[k] = '?'
			}
		}
	}
	outcome = a.Commit(tx, exampleAncestry)
	take()
	return events, outcome
}

func TestADeleteAndTheInsertOfTheSameRowIntoAnotherPartitionAreAMove(t *testing.T) {
	t.Parallel()
	whole := *leafA1
	whole.ReplicaIdentity = 'f'
	tooLong, kept := comes(leafA2, 1, 2, "k"), comes(leafA2, 1, 2, "k")
	for i := range tooLong.New {
		tooLong.New[i].Kind = replication.Unsent
	}
	kept.New[3].Kind = replication.Unchanged
	onA1 := exampleClaim()
	onA1.Target = leafA1.OID
	for _, test := range []struct {
		name    string
		changes []*replication.Change
		want    string
	}{
		{"an update that moves a row", []*replication.Change{leaves(leafA1, 1, 1, "k"), comes(leafA2, 1, 2, "k")}, "0m to public.a2 id=1 day=2 kind=k"},
		{"and back", []*replication.Change{leaves(leafA2, 1, 2, "k"), comes(leafA1, 1, 1, "k")}, "0m to public.a1 kind=k day=1 id=1"},
		{"one that moves two", []*replication.Change{
			leaves(leafB1, 1, 1, ""), comes(leafB2, 1, 2, ""), leaves(leafB1, 2, 1, ""), comes(leafB2, 2, 2, ""),
		}, "0m to public.b2 id=1 day=2, 2m to public.b2 id=2 day=2"},
		{"on to a third, and deleted there", []*replication.Change{
			leaves(leafB1, 1, 1, ""), comes(leafB2, 1, 2, ""), leaves(leafB2, 1, 2, ""), comes(leafB1, 1, 3, ""), leaves(leafB1, 1, 3, ""),
		}, "0m to public.b2 id=1 day=2, 2m to public.b1 id=1 day=3, 4u"},
		{"into a partition that is partitioned further, with what only that is partitioned by", []*replication.Change{
			leaves(leafA1, 1, 1, "k"), comes(leafA3, 1, 2, "l"),
		}, "0m to public.a3 id=1 day=2 kind=l"},
		{"out of one", []*replication.Change{leaves(leafA3, 1, 1, "l"), comes(leafA1, 1, 2, "k")}, "0m to public.a1 id=1 day=2 kind=k"},
		{"with another key", []*replication.Change{leaves(leafA1, 1, 1, "k"), comes(leafA2, 2, 2, "k")}, "0u"},
		{"with another key that is none of these partitions'", []*replication.Change{leaves(leafA1, 1, 1, "k"), comes(leafA2, 1, 2, "l")}, "0u"},
		{"a row that comes before it goes", []*replication.Change{comes(leafB2, 1, 2, ""), leaves(leafB1, 1, 1, "")}, "1u"},
		{"a delete and an insert into the same partition", []*replication.Change{leaves(leafB1, 1, 1, ""), comes(leafB1, 1, 1, "")}, "0u"},
		{"a delete and an insert into another table", []*replication.Change{leaves(leafB1, 1, 1, ""), comes(leafA2, 1, 1, "")}, "0u"},
		{"a change in between", []*replication.Change{leaves(leafB1, 1, 1, ""), comes(leafC1, 5, 5, ""), comes(leafB2, 1, 2, "")}, "0u"},
		{"a delete in between", []*replication.Change{leaves(leafB1, 1, 1, ""), leaves(leafB1, 2, 1, ""), comes(leafB2, 1, 2, "")}, "0u, 1u"},
		{"two deletes, and the insert of the second", []*replication.Change{leaves(leafB1, 1, 1, ""), leaves(leafB1, 2, 1, ""), comes(leafB2, 2, 2, "")}, "0u, 1m to public.b2 id=2 day=2"},
		{"an update elsewhere with the same values", []*replication.Change{leaves(leafB1, 1, 1, ""), set(leafB2, 1, 2)}, "0u"},
		{"a truncate after it", []*replication.Change{leaves(leafB1, 1, 1, ""), truncate(leafB2)}, "0u, 1U"},
		{"the end of the transaction after it", []*replication.Change{leaves(leafB1, 1, 1, "")}, "0u"},
		{"where nobody asks for moves", []*replication.Change{leaves(leafC1, 1, 1, ""), comes(leafC2, 1, 2, "")}, "0u"},
		{"into a partition that no heartbeat has found", []*replication.Change{leaves(leafA1, 1, 1, "k"), comes(young, 1, 2, "k")}, "0u"},
		{"out of one", []*replication.Change{leaves(young, 1, 1, "k"), comes(leafA1, 1, 2, "k")}, "0u"},
		{"rows that nothing but their place names", []*replication.Change{leaves(leafD1, 0, 1, ""), comes(leafD2, 0, 2, "")}, "0u"},
		{"under full identity", []*replication.Change{full(leaves(&whole, 1, 1, "k"), 1, 1, "k", "n"), comes(leafA2, 1, 2, "k")}, "0u"},
		{"a row that is too long to be read", []*replication.Change{leaves(leafA1, 1, 1, "k"), tooLong}, "0u"},
		{"a row with a column that was not sent", []*replication.Change{leaves(leafA1, 1, 1, "k"), kept}, "0u"},
		{"a row without a key", []*replication.Change{leaves(leafB1, 1, 1, ""), insert(leafB2, row(nil, 2))}, "0u"},
		{"a row that NULL named", []*replication.Change{leaves(leafB1, nil, 1, ""), comes(leafB2, "", 2, "")}, "0u"},
		{"no row at all", []*replication.Change{leaves(leafB1, 1, 1, ""), insert(leafB2, nil)}, "0u"},
		{"a delete that names no row", []*replication.Change{{Op: replication.OpDelete, Relation: leafB1, OldIsKey: true}, comes(leafB2, 1, 2, "")}, "0u"},
		{"a true batch's delete, and a trigger's insert", []*replication.Change{signed(onA1), leaves(leafA1, 1, 1, "k"), comes(leafA2, 1, 2, "k"), resultRow(onA1, 1)}, "1s"},
		{"a trigger's update in a true batch", []*replication.Change{signed(exampleClaim()), leaves(leafA1, 1, 1, "k"), comes(leafA2, 1, 2, "k")}, "1x"},
		{"after a true batch", []*replication.Change{signed(onA1), resultRow(onA1), leaves(leafA1, 1, 1, "k"), comes(leafA2, 1, 2, "k")}, "2x"},
		{"after a forged batch", []*replication.Change{batchRow(onA1, nil), leaves(leafA1, 1, 1, "k"), comes(leafA2, 1, 2, "k")}, "1x"},
		{"before a batch", []*replication.Change{leaves(leafA1, 1, 1, "k"), comes(leafA2, 1, 2, "k"), signed(onA1), leaves(leafA1, 1, 1, "k")}, "0m to public.a2 id=1 day=2 kind=k, 3x"},
		{"a batch in between", []*replication.Change{leaves(leafA1, 1, 1, "k"), signed(onA1), comes(leafA2, 1, 2, "k")}, "0u"},
		{"a drop in front", []*replication.Change{dropped(exampleClaim()), leaves(leafA1, 1, 1, "k"), comes(leafA2, 1, 2, "k")}, "0S, 1x"},
	} {
		a := assembler(partitions(t))
		events, _ := told(a, exampleTx(), test.changes...)
		if got := strings.Join(events, ", "); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// What a user moves is no deletion in the log, and what a batch claims is reconciled by what it deleted.
func TestAMoveIsCountedAsAMove(t *testing.T) {
	t.Parallel()
	onB1 := exampleClaim()
	onB1.Target, onB1.Cascades = leafB1.OID, nil
	move := func() []*replication.Change {
		return []*replication.Change{leaves(leafB1, 1, 1, ""), comes(leafB2, 1, 2, "")}
	}
	for _, test := range []struct {
		name    string
		changes []*replication.Change
		want    string
	}{
		{"moves", slices.Concat(move(), move(), move()), "unclaimed b1 move user 3"},
		{"moves and a delete", slices.Concat(move(), []*replication.Change{leaves(leafB1, 2, 1, "")}, move()), "unclaimed b1 delete user 1, b1 move user 2"},
		{"a delete, and moves from another partition", slices.Concat([]*replication.Change{leaves(leafB2, 2, 1, "")}, move()), "unclaimed b2 delete user 1, b1 move user 1"},
		{
			"a move, and deletes of others", slices.Concat(move(), []*replication.Change{leaves(leafB2, 2, 1, ""), leaves(leafC1, 2, 1, "")}),
			"unclaimed b1 move user 1, b2 delete user 1, c1 delete user 1",
		},
		{
			"a batch, and what a trigger puts elsewhere",
			[]*replication.Change{signed(onB1), leaves(leafB1, 1, 1, ""), comes(leafB2, 1, 2, ""), resultRow(onB1, 1)},
			"match b1 delete system 1",
		},
		{
			"a batch after a move", slices.Concat(move(), []*replication.Change{signed(onB1), leaves(leafB1, 1, 1, ""), resultRow(onB1, 1)}),
			"unclaimed b1 move user 1, b1 delete unverified 1",
		},
	} {
		_, outcome := told(assembler(partitions(t)), exampleTx(), test.changes...)
		var tallies []string
		for _, tally := range outcome.Account.Tallies {
			tallies = append(tallies, fmt.Sprintf("%s %s %s %d", strings.TrimPrefix(tally.Table, "public."), tally.Op, tally.Cause, tally.Events))
		}
		if got := fmt.Sprintf("%s %s", outcome.Verdict, strings.Join(tallies, ", ")); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// From the heartbeat on that finds that moves are asked for, and up to the one that finds that they no longer are. A row of lapse.covered
// without a heartbeat, which somebody must have written, changes nothing; and whatever it says, no deletion becomes the system's.
func TestMovesAreToldFromOneHeartbeatToAnother(t *testing.T) {
	t.Parallel()
	a := assembler(evidence.Standing{})
	beat := exampleHeartbeat()
	n := 0
	step := func(name, want string, changes ...*replication.Change) {
		t.Helper()
		events, _ := told(a, exampleTx(), changes...)
		if got := strings.Join(events, ", "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	rows := func(movesBy string) (all []*replication.Change) {
		for _, leaf := range []*replication.Relation{leafB1, leafB2} {
			n++
			all = append(all, foundMoving(n, leaf.OID, "public."+leaf.Name, "public.b", movesBy, "f"))
		}
		return all
	}
	heartbeat := func(rows []*replication.Change) []*replication.Change {
		beat.Former, beat.Nonce = beat.Nonce, beat.Former
		return append(rows, heard(beat))
	}
	move := func() []*replication.Change {
		return []*replication.Change{leaves(leafB1, 1, 1, ""), comes(leafB2, 1, 2, "")}
	}
	step("before any heartbeat", "0u", move()...)
	step("by rows without a heartbeat", "", rows("day")...)
	step("after these", "0u", move()...)
	step("in one's own transaction", "0u", append(move(), rows("day")...)...)
	step("a heartbeat that finds it not asked for", "", heartbeat(rows(""))...)
	step("after it", "0u", move()...)
	step("in the transaction of the one that finds it asked for", "3u", append(heartbeat(rows("day")), move()...)...)
	step("after it", "0m to public.b2 id=1 day=2", move()...)
	step("under a forged claim", "1x", append([]*replication.Change{batchRow(exampleClaim(), nil)}, move()...)...)
	step("by a text that is no list of names", "", heartbeat(rows("day,"))...)
	step("after it, as before", "0m to public.b2 id=1 day=2", move()...)
	step("when it is partitioned by what names its rows", "", heartbeat(rows("id,day"))...)
	step("after it", "0u", move()...)
	step("a heartbeat that finds it no longer asked for", "", heartbeat(rows(""))...)
	step("after it", "0u", move()...)
}

func TestListsOfNamesAreReadAsPostgresWritesThem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`day`: {"day"}, `day,kind`: {"day", "kind"}, `"Day, ""old""",k`: {`Day, "old"`, "k"}, `"größe"`: {"größe"}, "\"a\nb\"": {"a\nb"},
		``: nil, `day,`: nil, `,day`: nil, `day.kind`: nil, `"day`: nil, `""`: nil, `"a"b`: nil, `"a" ,b`: nil,
	} {
		if got, ok := evidence.ParseIdentifiers(text); !slices.Equal(got, want) || ok != (want != nil) {
			t.Errorf("%q is %q, %v", text, got, ok)
		}
	}
}

// Not parallel: allocations of other tests would be counted.
func TestAMoveCostsNoMemory(t *testing.T) {
	for _, format := range allFormats {
		a, router := assembler(partitions(t)), evidence.NewRouter(routeOf(format), evidencetest.HashKey)
		a.Begin(exampleTx())
		left, came := leaves(leafA1, 1, 1, "k"), comes(leafA2, 1, 2, "k")
		move := func() {
			left.Ordinal += 2
			a.Change(left)
			came.Ordinal = left.Ordinal + 1
			if n := drain(a); n > 0 {
				t.Error("a delete that may be half a move does not wait")
			}
			a.Change(came)
			router.Route(a.Next())
			drain(a)
		}
		move()
		if n := testing.AllocsPerRun(100, move); n > 0 {
			t.Errorf("%s: a move costs %v allocations", format, n)
		}
	}
}
