package planner

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"lapse/internal/fixture"
	"lapse/internal/pgtest"
	"lapse/planner/functions"
	"lapse/schemas"
)

// wantRows counts the rows of a table.
func (w *world) wantRows(table string, want int) {
	w.t.Helper()
	if n := valueOn[int](w.t, w.admin, `select count(*) from shop.`+table); n != want {
		w.t.Errorf("%d rows of %s are left, want %d", n, table, want)
	}
}

// wantIDs compares the ids of a table's rows, ascending.
func (w *world) wantIDs(table string, want ...int64) {
	w.t.Helper()
	if got := valueOn[[]int64](w.t, w.admin, `select coalesce(array_agg(id order by id), '{}') from shop.`+table); !slices.Equal(got, want) {
		w.t.Errorf("rows %v of %s are left, want %v", got, table, want)
	}
}

// wantLedger compares the batches in the ledger, and the rows that their results say were deleted.
func (w *world) wantLedger(batches, deleted int) {
	w.t.Helper()
	var b, d int
	must(w.t, w.admin.QueryRow(w.t.Context(), `
		select count(*), coalesce(sum(r.deleted), 0) from lapse.batch b left join lapse.batch_result r using (batch)`).Scan(&b, &d))
	if b != batches || d != deleted {
		w.t.Errorf("the ledger has %d batches and %d deleted rows, want %d and %d", b, d, batches, deleted)
	}
}

// numbers are the whole numbers from first to last.
func numbers(first, last int64) (all []int64) {
	for n := first; n <= last; n++ {
		all = append(all, n)
	}
	return all
}

// waitForLock waits until some session of this database waits for a lock.
func (w *world) waitForLock() {
	w.t.Helper()
	fixture.Eventually(w.t, "a session waits for a lock", func() bool {
		return valueOn[bool](w.t, w.admin, `
			select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`)
	})
}

// inBackground runs work and hands over its error.
func inBackground(work func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	return done
}

func TestALockedRowIsLeftAndTakenByTheResidualPass(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 10)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		b := w.lease(p, w.open(&p))
		b.Limit, b.Shape = 4, functions.ShapePick
		tx, err := w.owner.Begin(t.Context())
		must(t, err)
		_, err = tx.Exec(t.Context(), `select from sessions where id in (2, 9) for update`)
		must(t, err)

		first, err := w.call(b, nil)
		must(t, err)
		second, err := w.call(b, nil)
		must(t, err)
		third, err := w.call(b, nil)
		must(t, err)
		if first.Deleted != 3 || second.Deleted != 4 || third.Deleted != 1 || third.Finished {
			t.Errorf("got %+v, %+v, %+v; want 3, 4, 1 and a first pass that ends without the locked rows", first, second, third)
		}
		w.wantIDs("sessions", append([]int64{2, 9}, numbers(11, 20)...)...)
		must(t, tx.Rollback(t.Context()))
		residual, err := w.call(b, nil)
		must(t, err)
		if residual.Deleted != 2 || !residual.Finished {
			t.Errorf("the residual pass got %+v, want the two rows that were locked", residual)
		}
		w.wantIDs("sessions", numbers(11, 20)...)
		w.wantLedger(4, 10)
	})
}

// The row is refreshed while the call waits at the gate: what the call reads afterwards is what was committed by then.
func TestARowThatIsRefreshedMeanwhileSurvives(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 10)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		b := w.lease(p, w.open(&p))
		gate, err := w.admin.Begin(t.Context())
		must(t, err)
		_, err = gate.Exec(t.Context(), `lock table lapse.gate in exclusive mode`)
		must(t, err)
		var got result
		done := inBackground(func() (err error) { got, err = w.call(b, nil); return err })
		second := &world{t: t, admin: w.db.Connect(t)}
		second.waitForLock()
		w.do(`update sessions set last_seen = now() where id = 3`)
		must(t, gate.Rollback(t.Context()))
		must(t, <-done)
		if got.Deleted != 9 {
			t.Errorf("deleted %d rows, want the nine that were still due", got.Deleted)
		}
		w.wantIDs("sessions", append([]int64{3}, numbers(11, 20)...)...)
		w.wantLedger(1, 9)
	})
}

