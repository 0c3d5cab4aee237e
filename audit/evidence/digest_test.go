package evidence_test

import (
	"slices"
	"strings"
	"testing"

	"lapse/replication"
	"lapse/schemas"
)

// The digest of what ran is a part of the claim. The claim here is signed with a digest of zeros, which is what a reader
// that fills in for missing bytes, or overlooks more, would make of all these.
func TestABatchWithoutAWholeDigestOfItsFunctionsIsUnverified(t *testing.T) {
	t.Parallel()
	claim := exampleClaim()
	claim.Functions = schemas.Digest{}
	at := slices.IndexFunc(batchRelation.Columns, func(c replication.Column) bool { return c.Name == "functions" })
	digest := string(signed(claim).New[at].Bytes)
	with := func(value any) *replication.Change {
		change := signed(claim)
		change.New[at] = row(value)[0]
		return change
	}
	former := *batchRelation
	former.Columns = slices.Delete(slices.Clone(former.Columns), at, at+1)
	for _, test := range []struct {
		name  string
		batch *replication.Change
		want  string
	}{
		{"the digest that was signed", with(digest), "s"},
		{"another digest", with(digest[:len(digest)-1] + "1"), "x"},
		{"no digest", with(nil), "x"},
		{"an empty one", with(`\x`), "x"},
		{"one of 31 bytes", with(digest[:len(digest)-2]), "x"},
		{"one of 33 bytes", with(digest + "00"), "x"},
		{"one that is no bytes", with(strings.TrimPrefix(digest, `\x`)), "x"},
		{"a catalog without the column", insert(&former, slices.Delete(signed(claim).New, at, at+1)), "x"},
	} {
		if got := classify(test.batch, del(target, 1)); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}
