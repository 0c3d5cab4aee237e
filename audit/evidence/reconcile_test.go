package evidence_test

import (
	"testing"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/replication"
)

func TestATransactionMatchesOnlyIfTheWALShowsWhatTheLedgerClaims(t *testing.T) {
	t.Parallel()
	claim := exampleClaim()
	other := exampleClaim()
	other.Batch = uuid.MustParse("0198f1d0-0000-7000-8000-00000000000f")
	unreadable := resultRow(claim, 1)
	unreadable.New[3] = row(`{"x": 1}`)[0]
	twice := resultRow(claim, 1)
	picked := resultRow(claim, 1)
	picked.New[1] = row(0)[0]
	lessOnTarget := resultRow(claim, 1)
	lessOnTarget.New[1], lessOnTarget.New[2] = row(2)[0], row(2)[0]
	for _, test := range []struct {
		name    string
		changes []*replication.Change
		want    evidence.Verdict
	}{
		{"rows and cascades as claimed", []*replication.Change{signed(claim), del(target, 1), del(child, 1, 1), resultRow(claim, 1, 1)}, evidence.Match},
		{"nothing claimed to be deleted, nothing seen", []*replication.Change{signed(claim), resultRow(claim)}, evidence.Match},
		{"a user's deletes", []*replication.Change{del(target, 1)}, evidence.Unclaimed},
		{"a claim that does not verify", []*replication.Change{batchRow(claim, nil), del(target, 1), resultRow(claim, 1)}, evidence.Unclaimed},
		{"fewer seen than claimed", []*replication.Change{signed(claim), del(target, 1), resultRow(claim, 2)}, evidence.Mismatch},
		{"more seen than claimed", []*replication.Change{signed(claim), del(target, 1), del(target, 2), resultRow(claim, 1)}, evidence.Mismatch},
		{"a cascade that was not claimed", []*replication.Change{signed(claim), del(target, 1), del(child, 1, 1), resultRow(claim, 1)}, evidence.Mismatch},
		{"a cascade that was not seen", []*replication.Change{signed(claim), del(target, 1), resultRow(claim, 1, 3)}, evidence.Mismatch},
		{"no result", []*replication.Change{signed(claim), del(target, 1)}, evidence.Mismatch},
		{"a result of another batch", []*replication.Change{signed(claim), del(target, 1), resultRow(other, 1)}, evidence.Mismatch},
		{"a result that cannot be read", []*replication.Change{signed(claim), del(target, 1), unreadable}, evidence.Mismatch},
		{"a second result", []*replication.Change{signed(claim), del(target, 1), resultRow(claim, 1), twice}, evidence.Mismatch},
		{"a second batch", []*replication.Change{signed(claim), del(target, 1), resultRow(claim, 1), signed(claim)}, evidence.Mismatch},
		{"a delete elsewhere", []*replication.Change{signed(claim), del(target, 1), del(stranger, 1), resultRow(claim, 1)}, evidence.Mismatch},
		{"a delete after the result", []*replication.Change{signed(claim), del(target, 1), resultRow(claim, 1), del(target, 2)}, evidence.Mismatch},
		{"a truncate", []*replication.Change{signed(claim), truncate(child), resultRow(claim)}, evidence.Mismatch},
		{"fewer picked than deleted", []*replication.Change{signed(claim), del(target, 1), picked}, evidence.Mismatch},
		{"two counts of the target that differ", []*replication.Change{signed(claim), del(target, 1), lessOnTarget}, evidence.Mismatch},
	} {
		if got := evidence.Reconcile(accountOf(test.changes...)); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}

func TestCountsAreKeptPerTableAndCause(t *testing.T) {
	t.Parallel()
	claim := exampleClaim()
	a := accountOf(signed(claim), del(target, 1), del(child, 1, 1), del(target, 2), del(child, 2, 1), resultRow(claim, 2, 2),
		del(target, 3), truncate(target))
	want := []evidence.Tally{
		{OID: target.OID, Table: "public.sessions", Op: evidence.Delete, Cause: evidence.System, Events: 2},
		{OID: child.OID, Table: "public.session_notes", Op: evidence.Delete, Cause: evidence.System, Cascade: true, Events: 2},
		{OID: target.OID, Table: "public.sessions", Op: evidence.Delete, Cause: evidence.Unverified, Events: 1},
		{OID: target.OID, Table: "public.sessions", Op: evidence.Truncate, Cause: evidence.Unverified, Events: 1},
	}
	if len(a.Tallies) != len(want) {
		t.Fatalf("tallies %+v", a.Tallies)
	}
	for i := range want {
		if a.Tallies[i] != want[i] {
			t.Errorf("tally %d is %+v, want %+v", i, a.Tallies[i], want[i])
		}
	}
}

func TestATransactionIsRecordedIfItHasEventsOrSpeaksOfABatch(t *testing.T) {
	t.Parallel()
	claim := exampleClaim()
	for _, test := range []struct {
		name     string
		change   *replication.Change
		recorded bool
		awaited  bool
	}{
		{"a delete", del(target, 1), true, false},
		{"a batch", signed(claim), true, false},
		{"a batch that does not verify", batchRow(claim, nil), true, false},
		{"a result", resultRow(claim), true, false},
		{"a policy's state", insert(stateRelation, row(1, 1, "armed")), false, false},
		{"a heartbeat", insert(beatRelation, row(1, "")), false, true},
		{"an insert", insert(target, row(1, nil)), false, false},
	} {
		a := accountOf(test.change)
		if a.Recorded() != test.recorded || a.Awaited != test.awaited {
			t.Errorf("%s: recorded %v, awaited %v", test.name, a.Recorded(), a.Awaited)
		}
	}
}
