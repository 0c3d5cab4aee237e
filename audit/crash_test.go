package audit_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// TestNothingIsMissingOrTwiceWhateverIsKilled is the audit's oracle: transactions of every kind are committed while the
// auditor, the broker and the database are killed with -9, and streams are cut, at random moments; requests to the broker
// and answers are lost, cut, delayed and doubled. Afterwards everything that was committed is in its topic once, in order, under its cause, and the log agrees.
//
// LAPSE_TEST_SEED repeats a run's choices (not its timing), LAPSE_TEST_ROUNDS makes it longer.
//
//lapse:long
func TestNothingIsMissingOrTwiceWhateverIsKilled(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		seed := number("LAPSE_TEST_SEED", time.Now().UnixNano())
		rounds := int(number("LAPSE_TEST_ROUNDS", 6))
		t.Logf("LAPSE_TEST_SEED=%d", seed)
		r := newRig(t, db, kafkatest.Solo(t, kafkaserver.Options{}))
		r.settings.MaxBuffered = 256 << 10 // so that large transactions are caught in the middle
		r.settings.Network = seed
		r.makeKept(t)

		want := newExpected()
		ctx, finish := context.WithCancel(t.Context())
		load := &load{rig: r, want: want, random: rand.New(rand.NewPCG(uint64(seed), 1))}
		var working sync.WaitGroup
		working.Go(func() { load.run(ctx) })
		chaos := &chaos{t: t, rig: r, random: rand.New(rand.NewPCG(uint64(seed), 2))}
		chaos.child = startChild(t, r.settings)
		for range rounds {
			chaos.round()
		}
		finish()
		working.Wait()
		if load.err != nil {
			t.Fatal(load.err)
		}
		chaos.child.kill()
		r.settings.MaxBuffered = 0
		r.once(t)
		t.Logf("%d transactions, %d rows, %d truncates, %d drops; killed %v", load.done, len(want.causes), want.truncates, want.drops, chaos.victims)
		r.verify(t, want)
	})
}