// The pick waits for nobody, so that a refresh in flight is always a locked row; one that commits between the pick's
// snapshot and its lock is seen when the lock is taken, and one that follows finds the row gone. The application
// refreshes rows just ahead of the deletion, so that all of it happens.
func TestRowsThatAreRefreshedAllTheTimeAreNeverDeletedFresh(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		const rows = 1500
		w := newWorld(t, db, sessions, `create index on sessions (last_seen, id)`, `create table refreshed (id bigint primary key)`)
		w.fill("sessions", rows)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed", "    batch: 100"))
		application := w.db.ConnectAs(t, w.app)
		refresh := inBackground(func() error {
			for {
				var due bool
				err := application.QueryRow(context.Background(), `
					with ahead as (
					  select id from shop.sessions where last_seen < now() - interval '30 days' order by last_seen, id offset floor(random() * 120) limit 1
					), fresh as (
					  update shop.sessions s set last_seen = now() from ahead where s.id = ahead.id returning s.id
					), noted as (
					  insert into shop.refreshed select id from fresh
					)
					select exists (select from shop.sessions where last_seen < now() - interval '30 days')`).Scan(&due)
				if err != nil || !due {
					return err
				}
			}
		})
		var deleted int64
		for value[bool](w, `select exists (select from sessions where last_seen < now() - interval '30 days')`) {
			r := w.open(&p)
			deleted += w.deleteAll(p, r, 100).Deleted
		}
		must(t, <-refresh)
		refreshed := value[int64](w, `select count(*) from refreshed`)
		if n := value[int64](w, `select count(*) from refreshed where id not in (select id from sessions)`); n != 0 {
			t.Errorf("%d rows were deleted after they were refreshed", n)
		}
		if n := value[int64](w, `select count(*) from sessions`); n != rows+refreshed { // beside them as many that never were due
			t.Errorf("%d rows are left, want %d", n, rows+refreshed)
		}
		if deleted+refreshed != rows {
			t.Errorf("%d deleted and %d refreshed, want %d together", deleted, refreshed, rows)
		}
		t.Logf("%d of %d rows were refreshed in time", refreshed, rows)
	})
}

// A change that takes the gate waits for the batch in flight, and a batch that waits at the gate sees the change.
func TestAChangeOfThePolicyAndABatchExcludeOneAnother(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 10)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		b := w.lease(p, w.open(&p))
		other := &world{t: t, admin: w.db.Connect(t)}

		batch, err := w.exec.Begin(t.Context())
		must(t, err)
		b.Limit = 4
		_, err = w.callIn(batch, b, nil)
		must(t, err)
		changes, err := w.difference(policyText("shop.sessions", "last_seen", "31 days", "    state: armed"), false)
		must(t, err)
		done := inBackground(func() error { return w.write(&changes[0]) })
		other.waitForLock()
		must(t, batch.Commit(t.Context()))
		must(t, <-done)
		w.wantIDs("sessions", numbers(5, 20)...) // the batch that held the gate ends under the former version
		_, err = w.call(b, nil)
		wantState(t, err, schemas.SQLStateUndefinedFunction) // the former version's
		w.wantLedger(1, 4)

		w.arm(p.ID)
		p = w.inForce()[0]
		b = w.lease(p, w.open(&p))
		changes, err = w.difference(policyText("shop.sessions", "last_seen", "32 days", "    state: armed"), false)
		must(t, err)
		change, err := w.admin.Begin(t.Context())
		must(t, err)
		must(t, writeIn(t.Context(), change, &changes[0]))
		waiting := inBackground(func() error { _, err := w.call(b, nil); return err })
		other.waitForLock()
		must(t, change.Commit(t.Context()))
		wantState(t, <-waiting, schemas.SQLStateGate)
		w.wantIDs("sessions", numbers(5, 20)...)
		w.wantLedger(1, 4)
	})
}

// A row's lock that is shared goes from hand to hand, past those who wait to have it alone.
func TestBatchesThatComeLaterWaitBehindAChange(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 10)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		b := w.lease(p, w.open(&p))
		b.Limit = 1
		first, err := w.exec.Begin(t.Context())
		must(t, err)
		_, err = w.callIn(first, b, nil)
		must(t, err)
		changes, err := w.difference(policyText("shop.sessions", "last_seen", "30 days", "    state: paused"), false)
		must(t, err)
		done := inBackground(func() error { return w.write(&changes[0]) })
		(&world{t: t, admin: db.Connect(t)}).waitForLock()

		// Another batch's first statement; the shard of the first one is locked anyway.
		later := db.Connect(t)
		must(t, runSQL(later, `begin`))
		must(t, runSQL(later, `set lock_timeout = '200ms'`))
		wantState(t, runSQL(later, `lock table lapse.gate in row share mode`), schemas.SQLStateLockNotAvailable)
		must(t, first.Commit(t.Context()))
		must(t, <-done)
		_, err = w.call(b, nil)
		wantState(t, err, schemas.SQLStateGate)
		w.wantIDs("sessions", numbers(2, 20)...) // the first batch's one row is gone
		w.wantLedger(1, 1)
	})
}

func TestAnExecutorThatWokeUpLateIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 10)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		r := w.open(&p)
		late, current := w.lease(p, r), w.lease(p, r)
		if late.Shard != current.Shard || late.Term == current.Term {
			t.Fatalf("got terms %d and %d of shards %d and %d", late.Term, current.Term, late.Shard, current.Shard)
		}
		_, err := w.call(late, nil)
		wantState(t, err, schemas.SQLStateLease)
		w.wantIDs("sessions", numbers(1, 20)...)
		w.wantLedger(0, 0)
		_, err = w.call(current, nil)
		must(t, err)
		w.wantIDs("sessions", numbers(11, 20)...)
		w.wantLedger(1, 10)
	})
}

// A foreign key made after apply, from the table to itself: rows that are not due would go with those that are.
func TestRowsThatGoBesideTheStatementAreRefused(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `alter table sessions add parent bigint`)
		w.do(`insert into sessions values (1, now() - interval '40 days', null, null), (2, now(), null, 1)`)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		r := w.open(&p)
		w.do(`alter table sessions add foreign key (parent) references sessions on delete cascade`)
		_, err := w.call(w.lease(p, r), nil)
		wantState(t, err, schemas.SQLStateCounts)
		w.wantIDs("sessions", 1, 2)
		w.wantLedger(0, 0)
	})
}

func TestWithoutCountsNothingIsDeleted(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 10)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		b := w.lease(p, w.open(&p))
		must(t, runSQL(w.admin, fmt.Sprintf("alter database %s set track_counts = off", schemas.Identifier(db.Name))))
		w.exec = db.ConnectAs(t, testRoles.Executor)
		_, err := w.call(b, nil)
		wantState(t, err, schemas.SQLStateNoCounting)
		w.wantIDs("sessions", numbers(1, 20)...)
		w.wantLedger(0, 0)
	})
}

// As a database's default, this setting switches off every foreign key of a session, and says nothing.
func TestWithoutForeignKeysNothingIsDeleted(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create table clicks (session bigint references sessions)`)
		w.fill("sessions", 10)
		w.do(`insert into clicks values (3)`)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		b := w.lease(p, w.open(&p))
		must(t, runSQL(w.admin, fmt.Sprintf("alter database %s set session_replication_role = replica", schemas.Identifier(db.Name))))
		w.exec = db.ConnectAs(t, testRoles.Executor)
		_, err := w.call(b, nil)
		wantState(t, err, schemas.SQLStateReplica)
		w.wantIDs("sessions", numbers(1, 20)...)
		w.wantLedger(0, 0)
		must(t, runSQL(w.admin, fmt.Sprintf("alter database %s reset session_replication_role", schemas.Identifier(db.Name))))
		w.exec = db.ConnectAs(t, testRoles.Executor)
		_, err = w.call(b, nil)
		wantState(t, err, schemas.SQLStateForeignKeyViolation)
		w.wantIDs("sessions", numbers(1, 20)...)
		w.wantLedger(0, 0)
	})
}

// A deferred constraint is checked inside the function, so that COMMIT has nothing left that can fail.
func TestADeferredForeignKeyIsCheckedInTheFunction(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create table clicks (session bigint references sessions deferrable initially deferred)`)
		w.fill("sessions", 10)
		w.do(`insert into clicks values (3)`)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		b := w.lease(p, w.open(&p))
		tx, err := w.exec.Begin(t.Context())
		must(t, err)
		_, err = w.callIn(tx, b, nil)
		wantState(t, err, schemas.SQLStateForeignKeyViolation)
		must(t, tx.Rollback(t.Context()))
		w.wantIDs("sessions", numbers(1, 20)...)
		w.wantLedger(0, 0)
	})
}
