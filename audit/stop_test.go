package audit_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/audit"
	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
	"lapse/replication"
	"lapse/schemas"
)

// stopsWithin is long enough for an overloaded machine, and shorter than a server waits for an auditor that does not answer: 40 s.
const stopsWithin = 25 * time.Second

// stop is pg_ctl stop -m fast.
func (r *rig) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	if err := r.db.Server.Stop(ctx, pgserver.Fast); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began).Round(10 * time.Millisecond)
	t.Logf("PostgreSQL stopped after %s", took)
	if took > stopsWithin {
		t.Errorf("PostgreSQL took %s to stop", took)
	}
}

// onHeavySolo runs a test with a PostgreSQL of its own, see pgtest.Heavy, and a broker of its own where solo is set.
func onHeavySolo(t *testing.T, solo bool, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		broker := func() *kafkaserver.Server { return kafkatest.Broker(t) }
		if solo {
			broker = func() *kafkaserver.Server { return kafkatest.Solo(t, kafkaserver.Options{}) }
		}
		test(t, newRig(t, db, broker()))
	})
}

// delete inserts and deletes n sessions as a user, in one transaction each way.
func (r *rig) delete(t *testing.T, want *expected, w *writer, n int) {
	t.Helper()
	ids, err := w.rows(t.Context(), n)
	if err == nil {
		err = w.commit(t.Context(), want, user(ids))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// deleteWide deletes n rows with keys of a kilobyte: more than the auditor and both sides' socket buffers hold, so that
// the server is stuck in the middle.
func (r *rig) deleteWide(t *testing.T, want *expected, w *writer, n int) {
	t.Helper()
	ctx := t.Context()
	r.db.Exec(t, `create table wide (k text primary key)`)
	if err := publish(ctx, w.conn, replication.Join, "wide"); err != nil {
		t.Fatal(err)
	}
	r.db.Exec(t, fmt.Sprintf(`insert into wide select lpad(i::text, 1000, 'x') from generate_series(1, %d) i`, n))
	err := w.commit(ctx, want, func(ctx context.Context, tx pgx.Tx) (outcome, error) {
		o := outcome{causes: map[string]string{}, verdict: "unclaimed"}
		for i := range n {
			text := strconv.Itoa(i + 1)
			key := strings.Repeat("x", 1000-len(text)) + text
			o.causes[rowKey("public.wide", `{"k":"`+key+`"}`)] = "user"
		}
		_, err := tx.Exec(ctx, `delete from wide`)
		return o, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// restart starts the server again, and everything goes on.
func (r *rig) restart(t *testing.T, want *expected, run *running) {
	t.Helper()
	if err := r.db.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := &writer{conn: r.db.Connect(t), next: 1 << 40}
	r.delete(t, want, w, 3)
	r.catchUp(t, w.conn)
	run.end(t)
	r.verify(t, want)
}

func TestPostgreSQLStopsInTimeWhileKafkaAnswers(t *testing.T) {
	onHeavySolo(t, false, func(t *testing.T, r *rig) {
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		run := r.start(t)
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		r.delete(t, want, w, 100)
		r.db.Exec(t, `create table unpublished as select generate_series(1, 10000)`)
		end := walEnd(t, w.conn)
		r.stop(t)
		log := r.readLog(t)
		if at, err := schemas.ParseLSN(log[len(log)-1].Reached); err != nil || at < end {
			t.Errorf("the log ends at %s (%v): the server was left at %s, not waited for", at, err, end)
		}
		r.restart(t, want, run)
	})
}

func TestPostgreSQLStopsInTimeWhileKafkaIsDown(t *testing.T) {
	onHeavySolo(t, true, func(t *testing.T, r *rig) {
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		run := r.start(t)
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		r.delete(t, want, w, 100)
		if err := r.broker.Kill(); err != nil {
			t.Fatal(err)
		}
		r.delete(t, want, w, 100)
		r.stop(t)
		r.startBroker(t)
		r.restart(t, want, run)
	})
}

//lapse:long
func TestPostgreSQLStopsInTimeWhileKafkaIsDownAndNothingMoreCanBeRead(t *testing.T) {
	onHeavySolo(t, true, func(t *testing.T, r *rig) {
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		run := r.start(t, func(c *audit.Config) { c.Kafka.MaxBuffered = 64 << 10 })
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		if err := r.broker.Kill(); err != nil {
			t.Fatal(err)
		}
		r.deleteWide(t, want, w, 12000)
		eventually(t, "the server waits for its socket", func() bool {
			var waits bool
			err := w.conn.QueryRow(t.Context(), `
				select coalesce(bool_or(wait_event = 'WalSenderWriteData'), false) from pg_stat_activity
				 where backend_type = 'walsender'`).Scan(&waits)
			return err == nil && waits
		})
		r.stop(t)
		r.startBroker(t)
		r.restart(t, want, run)
	})
}

func TestPostgreSQLStopsInTimeWhileTheAuditorStartsWithoutKafka(t *testing.T) {
	onHeavySolo(t, true, func(t *testing.T, r *rig) {
		want, conn := newExpected(), r.db.Connect(t)
		if err := r.broker.Kill(); err != nil {
			t.Fatal(err)
		}
		run := r.start(t)
		eventually(t, "the slot is in use", func() bool {
			var active bool
			err := conn.QueryRow(t.Context(), `select bool_or(active) from pg_replication_slots`).Scan(&active)
			return err == nil && active
		})
		r.db.Exec(t, `create table unpublished as select generate_series(1, 10000)`)
		r.stop(t)
		r.startBroker(t)
		r.restart(t, want, run)
	})
}

func (r *rig) startBroker(t *testing.T) {
	t.Helper()
	if err := r.broker.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A transaction takes much longer to publish than a server may be kept waiting.
//
//lapse:long
func TestPostgreSQLStopsInTimeInTheMiddleOfAHugeTransaction(t *testing.T) {
	onHeavySolo(t, false, func(t *testing.T, r *rig) {
		const most = 200_000
		conn := r.db.Connect(t)
		r.db.Exec(t, `create table many (id bigint primary key)`)
		if err := publish(t.Context(), conn, replication.Join, "many"); err != nil {
			t.Fatal(err)
		}
		r.db.Exec(t, fmt.Sprintf(`insert into many select generate_series(1, %d)`, most), `delete from many`)
		m := audit.NewMetrics()
		published := func() float64 { return gather(t, m)[`lapse_events_published_total{cause="user",op="delete"}`] }
		// Few events at a time: it is the time that counts, not the work.
		run := r.start(t, func(c *audit.Config) { c.Metrics, c.Kafka.MaxBuffered = m, 64<<10 })
		eventually(t, "an event is published", func() bool { return published() > 0 })
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := r.db.Server.Stop(ctx, pgserver.Fast); err != nil {
			t.Fatal(err)
		}
		took, then := time.Since(began), published()
		if err := r.db.Server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		eventually(t, "the rest is published", func() bool { return published() >= most })
		rest := time.Since(began)
		t.Logf("stopped after %v and %.0f of %d events; the rest took %v", took, then, most, rest)
		if then >= most {
			t.Error("the server waited for the whole transaction")
		}
		r.catchUp(t, r.db.Connect(t))
		run.end(t)
		if n := published(); n != most {
			t.Errorf("%.0f events of %d rows", n, most)
		}
	})
}
