package audit_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"lapse/audit"
	"lapse/audit/history"
	"lapse/internal/fixture"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// gap is a gap or rewind record as a reader of the log sees it.
type gap struct {
	Kind, Reason string
	From, To     struct {
		History, Timeline uint32
		LSN               string
	}
}

func (r *rig) gaps(t *testing.T) (all []gap) {
	t.Helper()
	for _, record := range r.read(t, r.settings.Log) {
		var g gap
		if err := json.Unmarshal(record.Value, &g); err != nil {
			t.Fatal(err)
		}
		if g.Kind == "gap" || g.Kind == "rewind" {
			all = append(all, g)
		}
	}
	return all
}

// A change of what the publications publish can hide deletions, or make a system's delete a user's. The auditor notices
// it even if it was taken back at once, and what was deleted meanwhile lies in a gap.
func TestPublicationsThatSomebodyChangesAreAGap(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		r.once(t, r.beating(time.Minute)) // so that there are topics
		for name, change := range map[string]struct{ spoil, mend string }{
			"settings": {
				`alter publication lapse_deletes set (publish = 'insert')`, `alter publication lapse_deletes set (publish = 'delete, truncate')`,
			},
			"the ledger": {
				`alter publication lapse_ledger drop table lapse.batch`, `alter publication lapse_ledger add table lapse.batch`,
			},
			"heartbeats": {
				`alter publication lapse_ledger drop table lapse.heartbeat`, `alter publication lapse_ledger add table lapse.heartbeat`,
			},
			"a table": {
				`alter publication lapse_deletes drop table sessions`, `alter publication lapse_deletes add table sessions`,
			},
		} {
			t.Run(name, func(t *testing.T) { // one after the other: they share a database
				before := len(r.gaps(t))
				spoiled, mended := r.spoil(t, change.spoil, change.mend)
				gaps := r.gaps(t)[before:]
				if len(gaps) == 0 {
					t.Fatal("no gap")
				}
				first, last := lsnOf(t, gaps[0].From.LSN), lsnOf(t, gaps[len(gaps)-1].To.LSN)
				if gaps[0].Reason != "publications" || first > spoiled || last < mended {
					t.Errorf("spoiled at %s, fixed at %s; the gaps go from %s to %s, for %s", spoiled, mended, first, last, gaps[0].Reason)
				}
				r.markedEverywhere(t)
			})
		}
	})
}

// spoil changes the publications while an auditor runs, waits until it says so, and puts them back. It returns the ends of the
// WAL after both.
func (r *rig) spoil(t *testing.T, spoil, mend string) (spoiled, mended schemas.LSN) {
	t.Helper()
	w := &writer{conn: r.db.Connect(t), next: int64(len(r.gaps(t))+1) * 1000}
	run := r.start(t, r.beating(200*time.Millisecond))
	eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
	r.commit(t, w, 1, user)
	r.catchUp(t, w.conn)

	r.db.Exec(t, spoil)
	spoiled = walEnd(t, w.conn)
	r.commit(t, w, 1, user) // nobody can say what becomes of it
	eventually(t, "the auditor is not ready", func() bool {
		err := run.Ready()
		return err != nil && (strings.Contains(err.Error(), "publi") || strings.Contains(err.Error(), "heartbeat"))
	})
	r.db.Exec(t, mend, `select lapse.record_publications()`)
	mended = walEnd(t, w.conn)
	r.commit(t, w, 1, user)
	eventually(t, "the auditor is ready again", func() bool { return run.Ready() == nil })
	r.catchUp(t, w.conn)
	run.end(t)
	return spoiled, mended
}

// markedEverywhere wants every gap of the log in every partition.
func (r *rig) markedEverywhere(t *testing.T) {
	t.Helper()
	for _, topic := range []string{r.settings.System, r.settings.User} {
		marked := map[int32]int{}
		for _, record := range r.read(t, topic) {
			if record.Header("lapse-op") == "gap" {
				marked[record.Partition]++
			}
		}
		for p := range int32(partitions) {
			if marked[p] != len(r.gaps(t)) {
				t.Errorf("%s/%d has %d gaps, the log %d", topic, p, marked[p], len(r.gaps(t)))
			}
		}
	}
}

// What was taken back before the auditor looked has left its trace in the catalog.
func TestAPublicationThatWasChangedAndPutBackIsAGapToo(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		r.commit(t, w, 1, user)
		r.once(t, r.beating(time.Minute))
		r.once(t, r.beating(time.Minute))
		if gaps := r.gaps(t); len(gaps) != 0 {
			t.Fatalf("gaps without a reason: %+v", gaps)
		}
		r.db.Exec(t, `alter publication lapse_deletes set (publish = 'insert')`, `delete from elsewhere`, `insert into elsewhere values (77)`,
			`delete from elsewhere`, `alter publication lapse_deletes set (publish = 'delete, truncate')`)
		r.once(t, r.beating(time.Minute))
		if gaps := r.gaps(t); len(gaps) != 1 || gaps[0].Reason != "publications" {
			t.Fatalf("gaps %+v, want one", gaps)
		}
	})
}

