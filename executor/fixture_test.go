package executor

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/executor/batch"
	"lapse/internal/fixture"
	"lapse/internal/fixture/catalog"
	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

// apply makes the policies of db equal the file's, as `lapse apply --prune --arm` does.
func apply(t testing.TB, db *pgtest.DB, file string) {
	t.Helper()
	conn := db.Connect(t)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	// As the program's sessions have it, whatever the database's default is: a serializable transaction does not see the deleter that another
	// database of the cluster made meanwhile.
	if _, err := conn.Exec(t.Context(), "set default_transaction_isolation = 'read committed'"); err != nil {
		t.Fatal(err)
	}
	if err := catalog.Apply(t.Context(), conn, catalog.Roles(), file, (*change.Change).Arm); err != nil {
		t.Fatalf("%v\nin:\n%s", err, file)
	}
}

// arm applies the file and opens the gates, as the executor does for arming policies.
func arm(t testing.TB, db *pgtest.DB, file string) {
	t.Helper()
	apply(t, db, file)
	for range 2 {
		db.Exec(t, `select lapse.advance_arming(policy_id) from lapse.gate where state = 'arming'`)
	}
}

// policy is one armed entry of a policy file. more are further keys, such as "batch: 10".
func policy(name, table string, more ...string) string {
	return fixture.Policy(name, table, "at", "30 days", append([]string{"state: armed"}, more...)...)
}

var policies = fixture.Policies

// owned makes tables of the application's role.
func owned(t testing.TB, db *pgtest.DB, statements ...string) {
	t.Helper()
	db.Exec(t, "set role "+appRole+"; "+strings.Join(statements, "; "))
}

// sessions makes the table that most tests use: due rows with ids from 1, then as many that are not due.
func sessions(t testing.TB, db *pgtest.DB, due, live int) {
	t.Helper()
	owned(t, db, "create table sessions (id bigint primary key, at timestamptz, note text)",
		"create index on sessions (at, id)",
		fmt.Sprintf("insert into sessions select g, now() - interval '40 days' - g * interval '1 second' from generate_series(1, %d) g", due),
		fmt.Sprintf("insert into sessions select %d + g, now() - interval '20 days' from generate_series(1, %d) g", due, live),
		"analyze sessions")
}

// newExecutor returns an executor with the executor's login, or as change says.
func newExecutor(t testing.TB, db *pgtest.DB, change ...func(*Config)) *Executor {
	t.Helper()
	return executorAt(t, db.As(schemas.RolesFor(schemas.DefaultRolePrefix).Executor), change...)
}

// nowhere is a server that is not there.
func nowhere(t testing.TB) *pgx.ConnConfig {
	t.Helper()
	config, err := pgx.ParseConfig("postgres://lapse_executor@127.0.0.1:1/x?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func executorAt(t testing.TB, url string, change ...func(*Config)) *Executor {
	t.Helper()
	database, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Database: database, TagKey: testKey, Logger: slog.New(slog.NewTextHandler(testLog{t}, nil))}
	for _, f := range change {
		f(&c)
	}
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	e.pace.look = nobody
	return e
}

// nobody takes nobody else to be at work: a test's server has other tests.
func nobody(context.Context, *pgx.Conn) (bool, error) { return false, nil }

// newTestWorker returns a worker that belongs to nobody's schedule.
func newTestWorker(t testing.TB, db *pgtest.DB) *worker {
	t.Helper()
	e := newExecutor(t, db)
	return e.newWorker(0, newScheduler(endless{e}, e.memory, e.now))
}

// testLog shows what an executor says when its test fails.
type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// once runs Once and wants it to succeed.
func once(t testing.TB, e *Executor, now ...schemas.PolicyName) Summary {
	t.Helper()
	s, err := e.Once(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// only is what Once did under its one policy.
func only(t testing.TB, s Summary) PolicySummary {
	t.Helper()
	if len(s.Policies) != 1 {
		t.Fatalf("Once did %+v, want one policy", s.Policies)
	}
	return s.Policies[0]
}

// one asks for one value as the superuser, in UTC, as policies are meant.
func one[T any](t testing.TB, db *pgtest.DB, query string, args ...any) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL+"&timezone=UTC&datestyle=ISO")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	return fixture.One[T](t, conn, query, args...)
}

var eventually = fixture.Eventually

// work is a session of the executor's login with one shard of a policy in hand, for tests of single batches.
type work struct {
	*batch.Session
	holder string // an executor's; this is its worker 0
	policy *record.InForce
	run    record.Run
	a      *batch.Assignment
}

// open claims the first shard of a policy's next run.
func open(t testing.TB, db *pgtest.DB, name schemas.PolicyName) *work {
	t.Helper()
	ctx := t.Context()
	e := newExecutor(t, db)
	s, err := batch.Connect(ctx, e.config.Database, e.holder+"/0", e.config.Limits.BatchTime, e.config.Limits.answerTime)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	list, err := record.LoadInForce(ctx, s.Control)
	if err != nil {
		t.Fatal(err)
	}
	w := &work{Session: s, holder: e.holder, policy: find(list, name)}
	if w.run, err = run.Open(ctx, s.Control, w.policy, time.Now, run.Options{}); err != nil {
		t.Fatal(err)
	}
	w.acquire(t)
	return w
}

// acquire takes a shard of the run.
func (w *work) acquire(t testing.TB) {
	t.Helper()
	l, err := w.Session.Acquire(t.Context(), w.run.ID)
	if err != nil {
		t.Fatal(err)
	}
	if l == nil {
		t.Fatal("there is no shard to claim")
	}
	f, err := batch.FunctionsToDelete(w.policy, batch.NewCatalog(schemas.RolesFor(schemas.DefaultRolePrefix)))
	if err != nil {
		t.Fatal(err)
	}
	if w.a, err = batch.Assign(t.Context(), w.Session, w.policy, l, f); err != nil {
		t.Fatal(err)
	}
}

// batch is one batch with the right key.
func (w *work) batch(t testing.TB, limit int) (batch.Result, error) {
	t.Helper()
	_, done, err := w.Delete(t.Context(), w.a, testKey, batch.Order{Limit: limit})
	return done, err
}

// policyStates returns the state of each policy when the list was last read.
func (e *Executor) policyStates() []policyStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.status)
}
