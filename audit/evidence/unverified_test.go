package evidence_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

var otherKey = schemas.Key(slices.Repeat([]byte{8}, schemas.MinKey))

func TestABatchOfTheFunctionsThatDoesNotVerifyIsTold(t *testing.T) {
	t.Parallel()
	claim, other := exampleClaim(), exampleClaim()
	other.Batch = uuid.MustParse("0198f1d0-0000-7000-8000-00000000000f")
	// fixed is a claim that fix has changed, signed with another key.
	fixed := func(fix func(*schemas.Claim)) *replication.Change {
		c := claim
		fix(&c)
		return batchRow(c, c.MAC(otherKey))
	}
	column := func(name, text string) *replication.Change {
		change := signed(claim)
		at := slices.IndexFunc(batchRelation.Columns, func(c replication.Column) bool { return c.Name == name })
		change.New[at] = row(text)[0]
		return change
	}
	foreign := batchRow(claim, claim.MAC(otherKey))
	result := resultRow(claim, 1)
	for _, test := range []struct {
		name    string
		changes []*replication.Change
		want    bool
	}{
		{"a batch with its result, signed with another key", []*replication.Change{foreign, del(target, 1), result}, true},
		{"one that deleted nothing", []*replication.Change{foreign, result}, true},
		{"one that says it is of another system", []*replication.Change{fixed(func(c *schemas.Claim) { c.SystemIdentifier++ }), del(target, 1), result}, true},
		{"one whose system is no number", []*replication.Change{column("system_identifier", "x"), del(target, 1), result}, true},
		{"one in a format that cannot be read", []*replication.Change{column("cutoff", "soon"), del(target, 1), result}, true},
		{"one with an altered digest", []*replication.Change{column("functions", `\x00`), del(target, 1), result}, true},
		{"one after somebody's own delete", []*replication.Change{del(target, 2), foreign, del(target, 1), result}, true},
		{"one after a batch that verifies", []*replication.Change{signed(other), resultRow(other), foreign, del(target, 1), result}, true},
		{"a batch that verifies", []*replication.Change{signed(claim), del(target, 1), result}, false},
		{"a batch that verifies, after somebody's own delete", []*replication.Change{del(target, 2), signed(claim), del(target, 1), result}, false},
		{"a row by hand, without a result", []*replication.Change{foreign, del(target, 1)}, false},
		{"a row by hand, with another batch's result", []*replication.Change{foreign, del(target, 1), resultRow(other, 1)}, false},
		{"a result before the batch", []*replication.Change{result, foreign, del(target, 1)}, false},
		{"a result alone", []*replication.Change{del(target, 1), result}, false},
		{"another transaction's batch, as a restored ledger has them", []*replication.Change{fixed(func(c *schemas.Claim) { c.XID++ }), del(target, 1), result}, false},
		{"another database's", []*replication.Change{fixed(func(c *schemas.Claim) { c.DatabaseOID++ }), del(target, 1), result}, false},
		{"another day's", []*replication.Change{fixed(func(c *schemas.Claim) { c.StartedAt = commitTime.Add(-25 * time.Hour) }), del(target, 1), result}, false},
	} {
		got := accountOf(test.changes...).OwnUnverified
		if (got != nil) != test.want || got != nil && *got != claim.Batch {
			t.Errorf("%s: told of %v, want %v", test.name, got, test.want)
		}
	}
}

func TestNothingOfAnUnverifiedBatchIsLeftInTheNextTransaction(t *testing.T) {
	t.Parallel()
	claim := exampleClaim()
	c := evidence.NewClassifier(source, []schemas.Key{evidencetest.TagKey})
	c.Begin(exampleTx())
	c.Classify(batchRow(claim, claim.MAC(otherKey)))
	c.Begin(exampleTx())
	c.Classify(resultRow(claim, 1))
	if own := c.Account().OwnUnverified; own != nil {
		t.Errorf("told of batch %s of a transaction before", own)
	}
}
