package audit_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/audit"
	"lapse/audit/history"
	"lapse/internal/kafkatest"
	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// bender is a rig whose server's past can be bent, with the truth of what was deleted in each past.
type bender struct {
	*rig
	w *writer
	truth
	given map[string]int                    // what was given up last
	saved map[*pgserver.Copy]map[string]int // what had been deleted when a copy was taken
}

// bend runs a test on a server of its own for each of the majors.
func bend(t *testing.T, majors []int, test func(t *testing.T, b *bender), options ...pgtest.Option) {
	t.Helper()
	t.Parallel()
	pgtest.OnSolo(t, majors, func(t *testing.T, db *pgtest.DB) {
		test(t, newBender(t, newRig(t, db, kafkatest.Broker(t))))
	}, options...)
}

func newBender(t *testing.T, r *rig) *bender {
	t.Helper()
	return &bender{
		rig: r, w: &writer{conn: r.db.Connect(t)}, saved: map[*pgserver.Copy]map[string]int{},
		truth: truth{lives: map[string]int{}, lost: map[string]int{}},
	}
}

// hasty makes the watch for another auditor short.
func hasty(c *audit.Config) { c.HeartbeatEvery = 100 * time.Millisecond }

// run runs an auditor up to the current end of the WAL.
func (b *bender) run(t *testing.T, change ...func(*audit.Config)) {
	t.Helper()
	b.once(t, append([]func(*audit.Config){hasty}, change...)...)
}

// delete deletes rows, each kind in a transaction of its own, and takes them into the books.
func (b *bender) delete(t *testing.T, rows int, kinds ...func([]int64) transaction) {
	t.Helper()
	for _, kind := range kinds {
		ids, err := b.w.rows(t.Context(), rows)
		if err != nil {
			t.Fatal(err)
		}
		b.deleteAgain(t, ids, kind)
	}
}

// deleteAgain is delete for rows that are there.
func (b *bender) deleteAgain(t *testing.T, ids []int64, kind func([]int64) transaction) {
	t.Helper()
	did := newExpected()
	if err := b.w.commit(t.Context(), did, kind(ids)); err != nil {
		t.Fatal(err)
	}
	for key, cause := range did.causes {
		b.lives[key+" "+cause]++
	}
}

// stale is a batch under a history that is no longer in force above the fork: whatever its MAC says, it is unverified.
func stale(ids []int64) transaction {
	return func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		o, err := batch(ids, nil)(ctx, tx)
		o.causes = causesOf(ids, "unverified")
		return o, err
	}
}

// work deletes a little of everything, each row in one transaction of many, and beats.
func (b *bender) work(t *testing.T) {
	t.Helper()
	for range 3 {
		b.delete(t, 2, user, system)
	}
}

func (b *bender) beat(t *testing.T) {
	t.Helper()
	b.db.Exec(t, beatNow)
}

// snapshot copies the server, and the truth with it.
func (b *bender) snapshot(t *testing.T, how pgserver.How) *pgserver.Copy {
	t.Helper()
	copied := b.db.Snapshot(t, how)
	b.saved[copied] = maps.Clone(b.lives)
	return copied
}

// restore puts a copy in the server's place. What was deleted since then never happened; all of it must have been published.
func (b *bender) restore(t *testing.T, from *pgserver.Copy, changes ...pgserver.Change) {
	t.Helper()
	b.db.Restore(t, from, changes...)
	b.giveUp(b.saved[from])
	b.w.conn = b.db.Connect(t)
}

// giveUp takes the truth back to what it was.
func (b *bender) giveUp(saved map[string]int) {
	b.given = map[string]int{}
	for key, n := range b.lives {
		if n > saved[key] {
			b.given[key] = n - saved[key]
			b.lost[key] += n - saved[key]
		}
	}
	b.lives = maps.Clone(saved)
}

// records is how many records there are in all topics, fences included.
func (r *rig) records(t *testing.T) (n int) {
	t.Helper()
	for _, topic := range []string{r.settings.System, r.settings.User, r.settings.Log} {
		n += len(r.readAll(t, topic))
	}
	return n
}

// isBent wants the auditor to refuse as long as nobody has accepted, and to leave everything as it is.
func (b *bender) isBent(t *testing.T, change ...func(*audit.Config)) *history.Result {
	t.Helper()
	confirmed, records := b.confirmed(t, b.w.conn), b.records(t)
	err := b.tryOnce(t, append(change, hasty)...)
	var bent *history.BentError
	if !errors.As(err, &bent) {
		t.Fatalf("got %v, want a bent history", err)
	}
	found := b.check(t, change...)
	if found.Outcome != history.OutcomeBent || found.Why == "" {
		t.Errorf("the check says %s, %q", found.Outcome, found.Why)
	}
	if counted := lostCounts(found.LostEvents); !maps.Equal(counted, byCause(b.given)) {
		t.Errorf("the check counts %v as lost, really lost are %v", counted, byCause(b.given))
	}
	if after := b.confirmed(t, b.w.conn); after != confirmed {
		t.Errorf("the slot has moved from %s to %s", confirmed, after)
	}
	if n := b.records(t); n != records {
		t.Errorf("%d records were written", n-records)
	}
	t.Logf("bent: %s; fork %s, log %s, database %s", found.Why, found.Fork, found.LogEnd, found.Database)
	return found
}

func (b *bender) check(t *testing.T, change ...func(*audit.Config)) *history.Result {
	t.Helper()
	config := b.settings.config()
	for _, f := range change {
		f(&config)
	}
	found, err := audit.CheckHistory(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// accept is lapse history accept.
func (b *bender) accept(t *testing.T, found *history.Result) schemas.History {
	t.Helper()
	next := found.Highest + 1
	_, err := b.w.conn.Exec(t.Context(), `
		insert into lapse.history (number, log_end, fork, timeline, system_identifier, reason)
		values ($1, $2, $3, lapse.timeline(), lapse.system_identifier(), 'test')`,
		int32(next), found.LogEnd.String(), found.Fork.String())
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// settled runs the auditor to the end and holds everything against the truth.
func (b *bender) settled(t *testing.T, markers ...string) {
	t.Helper()
	b.run(t)
	b.work(t)
	b.beat(t)
	b.run(t)
	b.holds(t, markers...)
}

func (b *bender) holds(t *testing.T, markers ...string) {
	t.Helper()
	heard := b.listen(t)
	b.matches(t, heard)
	heard.wantMarkers(t, markers...)
}
