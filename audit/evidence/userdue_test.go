package evidence_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

// dueRow is a row of lapse.covered about the target, whose users' deletions are judged.
func dueRow(number int, due any, where bool) *replication.Change {
	r := relation(16150, "lapse", "covered", "number*", "relation", "name", "root", "ended", "moves_by", "file", "due", "where_is")
	return insert(r, row(number, target.OID, "public.sessions", nil, "f", nil, nil, due, map[bool]string{true: "t", false: "f"}[where]))
}

// aBeat is a heartbeat that follows itself.
func aBeat() *evidence.Heartbeat {
	beat := exampleHeartbeat()
	beat.Former = beat.Nonce
	return beat
}

// unsettledBeat is a heartbeat that was written while policies were being changed.
func unsettledBeat() *replication.Change {
	c := heard(aBeat())
	described := *c.Relation
	described.Columns = append(described.Columns[:len(described.Columns):len(described.Columns)], replication.Column{Name: "unsettled"})
	c.Relation, c.New = &described, append(c.New, row("t")...)
	return c
}

// usersJudged is what a transaction's record says of its users' deletions: "-" for nothing.
func usersJudged(a *evidence.Assembler, changes ...*replication.Change) string {
	_, outcome := assemble(a, changes...)
	t := &outcome.Account.Tallies[0]
	if t.Judged == 0 {
		return "-"
	}
	return fmt.Sprintf("%d due, %d not, %d unknown of %d", t.Due, t.NotDue, t.Judged-t.Due-t.NotDue, t.Events)
}

// usersAccount has a user's deletions under a rule.
func usersAccount() *evidence.Account {
	a := assembler(evidence.Standing{})
	assemble(a, dueRow(1, dueWide, false), heard(aBeat()))
	_, outcome := assemble(a, wideRow(longAgo), wideRow(lately), wideRow(nil))
	return outcome.Account
}

// dueTables is the record of a heartbeat that finds a rule, and the next that finds another.
func dueTables() evidence.Content {
	a := assembler(evidence.Standing{})
	assemble(a, dueRow(1, nil, false), heard(aBeat()))
	_, outcome := assemble(a, dueRow(2, dueWide, true), heard(aBeat()))
	return outcome.Records[1]
}

func TestAUsersDeletionIsJudgedByTheRuleThatTheLastHeartbeatFound(t *testing.T) {
	t.Parallel()
	a := assembler(evidence.Standing{Unsettled: true})
	users := func() []*replication.Change {
		return []*replication.Change{wideRow(longAgo), wideRow(lately), wideRow(lately), wideRow(nil), wideRow("soon")}
	}
	for _, step := range []struct {
		when   string
		before []*replication.Change
		with   []*replication.Change
		want   string
	}{
		{when: "before any heartbeat", want: "-"},
		{when: "of a table that no rule is about", before: []*replication.Change{dueRow(1, nil, false), heard(aBeat())}, want: "-"},
		{when: "by a rule", before: []*replication.Change{dueRow(2, dueWide, false), heard(aBeat())}, want: "1 due, 2 not, 2 unknown of 5"},
		{when: "after a change of the policy's state", before: []*replication.Change{stateRow("paused")}, want: "1 due, 2 not, 2 unknown of 5"},
		{when: "in a transaction that makes a version", with: []*replication.Change{versionRow()}, want: "0 due, 0 not, 5 unknown of 5"},
		{when: "after it", want: "0 due, 0 not, 5 unknown of 5"},
		{when: "after a heartbeat while policies are being changed", before: []*replication.Change{unsettledBeat()}, want: "0 due, 0 not, 5 unknown of 5"},
		{when: "after the next", before: []*replication.Change{heard(aBeat())}, want: "1 due, 2 not, 2 unknown of 5"},
		{when: "after another while they are, and without a change", before: []*replication.Change{unsettledBeat()}, want: "1 due, 2 not, 2 unknown of 5"},
		{when: "after the end of a policy", before: []*replication.Change{stateRow("dropped")}, want: "0 due, 0 not, 5 unknown of 5"},
		{when: "after an edit of what is in force", before: []*replication.Change{heard(aBeat()), changedRow(gateTable, gateRow(3, "armed", "1"), gateRow(4, "armed", "1"))}, want: "0 due, 0 not, 5 unknown of 5"},
		{
			when: "after a change that concerns no version", before: []*replication.Change{heard(aBeat()), changedRow(gateTable, gateRow(4, "armed", "1"), gateRow(4, "armed", "2"))},
			want: "1 due, 2 not, 2 unknown of 5",
		},
		{when: "under a condition", before: []*replication.Change{dueRow(3, dueWide, true), heard(aBeat())}, want: "0 due, 2 not, 3 unknown of 5"},
		{
			when: "by a rule of a later version of Lapse", before: []*replication.Change{dueRow(4, `{"as": "moon", "column": "last_seen"}`, false), heard(aBeat())},
			want: "0 due, 0 not, 5 unknown of 5",
		},
		{
			when: "of a column that the log does not have", before: []*replication.Change{dueRow(5, strings.ReplaceAll(dueWide, "last_seen", "note"), false), heard(aBeat())},
			want: "0 due, 0 not, 5 unknown of 5",
		},
		{when: "when there is no rule any more", before: []*replication.Change{dueRow(6, nil, false), heard(aBeat())}, want: "-"},
	} {
		if step.before != nil {
			assemble(a, step.before...)
		}
		if got := usersJudged(a, append(users(), step.with...)...); got != step.want {
			t.Errorf("%s: %s, want %s", step.when, got, step.want)
		}
	}
}

