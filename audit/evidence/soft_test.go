package evidence_test

import (
	"testing"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

// softly makes a batch row that says that the batch sets a column.
func softly(batch *replication.Change, is string) *replication.Change {
	described := *batch.Relation
	described.Columns = append(append([]replication.Column{}, described.Columns...), replication.Column{Name: "soft", TypeOID: 16, TypeMod: -1})
	batch.Relation, batch.New = &described, append(batch.New, row(is)...)
	return batch
}

// set is an update that leaves the key alone: the server sends no old row.
func set(r *replication.Relation, values ...any) *replication.Change {
	return &replication.Change{Op: replication.OpUpdate, Relation: r, New: row(values...)}
}

// softClaim is that of a batch that sets a column: nothing is deleted by cascade.
func softClaim() schemas.Claim {
	c := exampleClaim()
	c.Cascades = nil
	return c
}

func TestAnUpdateIsAnEventOnlyUnderAClaimToSetAColumnOfItsTable(t *testing.T) {
	t.Parallel()
	c := softClaim()
	soft := func() *replication.Change { return softly(signed(c), "t") }
	elsewhere := c
	elsewhere.XID++
	for _, test := range []struct {
		name    string
		changes []*replication.Change
		want    string
	}{
		{"updates of the target", []*replication.Change{soft(), set(target, 1, "x"), set(target, 2, "x")}, "ss"},
		{"an update of another table", []*replication.Change{soft(), set(child, 1, 1, "x"), set(target, 2, "x")}, "s"},
		{"deletes where rows are only set", []*replication.Change{soft(), del(target, 1), set(target, 2, "x"), del(child, 1, 1)}, "xsx"},
		{"an insert", []*replication.Change{soft(), insert(target, row(1, nil))}, ""},
		{"an update after the result", []*replication.Change{soft(), set(target, 1, "x"), resultRow(c, 1), set(target, 2, "x"), del(target, 2)}, "sx"},
		{"a batch that deletes", []*replication.Change{softly(signed(c), "f"), del(target, 1), set(target, 2, "x")}, "s"},
		{"a batch of a former catalog", []*replication.Change{signed(c), del(target, 1), set(target, 2, "x")}, "s"},
		{"a batch that does not verify", []*replication.Change{softly(batchRow(c, nil), "t"), set(target, 1, "x"), set(child, 1, 1, "x"), resultRow(c, 1), set(target, 2, "x"), del(target, 2)}, "xx"},
		{"a batch that does not verify and deletes", []*replication.Change{softly(batchRow(c, nil), "f"), set(target, 1, "x"), del(target, 2)}, "x"},
		{"another transaction's batch", []*replication.Change{softly(signed(elsewhere), "t"), set(target, 1, "x"), del(target, 2)}, "x"},
		{"a second batch after a true one", []*replication.Change{soft(), set(target, 1, "x"), softly(batchRow(c, nil), "t"), softly(signed(elsewhere), "t"), set(target, 2, "x")}, "s"},
		{"a user's update", []*replication.Change{set(target, 1, "x"), del(target, 1)}, "u"},
	} {
		if got := classify(test.changes...); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestABatchThatSetsAColumnIsReconciledByItsUpdates(t *testing.T) {
	t.Parallel()
	c := softClaim()
	for _, test := range []struct {
		name    string
		changes []*replication.Change
		want    evidence.Verdict
	}{
		{"as many as claimed", []*replication.Change{softly(signed(c), "t"), set(target, 1, "x"), set(target, 2, "x"), resultRow(c, 2)}, evidence.Match},
		{"fewer", []*replication.Change{softly(signed(c), "t"), set(target, 1, "x"), resultRow(c, 2)}, evidence.Mismatch},
		{"one deleted", []*replication.Change{softly(signed(c), "t"), set(target, 1, "x"), del(target, 2), resultRow(c, 2)}, evidence.Mismatch},
	} {
		a := evidence.NewAssembler(source, []schemas.Key{evidencetest.TagKey}, evidence.Standing{})
		tx := exampleTx()
		a.Begin(tx)
		for i, change := range test.changes {
			change.Ordinal = uint32(i)
			a.Change(change)
			drain(a)
		}
		if got := a.Commit(tx, nil).Verdict; got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// What names the row is in the new one, unless the update changed it.
func TestASoftDeleteIsNamedByItsKey(t *testing.T) {
	t.Parallel()
	rekeyed := set(target, 43, "x")
	rekeyed.Old, rekeyed.OldIsKey = del(target, 42).Old, true
	whole := *target
	whole.ReplicaIdentity = 'f'
	for name, test := range map[string]struct {
		change *replication.Change
		key    string
	}{
		"the key left alone":    {set(target, 42, "x"), `{"id":"42"}`},
		"the key changed":       {rekeyed, `{"id":"42"}`},
		"identity full":         {set(&whole, 42, "x"), `{}`},
		"a row that is too big": {&replication.Change{Op: replication.OpUpdate, Relation: target, New: del(target).Old}, `{}`},
	} {
		got := eventOf(t, &exampleRoute, exampleTx(), softly(signed(softClaim()), "t"), test.change)
		if string(got.Key) != test.key || got.Topic != exampleRoute.System.Name {
			t.Errorf("%s: key %s in %s", name, got.Key, got.Topic)
		}
	}
}
