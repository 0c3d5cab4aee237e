package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"lapse/executor/guard"
	"lapse/executor/state"
	"lapse/internal/fixture"
	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// keeper is a database without an audit, and what executors remember of it.
type keeper struct {
	*pgtest.DB
	folder string
}

// withMemory makes a database with an armed policy that has deleted.
func withMemory(t *testing.T, db *pgtest.DB) *keeper {
	t.Helper()
	sessions(t, db, 20, 5)
	arm(t, db, policies(policy("p", "public.sessions")))
	r := &keeper{db, filepath.Join(t.TempDir(), "state", "lapse")}
	r.goes(t, "the first time")
	return r
}

// at is the same folder, beside another database.
func (r *keeper) at(db *pgtest.DB) *keeper { return &keeper{db, r.folder} }

func (r *keeper) executor(t testing.TB) *Executor {
	t.Helper()
	return r.executorAt(t, r.As(schemas.RolesFor(schemas.DefaultRolePrefix).Executor))
}

func (r *keeper) executorAt(t testing.TB, url string) *Executor {
	t.Helper()
	return executorAt(t, url, func(c *Config) { c.State = state.New(r.folder, c.Database) })
}

const (
	someDue  = "insert into sessions select (select max(id) from sessions) + g, now() - interval '40 days' from generate_series(1, 7) g"
	countDue = "select count(*) from sessions where at < now() - interval '30 days'"
)

// goes wants due rows to be deleted.
func (r *keeper) goes(t *testing.T, when string) {
	t.Helper()
	r.Exec(t, someDue)
	if _, err := r.executor(t).Once(t.Context(), []schemas.PolicyName{"p"}); err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	if n := one[int](t, r.DB, countDue); n != 0 {
		t.Fatalf("%s: %d due rows stay", when, n)
	}
}

// asks wants due rows to stay, for a person to answer.
func (r *keeper) asks(t *testing.T, when string) {
	t.Helper()
	r.refuses(t, when, guard.HistoryChanged)
}

func (r *keeper) refuses(t *testing.T, when string, reason guard.Reason) {
	t.Helper()
	r.Exec(t, someDue)
	before := one[int](t, r.DB, countDue)
	_, err := r.executor(t).Once(t.Context(), []schemas.PolicyName{"p"})
	var refusal *guard.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != reason {
		t.Fatalf("%s: one pass ended with %v", when, err)
	}
	t.Logf("%s: %v", when, err)
	if n := one[int](t, r.DB, countDue); n != before {
		t.Fatalf("%s: of %d due rows %d are left", when, before, n)
	}
}

// accept is what `lapse history accept` does.
func (r *keeper) accept(t *testing.T) {
	t.Helper()
	r.Exec(t, `insert into lapse.history (number, timeline, system_identifier, reason)
		select max(number) + 1, lapse.timeline(), lapse.system_identifier(), 'accepted' from lapse.history`)
}

