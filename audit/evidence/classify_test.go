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

// classify returns what the classifier says of each change that is an event, in letters: s system, c system by cascade,
// u user, x unverified; in upper case for a truncate or a drop.
func classify(changes ...*replication.Change) string { return string(classifyAll(nil, changes...)) }

func classifyAll(account **evidence.Account, changes ...*replication.Change) []byte {
	c := evidence.NewClassifier(source, []schemas.Key{evidencetest.TagKey})
	c.Begin(exampleTx())
	var out []byte
	for i, change := range changes {
		change.Ordinal = uint32(i)
		out = append(out, letterOf(c.Classify(change))...)
	}
	if account != nil {
		*account = c.Account()
	}
	return out
}

// letterOf is empty for what is no event.
func letterOf(f evidence.Finding) string {
	letter := map[evidence.Cause]string{evidence.System: "s", evidence.User: "u", evidence.Unverified: "x"}[f.Cause]
	switch {
	case f.Op == evidence.None:
		return ""
	case f.Cascade:
		letter = "c"
	}
	if f.Op == evidence.Truncate || f.Op == evidence.Drop {
		letter = strings.ToUpper(letter)
	}
	return letter
}

// changed returns a claim that fix has changed, signed with the right key, so that only the change can be what is wrong.
func changed(fix func(*schemas.Claim)) *replication.Change {
	c := exampleClaim()
	fix(&c)
	return signed(c)
}