// A heartbeat that looked before the publications were changed, and was committed after a delete that they no longer let
// through, found nothing. The gap that the next one shows begins where it looked.
func TestAGapBeginsWhereTheLastGoodHeartbeatLooked(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		r.commit(t, w, 1, user)
		r.once(t, r.beating(time.Minute))
		slow, err := r.db.Connect(t).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = slow.Exec(t.Context(), `select lapse.beat(gen_random_uuid(), h.history, h.timeline, h.server_start, null)
			from lapse.heartbeat h order by h.id desc limit 1`)
		if err != nil {
			t.Fatal(err)
		}
		r.db.Exec(t, `alter publication lapse_deletes set (publish = 'insert')`)
		changed := walEnd(t, w.conn)
		r.db.Exec(t, `delete from elsewhere`)
		if err := slow.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.db.Exec(t, `alter publication lapse_deletes set (publish = 'delete, truncate')`, `insert into elsewhere values (77)`)
		r.once(t, r.beating(time.Minute))
		gaps := r.gaps(t)
		if len(gaps) != 1 || lsnOf(t, gaps[0].From.LSN) > changed {
			t.Errorf("changed at %s, gaps %+v", changed, gaps)
		}
	})
}

// A commit is in the log before anybody sees it: for as long as a synchronous standby is away. A heartbeat that looks
// meanwhile finds nothing of it, and proves nothing of the deletes that decoding leaves out already.
func TestAGapBeginsBeforeAChangeWhoseCommitWaitsForAStandby(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		r := newRig(t, db, kafkatest.Broker(t))
		w := &writer{conn: db.Connect(t)}
		r.commit(t, w, 1, user)
		r.once(t, r.beating(time.Minute))
		db.Exec(t, `alter database `+db.Name+` set synchronous_commit = local`,
			`alter system set synchronous_standby_names = 'away'`, `select pg_reload_conf()`)
		conn := db.Connect(t)
		eventually(t, "commits wait", func() bool { return fixture.One[string](t, conn, `show synchronous_standby_names`) == "away" })
		older, err := db.Connect(t).Begin(t.Context()) // so that no transaction above the change ends before a heartbeat looks
		if err != nil {
			t.Fatal(err)
		}
		if _, err := older.Exec(t.Context(), `insert into elsewhere values (77)`); err != nil {
			t.Fatal(err)
		}
		changed := make(chan error, 1)
		waits := db.Connect(t)
		go func() {
			_, err := waits.Exec(context.WithoutCancel(t.Context()), `set synchronous_commit = on; alter publication lapse_deletes drop table elsewhere`)
			changed <- err
		}()
		eventually(t, "the change waits for the standby", func() bool {
			return fixture.One[int](t, conn, `select count(*) from pg_stat_activity where wait_event = 'SyncRep' and query like '%drop table elsewhere'`) == 1
		})
		hidden := walEnd(t, conn)
		if _, err := older.Exec(t.Context(), `delete from elsewhere; commit`); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, beatNow, beatNow)
		if fault := fixture.One[int](t, conn, `select count(fault) from lapse.heartbeat`); fault != 0 {
			t.Error("a heartbeat saw the change before it ended")
		}
		db.Exec(t, `alter system reset synchronous_standby_names`, `select pg_reload_conf()`)
		if err := <-changed; err != nil {
			t.Fatal(err)
		}
		r.once(t, r.beating(time.Minute))
		gaps := r.gaps(t)
		if len(gaps) == 0 || lsnOf(t, gaps[0].From.LSN) > hidden {
			t.Errorf("deletes are hidden from %s on, gaps %+v", hidden, gaps)
		}
		eventually(t, "heartbeats have seen what was committed meanwhile", func() bool {
			db.Exec(t, beatNow)
			return fixture.One[bool](t, conn, `select looked_at > $1 from lapse.heartbeat order by id desc limit 1`, hidden.String())
		})
	})
}

func TestAnotherTagKeyAtARestartIsRefused(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		r.begun(t)
		other := schemas.Key(strings.Repeat("x", schemas.MinKey))
		r.refused(t, history.ErrKeyChanged, func(c *audit.Config) { c.Keys = []schemas.Key{other} })
		r.once(t, func(c *audit.Config) { c.Keys = append(c.Keys, other) })
	})
}