func (r *keeper) restart(t *testing.T) {
	t.Helper()
	if err := errors.Join(r.Server.Stop(t.Context(), pgserver.Fast), r.Server.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func (r *keeper) crash(t *testing.T) {
	t.Helper()
	if err := errors.Join(r.Server.Kill(), r.Server.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// A beat is on the server's own disk before it is remembered, also where no commit waits for that: a server that is killed has all that
// the file says.
func TestWithTheAuditOffARestartNeverAsks(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		r := withMemory(t, db)
		for range 2 {
			r.restart(t)
			r.goes(t, "after a restart")
			r.crash(t)
			r.goes(t, "after a crash")
		}
		r.crash(t)
		r.crash(t)
		r.goes(t, "after two crashes")
	}, pgtest.Settings(map[string]string{"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}))
}

func TestWithTheAuditOffAColdCopyElsewhereAsksOnce(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		r := withMemory(t, db)
		if err := r.Server.Stop(t.Context(), pgserver.Fast); err != nil {
			t.Fatal(err)
		}
		cold := r.Snapshot(t, pgserver.Frozen) // it does not run
		exact := r.at(r.Clone(t, cold))
		exact.asks(t, "the copy, while the original is off")
		if err := r.Server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.goes(t, "the original")
		exact.asks(t, "the copy, behind the original")
		late := r.at(r.Clone(t, cold))
		late.asks(t, "another copy, behind the original")
		exact.accept(t)
		exact.goes(t, "the copy that was accepted")
		r.goes(t, "the original beside it")
		late.asks(t, "the copy that was not accepted")
		for _, server := range []*keeper{r, exact} {
			server.restart(t)
			server.goes(t, "after a restart")
		}
		r.at(r.Clone(t, exact.Snapshot(t, pgserver.Frozen))).asks(t, "a copy of the copy")
		r.accept(t)
		r.goes(t, "the original, accepted for no reason")
		exact.Restore(t, r.Snapshot(t, pgserver.Frozen))
		exact.asks(t, "the original's data in the copy's place, of a history that the copy never had")
		r.goes(t, "the original")
	})
}

func TestWithTheAuditOffAnOlderCopyInPlaceAsks(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		r := withMemory(t, db)
		old := r.Snapshot(t, pgserver.Backup)
		r.goes(t, "after the backup")
		safety := r.Snapshot(t, pgserver.Frozen)
		r.Restore(t, old)
		r.asks(t, "the backup")
		// As much is written as was lost, and more: positions tell nothing any more.
		r.Exec(t, "create table filler as select g, repeat('x', 1000) from generate_series(1, 20000) g", "checkpoint")
		r.asks(t, "the backup, written to")
		r.restart(t)
		r.asks(t, "the backup, started again")
		r.accept(t)
		r.goes(t, "accepted")
		r.restart(t)
		r.goes(t, "started again")
		r.Restore(t, safety)
		r.asks(t, "the restore undone: it has every beat of its own history")
		r.accept(t)
		r.goes(t, "accepted again")
		r.Restore(t, old)
		r.asks(t, "the backup for the second time")
	})
}

// A reading is believed for a second. A server that comes back within it is checked all the same.
func TestALookIsNotBelievedOfAServerThatCameBack(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		r := withMemory(t, db)
		old := r.Snapshot(t, pgserver.Frozen)
		r.goes(t, "after the copy")
		e := r.executor(t)
		w := e.newWorker(0, newScheduler(endless{e}, e.memory, e.now))
		defer w.close()
		now := e.now()
		ask := func(want guard.Reason) {
			t.Helper()
			w.close()
			if err := w.connect(t.Context(), forever); err != nil {
				t.Fatal(err)
			}
			if a, err := w.guards.ask(t.Context(), w.session.Control, nil, now); err != nil || a.Reason != want {
				t.Errorf("the guards say %+v (%v), want %q", a, err, want)
			}
		}
		ask("")
		if w.guards.opened(w.session); !w.guards.fresh(now) {
			t.Error("a session with the same server makes the facts be read again")
		}
		r.Restore(t, old)
		ask(guard.HistoryChanged)
	})
}

func TestARunningExecutorAsksWhereACopyIsPutBelowIt(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		r := withMemory(t, db)
		arm(t, db, policies(policy("p", "public.sessions", "every: 100ms")))
		r.Exec(t, someDue)
		old := r.Snapshot(t, pgserver.Frozen)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		e := r.executor(t)
		go func() { ended <- e.Run(ctx) }()
		fixture.Eventually(t, "no due rows are left", func() bool { return one[int](t, r.DB, countDue) == 0 })
		r.Restore(t, old)
		fixture.Eventually(t, "the executor says that it has stopped", func() bool {
			return one[bool](t, r.DB, "select exists (select from lapse.worker where policy_id = 0 and state = 'stopped' and reason like '%older%')")
		})
		if n := one[int](t, r.DB, countDue); n != 7 {
			t.Errorf("of 7 due rows %d are left", n)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		r.asks(t, "after the executor has ended, which must not remember the copy")
	})
}

func TestAPromotedStandbyIsRememberedOnceItIsAccepted(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		r := withMemory(t, db)
		standby := r.Standby(t)
		standby.CatchUp(t, r.DB)
		r.Exec(t, "select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")
		standby.Promote(t)
		promoted := r.at(standby.DB)
		promoted.asks(t, "promoted")
		r.goes(t, "the former primary")
		promoted.asks(t, "promoted, behind the former primary")
		promoted.accept(t)
		promoted.goes(t, "accepted")
		promoted.restart(t)
		promoted.goes(t, "started again")
	})
}

