package audit_test

import (
	"testing"

	"lapse/schemas"
)

func TestEveryDeletionIsInItsTopicUnderItsCause(t *testing.T) {
	onEach(t, everyCause)
}

func everyCause(t *testing.T, r *rig) {
	t.Helper()
	ctx, want := t.Context(), newExpected()
	w := &writer{conn: r.db.Connect(t)}
	take := func(n int) []int64 {
		ids, err := w.rows(ctx, n)
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	run := r.start(t)
	eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
	for _, tx := range []transaction{
		batch(take(5), nil), user(take(3)), forger(take(2)), emptier,
		batch(take(2), func(c *schemas.Claim) { c.Policy = "another" }), intruder(take(4)), latecomer(take(3)),
		batch(take(1), nil),
	} {
		if err := w.commit(ctx, want, tx); err != nil {
			t.Fatal(err)
		}
	}
	r.catchUp(t, w.conn)
	run.end(t)
	r.verify(t, want)
}
