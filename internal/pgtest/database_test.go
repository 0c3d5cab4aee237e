package pgtest_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
)

func TestMain(m *testing.M) {
	pgtest.Main(m, pgtest.Template(func(ctx context.Context, superuserURL string) error {
		conn, err := pgx.Connect(ctx, superuserURL)
		if err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "create table from_template (id int)"); err != nil {
			return err
		}
		return conn.Close(ctx)
	}))
}

func TestEachTestHasADatabaseOfItsOwnMadeFromTheTemplate(t *testing.T) {
	t.Parallel()
	for range 2 {
		pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
			db.Exec(t, "insert into from_template values (1)")
			var rows int
			var version string
			err := db.Connect(t).QueryRow(t.Context(),
				"select count(*), current_setting('server_version') from from_template").Scan(&rows, &version)
			if err != nil {
				t.Fatal(err)
			}
			if rows != 1 {
				t.Errorf("%d rows: the database is not this test's own", rows)
			}
			if !strings.HasPrefix(version, fmt.Sprint(db.Major)) {
				t.Errorf("server version %s in the subtest for %d", version, db.Major)
			}
		})
	}
}

func TestADatabaseGoesWithItsSessionsSlotsAndRoles(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, observer *pgtest.DB) {
		var name, role string
		t.Run("used", func(t *testing.T) {
			db := pgtest.New(t, observer.Major)
			name, role = db.Name, db.NewRole(t, "app", "nosuperuser")
			db.Exec(t, "create table owned (id int)", "alter table owned owner to "+role)
			openSlot(t, db, db.Name+"_active")
			db.Exec(t, "select pg_create_logical_replication_slot('"+db.Name+"_idle', 'pgoutput')")
			leftOpen, err := pgx.Connect(context.Background(), db.As(role))
			if err != nil {
				t.Fatal(err)
			}
			if err := leftOpen.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
		var left string
		err := observer.Connect(t).QueryRow(t.Context(), `
			select concat_ws(' ',
				(select string_agg('database ' || datname, ' ') from pg_database where datname = $1),
				(select string_agg('slot ' || slot_name, ' ') from pg_replication_slots where slot_name ~ ('^' || $1 || '_')),
				(select string_agg('role ' || rolname, ' ') from pg_roles where rolname = $2))`, name, role).Scan(&left)
		if err != nil {
			t.Fatal(err)
		}
		if left != "" {
			t.Errorf("left behind: %s", left)
		}
	})
}

// openSlot streams from a slot and leaves the connection open.
func openSlot(t *testing.T, db *pgtest.DB, slot string) {
	t.Helper()
	db.Exec(t, "create publication p", "select pg_create_logical_replication_slot('"+slot+"', 'pgoutput')")
	conn, err := pgconn.Connect(context.Background(), db.URL+"&replication=database")
	if err != nil {
		t.Fatal(err)
	}
	start := fmt.Sprintf(`start_replication slot %s logical 0/0 (proto_version '1', publication_names 'p')`, slot)
	conn.Frontend().SendQuery(&pgproto3.Query{String: start})
	if err := conn.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ReceiveMessage(t.Context()); err != nil { // CopyBothResponse: the slot is in use.
		t.Fatal(err)
	}
}

func TestASoloServerIsNobodyElses(t *testing.T) {
	t.Parallel()
	major := pgtest.Newest(t)
	shared := pgtest.New(t, major)
	solo := pgtest.Solo(t, major, pgtest.Settings(map[string]string{"max_replication_slots": "3"}))
	if solo.Server.PID() == shared.Server.PID() {
		t.Fatal("the server is shared")
	}
	solo.Exec(t, "insert into from_template values (1)")
	if err := solo.Server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := solo.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var rows int
	var slots string
	err := solo.Connect(t).QueryRow(t.Context(),
		"select count(*), current_setting('max_replication_slots') from from_template").Scan(&rows, &slots)
	if err != nil {
		t.Fatal(err)
	}
	if rows != 1 || slots != "3" {
		t.Errorf("%d rows and %s slots, want 1 and 3", rows, slots)
	}
}