// number reads an environment variable.
func number(name string, otherwise int64) int64 {
	if n, err := strconv.ParseInt(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// chaos kills.
type chaos struct {
	t       *testing.T
	rig     *rig
	random  *rand.Rand
	child   *process
	victims [5]int // auditor, stream, broker, database, broker and auditor
}

// round waits for a random moment and kills something.
func (c *chaos) round() {
	c.t.Helper()
	moment := time.NewTimer(time.Duration(c.random.IntN(2000)) * time.Millisecond)
	defer moment.Stop()
	<-moment.C
	victim := []int{0, 0, 0, 0, 1, 1, 2, 3, 4, 4}[c.random.IntN(10)]
	c.victims[victim]++
	var err error
	switch victim {
	case 0:
		c.child.kill()
		c.child = startChild(c.t, c.rig.settings)
	case 1:
		c.rig.cutStream(c.t)
	case 2:
		if err = c.rig.broker.Kill(); err == nil {
			err = c.rig.broker.Start(c.t.Context())
		}
	case 4: // the auditor dies with much that is not acknowledged
		if err = c.rig.broker.Kill(); err == nil {
			pauseFor(c.t.Context(), time.Duration(c.random.IntN(2500))*time.Millisecond)
			c.child.kill()
			err = c.rig.broker.Start(c.t.Context())
			c.child = startChild(c.t, c.rig.settings)
		}
	case 3:
		if err = c.rig.db.Server.Kill(); err == nil {
			err = c.rig.db.Server.Start(c.t.Context())
		}
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.child.check(c.t)
}

// cutStream ends the server's side of the auditor's stream, if there is one.
func (r *rig) cutStream(t *testing.T) {
	t.Helper()
	r.db.Exec(t, fmt.Sprintf(`
		select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = '%s' and active_pid is not null`, r.settings.Slot))
}

// load commits transactions of every kind, over one connection after another.
type load struct {
	rig    *rig
	want   *expected
	random *rand.Rand

	next int64
	done int
	err  error // of the test, not of the server
}

// run makes one transaction after the other; more in the same time would only make the comparison longer.
func (l *load) run(ctx context.Context) { l.runWith(ctx, 5*time.Millisecond) }

func (l *load) runWith(ctx context.Context, gap time.Duration) {
	for ctx.Err() == nil && l.err == nil {
		conn, err := pgx.Connect(ctx, l.rig.settings.URL)
		if err != nil {
			pauseFor(ctx, 20*time.Millisecond)
			continue
		}
		w := &writer{conn: conn, next: l.next}
		for ctx.Err() == nil && !conn.IsClosed() && l.err == nil {
			l.transact(ctx, w)
			pauseFor(ctx, gap)
		}
		l.next = w.next
		_ = conn.Close(context.WithoutCancel(ctx))
	}
}

func pauseFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// transact runs one transaction. The end of the test does not interrupt it; the end of the server does, and then it is
// asked whether it was committed.
func (l *load) transact(ctx context.Context, w *writer) {
	ctx = context.WithoutCancel(ctx)
	size := 2 + l.random.IntN(20)
	if l.random.IntN(20) == 0 {
		size = 500 + l.random.IntN(1000)
	}
	ids, err := w.rows(ctx, size)
	if err == nil {
		err = w.keep(ctx, ids)
	}
	if err == nil {
		_, err = w.conn.Exec(ctx, `insert into scratch values (1) on conflict do nothing`)
	}
	if err != nil {
		if !w.conn.IsClosed() {
			l.err = err // a table that the test did not make, for instance
		}
		return
	}
	kinds := []transaction{
		batch(ids, nil), batch(ids, nil), batch(ids, nil), user(ids), user(ids), forger(ids), emptier, intruder(ids), latecomer(ids),
		setter(ids), hider(ids), dropper, waverer(ids), mover(ids),
		batch(ids, func(c *schemas.Claim) { c.PolicyVersion++ }),
		batch(ids, func(c *schemas.Claim) { c.XID++ }),
		batch(ids, func(c *schemas.Claim) { c.Cutoff = c.Cutoff.Add(time.Hour) }),
		batch(ids, func(c *schemas.Claim) { c.Functions[0] ^= 1 }),
	}
	kind := l.random.IntN(len(kinds))
	var o outcome
	err = pgx.BeginFunc(ctx, w.conn, func(tx pgx.Tx) (err error) {
		o, err = kinds[kind](ctx, tx)
		return err
	})
	committed := err == nil
	if err != nil {
		if !w.conn.IsClosed() {
			l.err = fmt.Errorf("kind %d: %w", kind, err)
			return
		}
		committed = l.wasCommitted(ctx, ids[len(ids)-1], cmp.Or(o.committed, `select not exists (select from sessions where id = $1)`))
	}
	if committed {
		l.want.add(o)
		l.done++
	}
}

// wasCommitted asks the next server what came of a transaction whose answer was lost.
func (l *load) wasCommitted(ctx context.Context, id int64, query string) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		conn, err := pgx.Connect(ctx, l.rig.settings.URL)
		if err != nil {
			pauseFor(ctx, 20*time.Millisecond)
			continue
		}
		var gone bool
		err = conn.QueryRow(ctx, query, id).Scan(&gone)
		_ = conn.Close(ctx)
		if err == nil {
			return gone
		}
	}
	l.err = fmt.Errorf("the server does not come back")
	return false
}

// process is an auditor in a process of its own.
type process struct {
	command *exec.Cmd
	log     bytes.Buffer
	dead    chan struct{}
	killed  bool
}

func startChild(t *testing.T, s settings) *process {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	c := &process{command: exec.Command(os.Args[0]), dead: make(chan struct{})}
	c.command.Env = append(os.Environ(), childSettings+"="+string(text))
	c.command.Stderr = &c.log
	if err := c.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.dead)
		_ = c.command.Wait()
	}()
	t.Cleanup(func() {
		c.kill()
		if t.Failed() {
			t.Logf("an auditor's log:\n%s", c.log.Bytes())
		}
	})
	return c
}

// kill is kill -9.
func (c *process) kill() {
	c.killed = true
	_ = c.command.Process.Kill()
	<-c.dead
}

// check wants the process to live: nothing that is done to its servers is a reason to give up.
func (c *process) check(t *testing.T) {
	t.Helper()
	select {
	case <-c.dead:
		if !c.killed {
			t.Fatalf("the auditor gave up:\n%s", c.log.Bytes())
		}
	default:
	}
}
