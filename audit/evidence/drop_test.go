package evidence_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

var droppedRelation = relation(16140, "lapse", "dropped", "batch*", "policy_id", "policy", "policy_version", "run", "cutoff",
	"hold_version", "target", "cascades", "functions", "system_identifier", "database_oid", "history",
	"timeline", "xid", "started_at", "mac", "relation", "root", "rows", "oldest", "newest", "dropped_at")

// droppedRow is the row of lapse.dropped that PostgreSQL writes for a claim and a MAC.
func droppedRow(c schemas.Claim, mac []byte) *replication.Change {
	change := batchRow(c, mac)
	return insert(droppedRelation, append(change.New, row("public.sessions_2026_09", `public.sessions`, 120,
		"2026-09-01 00:00:00+00", "2026-09-30 23:59:59.999999+00", "2026-11-21 10:15:30.1+00")...))
}

func dropped(c schemas.Claim) *replication.Change {
	return droppedRow(c, c.DropMAC(evidencetest.TagKey))
}

// with replaces the value of a column of a dropped partition's row.
func with(change *replication.Change, column string, value any) *replication.Change {
	at := slices.IndexFunc(change.Relation.Columns, func(c replication.Column) bool { return c.Name == column })
	change.New[at] = row(value)[0]
	return change
}

// Where there is more than one thing wrong with a drop the test would not tell which is seen: so each has one.
func TestAPartitionIsDroppedByAPolicyOnlyIfTheFirstChangeProvesIt(t *testing.T) {
	t.Parallel()
	claim := exampleClaim()
	fixed := func(fix func(*schemas.Claim)) *replication.Change {
		c := claim
		fix(&c)
		return dropped(c)
	}
	elsewhere := fixed(func(c *schemas.Claim) { c.XID++ })
	for _, test := range []struct {
		name    string
		changes []*replication.Change
		want    string
		verdict evidence.Verdict
		own     bool // it is the functions', without the key
	}{
		{"a drop", []*replication.Change{dropped(claim)}, "S", evidence.Match, false},
		{"a drop of a partition with rows of the year -44", []*replication.Change{with(dropped(claim), "oldest", "0044-03-15 00:00:00+00 BC")}, "S", evidence.Match, false},
		{"what is deleted after it", []*replication.Change{dropped(claim), del(target, 1), truncate(child)}, "SxX", evidence.Mismatch, false},
		{"a second one", []*replication.Change{dropped(claim), dropped(claim)}, "S", evidence.Mismatch, false},
		{"a second one that is forged", []*replication.Change{dropped(claim), droppedRow(claim, nil)}, "S", evidence.Mismatch, true},
		{"a batch after it", []*replication.Change{dropped(claim), signed(claim), del(target, 1)}, "Sx", evidence.Mismatch, false},
		{"a result after it", []*replication.Change{dropped(claim), resultRow(claim, 1)}, "S", evidence.Mismatch, false},
		{"a drop within a batch", []*replication.Change{signed(claim), del(target, 1), dropped(claim), del(target, 2), resultRow(claim, 1)}, "sx", evidence.Mismatch, false},
		{"after somebody's own delete", []*replication.Change{del(target, 1), dropped(claim), del(target, 2)}, "ux", evidence.Unclaimed, false},
		{"after a policy's state", []*replication.Change{insert(stateRelation, row(1, 1, "armed")), dropped(claim)}, "", evidence.Unclaimed, false},
		{"signed with another key", []*replication.Change{droppedRow(claim, claim.DropMAC(otherKey)), del(target, 1)}, "x", evidence.Unclaimed, true},
		{"signed to delete rows", []*replication.Change{droppedRow(claim, claim.MAC(evidencetest.TagKey))}, "", evidence.Unclaimed, true},
		{"not signed", []*replication.Change{droppedRow(claim, nil)}, "", evidence.Unclaimed, true},
		{"another partition than was signed", []*replication.Change{with(dropped(claim), "target", child.OID)}, "", evidence.Unclaimed, true},
		{"another transaction's", []*replication.Change{elsewhere}, "", evidence.Unclaimed, false},
		{"another transaction's, made to be of this one", []*replication.Change{with(fixed(func(c *schemas.Claim) { c.XID++ }), "xid", claim.XID)}, "", evidence.Unclaimed, true},
		{"another database's", []*replication.Change{fixed(func(c *schemas.Claim) { c.DatabaseOID++ })}, "", evidence.Unclaimed, false},
		{"another history's", []*replication.Change{fixed(func(c *schemas.Claim) { c.History++ })}, "", evidence.Unclaimed, false},
		{"another timeline's", []*replication.Change{fixed(func(c *schemas.Claim) { c.Timeline++ })}, "", evidence.Unclaimed, false},
		{"another day's", []*replication.Change{fixed(func(c *schemas.Claim) { c.StartedAt = commitTime.Add(-25 * time.Hour) })}, "", evidence.Unclaimed, false},
		{"no name", []*replication.Change{with(dropped(claim), "relation", "sessions")}, "", evidence.Unclaimed, false},
		{"no rows", []*replication.Change{with(dropped(claim), "rows", 0)}, "", evidence.Unclaimed, false},
		{"a batch that is signed to drop", []*replication.Change{batchRow(claim, claim.DropMAC(evidencetest.TagKey)), del(target, 1)}, "x", evidence.Unclaimed, false},
	} {
		var account *evidence.Account
		if got := string(classifyAll(&account, test.changes...)); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
		if got := evidence.Reconcile(account); got != test.verdict {
			t.Errorf("%s: the verdict is %s, want %s", test.name, got, test.verdict)
		}
		if (account.OwnUnverified != nil) != test.own {
			t.Errorf("%s: told of %v, want %t", test.name, account.OwnUnverified, test.own)
		}
		if !account.Recorded() || account.Unverified() == (test.verdict == evidence.Match) && test.name != "a result after it" {
			t.Errorf("%s: recorded %t, unverified %t", test.name, account.Recorded(), account.Unverified())
		}
	}
}