// A row that moves to another partition is no deletion, and is not judged.
func TestMovesAreNotJudged(t *testing.T) {
	t.Parallel()
	due, err := schemas.ParseDue([]byte(dueWide))
	if err != nil {
		t.Fatal(err)
	}
	table := evidence.CoveredTable{OID: target.OID, Table: "public.sessions_1", Root: "public.sessions", MovesBy: []string{"Plan"}, Due: due}
	other := *wide
	other.OID = child.OID
	there := evidence.CoveredTable{OID: other.OID, Table: "public.sessions_2", Root: "public.sessions", MovesBy: []string{"Plan"}}
	a := assembler(evidence.Standing{Tables: []evidence.CoveredTable{table, there}})
	move := []*replication.Change{wideRow(lately), insert(&other, wideRow(lately).Old)}
	_, outcome := assemble(a, append(move, wideRow(longAgo))...)
	all := outcome.Account.Tallies
	if len(all) != 2 || all[0].Op != evidence.Delete || all[0].Events != 1 || all[0].Judged != 1 || all[0].Due != 1 || all[1].Op != evidence.Move || all[1].Judged != 0 {
		t.Errorf("%+v", all)
	}
	_, outcome = assemble(a, move...)
	if all = outcome.Account.Tallies; len(all) != 1 || all[0].Op != evidence.Move || all[0].Judged+all[0].NotDue != 0 {
		t.Errorf("%+v", all)
	}
}

// Wherever an auditor starts, it says of users' deletions what the one said that came by first. What it knows of the time before, it has from
// the log's records, and from the rows of lapse.covered up to the last heartbeat.
func TestUsersDeletionsAreJudgedAlikeAfterEachRestart(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		var covered []evidence.CoveredTable
		var first [][]byte
		standing, known := evidence.Standing{Unsettled: true}, 0
		all := drawnTransactions(seed)
		for _, tx := range all {
			for _, c := range tx {
				if c.Relation.Name == "covered" {
					text := func(name string) string {
						for i, column := range c.Relation.Columns {
							if column.Name == name && c.New[i].Kind == replication.Text {
								return string(c.New[i].Bytes)
							}
						}
						return ""
					}
					row, ok := evidence.NewCoveredTable(int64(len(covered)+1), target.OID, text("name"), "", "", 0, text("due"), text("where_is") == "t", false)
					if !ok {
						t.Fatal(text("name"))
					}
					covered = append(covered, row)
				}
			}
		}
		for start := range all {
			a := assembler(standing)
			for i, tx := range drawnTransactions(seed)[start:] { // made anew: reading overwrites them
				lines, records := recordsOf(t, a, tx)
				if i == 0 {
					for _, record := range records {
						if record.Heartbeat != nil {
							standing.Last = evidence.LastBeat{Beat: record.Heartbeat, Reach: evidence.EndOf(exampleTx())}
						}
						if s := record.Settling(); s != evidence.SaysNothing {
							standing.Unsettled = s == evidence.Unsettled
						}
					}
				}
				if start == 0 {
					first = append(first, lines)
				} else if !bytes.Equal(lines, first[start+i]) {
					t.Fatalf("seed %d: transaction %d after a start at %d is\n%s\nwant\n%s", seed, start+i, start, lines, first[start+i])
				}
			}
			for _, c := range all[start] {
				if c.Relation.Name == "covered" {
					known++
				}
			}
			standing.Tables = covered[:known]
		}
	}
}

// drawnTransactions are transactions of users, of people who change policies, and of heartbeats.
func drawnTransactions(seed uint64) (all [][]*replication.Change) {
	d := rand.New(rand.NewPCG(seed, 25))
	number := 0
	for range 12 {
		var tx []*replication.Change
		if d.IntN(2) == 0 {
			tx = append(tx, wideRow(longAgo), wideRow(lately))
		}
		if d.IntN(3) == 0 {
			tx = append(tx, []*replication.Change{
				stateRow("paused"), stateRow("dropped"), versionRow(), changedRow(gateTable, gateRow(3, "armed", "1"), gateRow(4, "armed", "1")),
			}[d.IntN(4)])
		}
		beat := aBeat()
		if d.IntN(5) == 0 {
			beat.Former = uuid.UUID{1} // one is missing
		}
		if d.IntN(4) == 0 {
			number++
			tx = append(tx, dueRow(number, []any{dueWide, nil}[d.IntN(2)], d.IntN(2) == 0))
			beat.Covered = int64(number)
			tx = append(tx, heard(beat))
		} else if beat.Covered = int64(number); d.IntN(3) == 0 {
			tx = append(tx, []*replication.Change{heard(beat), unsettledBeat()}[d.IntN(2)])
		}
		if d.IntN(3) == 0 {
			tx = append(tx, wideRow(longAgo))
		}
		all = append(all, tx)
	}
	return all
}

// recordsOf are the records of a transaction.
func recordsOf(t *testing.T, a *evidence.Assembler, changes []*replication.Change) (text []byte, records []*evidence.LogRecord) {
	t.Helper()
	_, outcome := assemble(a, changes...)
	writer := evidence.NewLogWriter(&exampleRoute, evidencetest.HashKey, uuid.UUID{}, nil)
	for i, content := range outcome.Records {
		if m, is := content.(*evidence.TransactionContent); is {
			m.Rows = nil
		}
		value := writer.Write(content, evidence.LogPosition{Seq: uint32(i)}, false).Value
		record, err := evidence.ParseLogRecord(value)
		if err != nil {
			t.Fatal(err)
		}
		text, records = append(append(text, value...), '\n'), append(records, record)
	}
	return text, records
}
