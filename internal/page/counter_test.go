package page

import (
	"fmt"
	"testing"
	"time"

	"lapse/internal/fixture"
	"lapse/internal/pgtest"
)

// Counting a day that takes longer than a statement may is given up, and so is the whole after two of them; the next time goes on with the others.
func TestADayThatTakesTooLongKeepsNoOtherFromBeingCounted(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	db.Exec(t, `
		with b as (
		  insert into lapse.batch (batch, policy_id, policy, policy_version, run, cutoff, hold_version, target, cascades, functions, system_identifier, database_oid, history, timeline, xid, started_at, mac)
		  select gen_random_uuid(), 1, 'p', 1, gen_random_uuid(), at, 0, 1, '{}', sha256('f'), '1', 1, 1, 1, '1', at, sha256('m')
		    from generate_series(0, 5) n, lateral (select now() - n * interval '1 day' as at) a returning batch)
		insert into lapse.batch_result (batch, picked, deleted, by_relation) select batch, 900, 900, '{}' from b`)
	conn, locker, other := db.Connect(t), db.Connect(t), db.Connect(t)
	c := counter{days: map[time.Time]day{}}
	_, err := locker.Exec(t.Context(), "begin; lock table lapse.batch_result in access exclusive mode")
	fixture.Must(t, err)
	counted, failed := make(chan *deleted, 1), make(chan error, 1)
	go func() {
		d, err := c.count(t.Context(), conn)
		counted <- d
		failed <- err
	}()
	// Each statement that waits is canceled, as its timeout would.
	waits := fmt.Sprintf("select count(pg_cancel_backend(pid)) from pg_stat_activity where pid = %d and wait_event_type = 'Lock'", conn.PgConn().PID())
	var d *deleted
	fixture.Must(t, fixture.Until(t.Context(), func() (bool, error) {
		select {
		case d = <-counted:
			return true, <-failed
		default:
			_, err := other.Exec(t.Context(), waits)
			return false, err
		}
	}))
	last := daysShown - 1
	if !d.Uncounted[last] || !d.Uncounted[last-1] || !d.Uncounted[last-2] {
		t.Errorf("it knows the last days: %v", d.Uncounted[last-5:])
	}
	_, err = locker.Exec(t.Context(), "rollback")
	fixture.Must(t, err)
	again, err := c.count(t.Context(), conn)
	fixture.Must(t, err)
	if again.Uncounted[last] || again.Uncounted[last-2] || again.Uncounted[last-5] || again.Uncounted[0] {
		t.Errorf("afterwards it does not know %v", again.Uncounted[last-5:])
	}
}