// It is in every partition of the topic of what policies delete, and in the log after its transaction.
func TestADropIsAnEventInEveryPartitionAndARecord(t *testing.T) {
	t.Parallel()
	route := exampleRoute
	route.System.Partitions, route.User.Partitions = 7, 3
	routed := eventOf(t, &route, exampleTx(), dropped(exampleClaim()))
	if want := []int32{0, 1, 2, 3, 4, 5, 6}; !slices.Equal(routed.Partitions, want) || routed.Topic != route.System.Name || string(routed.Key) != "{}" {
		t.Errorf("key %s in partitions %v of %s", routed.Key, routed.Partitions, routed.Topic)
	}
	if routed := eventOf(t, &route, exampleTx(), truncate(target)); len(routed.Partitions) != 3 {
		t.Errorf("a truncate is in partitions %v of three", routed.Partitions)
	}
	events, outcome := assemble(assembler(evidence.Standing{}), dropped(exampleClaim()), del(target, 1))
	if want := []string{"0 system public.sessions_2026_09", "1 unverified public.sessions id=1"}; !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
	var kinds []string
	for _, record := range outcome.Records {
		kinds = append(kinds, string(record.Kind()))
	}
	if got := strings.Join(kinds, " "); got != "transaction drop" || outcome.Verdict != evidence.Mismatch {
		t.Errorf("records %s, %s", got, outcome.Verdict)
	}
	if events, outcome := assemble(assembler(evidence.Standing{}), droppedRow(exampleClaim(), nil)); len(events) != 0 || len(outcome.Records) != 1 {
		t.Errorf("a forged one: events %q, %d records", events, len(outcome.Records))
	}
}

func TestANameIsReadAsPostgreSQLWritesIt(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`public.parts`:             "public parts",
		`public."user"`:            "public user",
		`"Sh.op"."Orders ""old"""`: `Sh.op Orders "old"`,
		`"größe"."a.""b""".c`:      "",
		`public`:                   "",
		`.parts`:                   "",
		`public.`:                  "",
		`"public.parts`:            "",
		`"".parts`:                 "",
		`public."parts"x`:          "",
	} {
		schema, name, ok := evidence.ParseQualified(text)
		if got := schema + " " + name; ok != (want != "") || ok && got != want {
			t.Errorf("%s: %s, %t", text, got, ok)
		}
	}
}