func TestTheFirstPublishedChangeDecides(t *testing.T) {
	t.Parallel()
	claim := exampleClaim()
	otherKey := schemas.Key(slices.Repeat([]byte{8}, schemas.MinKey))
	broken := func(column int, text string) *replication.Change {
		change := signed(claim)
		change.New[column] = row(text)[0]
		return change
	}
	entered := row(9, 1, "sessions-30d", 16390, "public.sessions", 1, 0, examplePlan, "lapse")
	null := signed(claim)
	null.New[3] = row(nil)[0]
	unsent := signed(claim)
	unsent.New = unsent.New[:5]
	altered := claim
	altered.Functions[31] ^= 1
	for _, test := range []struct {
		name    string
		changes []*replication.Change
		want    string
	}{
		{"a batch that proves itself", []*replication.Change{signed(claim), del(target, 1), del(child, 1, 1), del(target, 2)}, "scs"},
		{"nothing of the ledger", []*replication.Change{del(target, 1), del(child, 1, 1), truncate(target)}, "uuU"},
		{"an insert of the user's", []*replication.Change{insert(target, row(1, nil)), del(target, 1)}, "u"},
		{"a batch signed with another key", []*replication.Change{batchRow(claim, claim.MAC(otherKey)), del(target, 1)}, "x"},
		{"a batch without a MAC", []*replication.Change{batchRow(claim, nil), del(target, 1)}, "x"},
		{
			"a batch of another system",
			[]*replication.Change{changed(func(c *schemas.Claim) { c.SystemIdentifier++ }), del(target, 1)},
			"x",
		},
		{
			"a batch of another database",
			[]*replication.Change{changed(func(c *schemas.Claim) { c.DatabaseOID++ }), del(target, 1)},
			"x",
		},
		{
			"a batch of another transaction",
			[]*replication.Change{changed(func(c *schemas.Claim) { c.XID++ }), del(target, 1)},
			"x",
		},
		{
			"a batch of another epoch of the transaction ids, which the WAL cannot tell apart",
			[]*replication.Change{changed(func(c *schemas.Claim) { c.XID += 1 << 32 }), del(target, 1)},
			"s",
		},
		{
			"a batch that started a day and more before the commit",
			[]*replication.Change{changed(func(c *schemas.Claim) { c.StartedAt = commitTime.Add(-24*time.Hour - 1000) }), del(target, 1)},
			"x",
		},
		{
			"a batch that started a day before the commit",
			[]*replication.Change{changed(func(c *schemas.Claim) { c.StartedAt = commitTime.Add(-24 * time.Hour) }), del(target, 1)},
			"s",
		},
		{
			"a batch from the future",
			[]*replication.Change{changed(func(c *schemas.Claim) { c.StartedAt = commitTime.Add(24*time.Hour + 1000) }), del(target, 1)},
			"x",
		},
		{"a batch with a NULL", []*replication.Change{null, del(target, 1)}, "x"},
		{"a batch with too few columns", []*replication.Change{unsent, del(target, 1)}, "x"},
		{"a batch with a time that is none", []*replication.Change{broken(5, "infinity"), del(target, 1)}, "x"},
		{"a batch with an array that is none", []*replication.Change{broken(8, "{1,x}"), del(target, 1)}, "x"},
		{"a batch with a MAC that is no bytes", []*replication.Change{broken(14, `\xzz`), del(target, 1)}, "x"},
		{"a batch whose functions have another digest than was signed", []*replication.Change{batchRow(altered, claim.MAC(evidencetest.TagKey)), del(target, 1)}, "x"},
		{"a policy before the batch", []*replication.Change{insert(stateRelation, row(1, 1, "armed")), signed(claim), del(target, 1)}, "x"},
		{"rows that enter the quarantine before the batch", []*replication.Change{insert(quarantineTable, entered), signed(claim), del(target, 1)}, "s"},
		{"rows that leave it after a user's delete", []*replication.Change{del(target, 1), insert(quarantineTable, entered), signed(claim), del(target, 1)}, "ux"},
		{"rows that enter it, a user's delete, and a batch", []*replication.Change{insert(quarantineTable, entered), del(target, 1), signed(claim), del(target, 2)}, "ux"},
		{"rows that enter it, and a user's delete", []*replication.Change{insert(quarantineTable, entered), del(target, 1)}, "u"},
		{"a heartbeat before a delete", []*replication.Change{insert(beatRelation, row(1, "")), del(target, 1)}, "u"},
		{"a result without a batch", []*replication.Change{resultRow(claim, 1), del(target, 1)}, "u"},
	} {
		if got := classify(test.changes...); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestWhatAClaimDoesNotCoverIsUnverified(t *testing.T) {
	t.Parallel()
	claim := exampleClaim()
	for _, test := range []struct {
		name    string
		changes []*replication.Change
		want    string
	}{
		{"a table that it does not list", []*replication.Change{signed(claim), del(target, 1), del(stranger, 1), del(child, 1, 1)}, "sxc"},
		{"what follows its result", []*replication.Change{signed(claim), del(target, 1), resultRow(claim, 1), del(target, 2), del(child, 2, 1)}, "sxx"},
		{"a second batch and what follows", []*replication.Change{signed(claim), del(target, 1), signed(claim), del(target, 2)}, "sx"},
		{"a batch after its result", []*replication.Change{signed(claim), resultRow(claim, 0), signed(claim), del(target, 2)}, "x"},
		{"a batch after a user's own deletes", []*replication.Change{del(target, 1), signed(claim), del(target, 2)}, "ux"},
		{"a truncate", []*replication.Change{signed(claim), truncate(target), del(target, 1)}, "Xs"},
		{"a result does not bring USER to an end", []*replication.Change{del(target, 1), resultRow(claim, 1), del(target, 2)}, "uu"},
		{"other rows of the ledger change nothing", []*replication.Change{signed(claim), insert(stateRelation, row(1, 1, "armed")), del(target, 1)}, "s"},
		{"a delete in the ledger itself", []*replication.Change{signed(claim), del(batchRelation, claim.Batch)}, "x"},
	} {
		if got := classify(test.changes...); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestAClaimVerifiesUnderAnyOfTheKeys(t *testing.T) {
	t.Parallel()
	old := schemas.Key(slices.Repeat([]byte{9}, schemas.MinKey))
	claim := exampleClaim()
	c := evidence.NewClassifier(source, []schemas.Key{evidencetest.TagKey, old})
	c.Begin(exampleTx())
	c.Classify(batchRow(claim, claim.MAC(old)))
	if f := c.Classify(del(target, 1)); f.Cause != evidence.System {
		t.Errorf("a claim under the second key is %v", f.Cause)
	}
}

func TestNothingOfATransactionIsLeftInTheNext(t *testing.T) {
	t.Parallel()
	c := evidence.NewClassifier(source, []schemas.Key{evidencetest.TagKey})
	c.Begin(exampleTx())
	c.Classify(signed(exampleClaim()))
	c.Begin(exampleTx())
	if f := c.Classify(del(target, 1)); f.Cause != evidence.User || c.Claim() != nil {
		t.Errorf("a delete after another transaction's claim is %v", f.Cause)
	}
	if a := c.Account(); a.Batches != 0 || a.Claim != nil || len(a.Tallies) != 1 {
		t.Errorf("the account has more than the transaction: %+v", *a)
	}
}