func TestThePackagedServerCompilesWhatIsDear(t *testing.T) {
	t.Parallel()
	db := pgtest.Packaged(t)
	conn := db.Connect(t)
	for cost, want := range map[string]bool{"default": false, "0": true} {
		if _, err := conn.Exec(t.Context(), "set jit_above_cost = "+cost); err != nil {
			t.Fatal(err)
		}
		rows, err := conn.Query(t.Context(), "explain analyze select count(*) from from_template")
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(plan, "JIT:") != want {
			t.Errorf("with jit_above_cost = %s:\n%s", cost, strings.Join(plan, "\n"))
		}
	}
}

func TestSessionsThatPinNothingAreShownTheirMistake(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		var zone, style string
		err := db.Connect(t).QueryRow(t.Context(),
			"select current_setting('timezone'), current_setting('datestyle')").Scan(&zone, &style)
		if err != nil {
			t.Fatal(err)
		}
		if zone == "UTC" || style == "ISO, MDY" {
			t.Errorf("time zone %s and date style %s are the usual ones", zone, style)
		}
	})
}

func TestAMissingVersionIsSkippedAndFailsWithCI(t *testing.T) {
	const absent = 9
	t.Setenv("CI", "")
	t.Setenv("LAPSE_PG", "")
	ask := func(wanted ...int) string {
		return outcome(t, func(t testing.TB) { pgtest.NewWanting(t, wanted, absent) })
	}
	if got := ask(); got != "skipped: LAPSE_PG= leaves PostgreSQL 9 out" {
		t.Errorf("a version that nobody asks for: %s", got)
	}
	if _, err := pgserver.Find(absent); err == nil {
		t.Fatal("there is a PostgreSQL 9")
	}
	if got := ask(absent); got != "skipped: PostgreSQL 9 is not installed: run make servers" {
		t.Errorf("without CI: %s", got)
	}
	t.Setenv("CI", "true")
	if got := ask(absent); got != "failed: PostgreSQL 9 is not installed: run make servers" {
		t.Errorf("with CI=true: %s", got)
	}
}

func TestAMissingPackagedServerIsSkippedAndFailsWithCI(t *testing.T) {
	t.Setenv("CI", "")
	if got := outcome(t, pgtest.PackagedWithoutOne); got != "skipped: a packaged PostgreSQL with JIT is not installed: run apt-get install -y postgresql" {
		t.Errorf("without CI: %s", got)
	}
	t.Setenv("CI", "true")
	if got := outcome(t, pgtest.PackagedWithoutOne); got != "failed: a packaged PostgreSQL with JIT is not installed: run apt-get install -y postgresql" {
		t.Errorf("with CI=true: %s", got)
	}
}

// outcome says how a test that asks for a server ends.
func outcome(t *testing.T, ask func(t testing.TB)) string {
	t.Helper()
	recorder := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ask(recorder)
	}()
	<-done
	return recorder.outcome
}

// recorder is a test that notes how it was ended.
type recorder struct {
	testing.TB
	outcome string
}

func (r *recorder) Skipf(format string, args ...any) {
	r.end("skipped: ", fmt.Sprintf(format, args...))
}
func (r *recorder) Skip(args ...any)  { r.end("skipped: ", fmt.Sprint(args...)) }
func (r *recorder) Fatal(args ...any) { r.end("failed: ", fmt.Sprint(args...)) }

func (r *recorder) end(how, text string) {
	r.outcome = how + text
	runtime.Goexit()
}

func TestEachIsOnTheOldestTheNewestAndSometimesOneBetween(t *testing.T) {
	t.Parallel()
	majors := pgtest.Majors(t)
	seen, three := map[int]bool{}, 0
	var mu sync.Mutex
	t.Run("forty", func(t *testing.T) {
		for i := range 40 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				var of []int
				t.Run("versions", func(t *testing.T) {
					pgtest.Each(t, func(_ *testing.T, db *pgtest.DB) {
						mu.Lock()
						defer mu.Unlock()
						of, seen[db.Major] = append(of, db.Major), true
					})
				})
				if len(of) > 2 {
					three++
				}
				if !slices.Contains(of, majors[0]) || !slices.Contains(of, majors[len(majors)-1]) {
					t.Errorf("it ran on %v, of %v", of, majors)
				}
			})
		}
	})
	if len(seen) != len(majors) {
		t.Errorf("forty tests ran on %v, of %v", seen, majors)
	}
	if os.Getenv("LAPSE_PG") == "" && three > 20 {
		t.Errorf("%d of forty ran on three versions", three)
	}
}