func TestDatabasesOfOneServerAreRememberedEach(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		r := withMemory(t, db)
		r.Exec(t, "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
		other := *db
		other.Name, other.URL = db.Name+"_copy", r.Server.URL("postgres", db.Name+"_copy")
		admin := &pgtest.DB{Server: db.Server, Major: db.Major, Name: "postgres", URL: r.Server.URL("postgres", "postgres")}
		admin.Exec(t, fmt.Sprintf("create database %s template %s", other.Name, db.Name))
		copied := r.at(&other)
		copied.asks(t, "a database made from this one as a template, by the same server")
		r.goes(t, "the template")
		copied.accept(t)
		copied.goes(t, "accepted")
		r.restart(t)
		r.goes(t, "the template, after a restart")
		copied.goes(t, "the copy, after a restart")
		if files, err := filepath.Glob(filepath.Join(r.folder, "*.json")); err != nil || len(files) != 2 {
			t.Errorf("there are %v (%v), want two files", files, err)
		}
	})
}

func TestAServerMayBeReachedAtTwoAddresses(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		r := withMemory(t, db)
		old := r.Snapshot(t, pgserver.Frozen)
		socket := r.Server.SocketURL(schemas.RolesFor(schemas.DefaultRolePrefix).Executor, r.Name)
		for range 2 {
			if _, err := r.executorAt(t, socket).Once(t.Context(), nil); err != nil {
				t.Errorf("by the socket: %v", err)
			}
			r.goes(t, "by the port")
			r.restart(t)
			r.goes(t, "by the port, after a restart")
		}
		r.Restore(t, old)
		var refusal *guard.Refusal
		if _, err := r.executorAt(t, socket).Once(t.Context(), nil); !errors.As(err, &refusal) || refusal.Reason != guard.HistoryChanged {
			t.Errorf("by the socket, restored: %v", err)
		}
	})
}

func TestExecutorsMayShareAFolder(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		r := withMemory(t, db)
		old := r.Snapshot(t, pgserver.Frozen)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 5 {
					if _, err := r.executor(t).Once(t.Context(), nil); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		r.crash(t)
		r.goes(t, "after a crash")
		r.Restore(t, old)
		r.asks(t, "restored")
	})
}

func TestWhatAKilledExecutorLeavesIsNoReasonToAsk(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		r := withMemory(t, db)
		r.Exec(t, "update lapse.memory set beats = beats + 1") // committed, and not in the file yet
		if err := os.WriteFile(filepath.Join(r.folder, ".beat-123"), []byte(`{"address`), 0o600); err != nil {
			t.Fatal(err)
		}
		r.goes(t, "killed between the commit and the file")
		file := r.only(t)
		if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
			t.Errorf("the file: %v, %v", info.Mode(), err)
		}
		// What another program does to it stops deletion, and says what to do.
		if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.refuses(t, "the file has been emptied", guard.StateUnreadable)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		r.goes(t, "without a file there is nothing to compare")
		r.folder = "/proc/lapse"
		r.goes(t, "without a folder")
	})
}

// only is the one file of the folder.
func (r *keeper) only(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(r.folder, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("there are %v (%v), want one file", files, err)
	}
	return files[0]
}

// A container without a volume begins a memory with each start.
func TestOnlyTheNewestMemoriesAreKept(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		r := withMemory(t, db)
		mine := one[string](t, db, "select memory::text from lapse.memory")
		r.Exec(t, "insert into lapse.memory (memory, at) select gen_random_uuid(), clock_timestamp() + interval '1 hour' from generate_series(1, 98)")
		r.Exec(t, "set role lapse_executor; select lapse.remember(gen_random_uuid()); select lapse.remember(gen_random_uuid())")
		if n := one[int](t, db, "select count(*) from lapse.memory"); n != 100 {
			t.Errorf("%d memories are kept", n)
		}
		if one[bool](t, db, "select exists (select from lapse.memory where memory = $1)", mine) {
			t.Error("the oldest memory is kept")
		}
		r.asks(t, "forgotten: it cannot be told from a copy")
	})
}

// With an audit the log remembers: neither file nor row is written.
func TestWithAnAuditNothingIsRememberedBesideTheLog(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	sessions(t, db, 5, 5)
	arm(t, db, policies(policy("p", "public.sessions")))
	db.Exec(t, "update lapse.installation set audit_required = true")
	r := &keeper{db, t.TempDir()}
	if _, err := r.executor(t).Once(t.Context(), nil); err == nil {
		t.Error("something was deleted without an audit")
	}
	if files, _ := os.ReadDir(r.folder); len(files) > 0 || one[int](t, db, "select count(*) from lapse.memory") > 0 {
		t.Errorf("remembered: %v", files)
	}
}
