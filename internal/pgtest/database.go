package pgtest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/child"
	"lapse/internal/pgserver"
	"lapse/schemas"
)

const templateName = "lapse_test_template"

// DB is one test's database.
type DB struct {
	// URL connects as the superuser, over TCP. See As for others, and Server.SocketURL for the Unix socket.
	URL   string
	Name  string
	Major int
	// Server is shared with other tests, unless the database came from Solo.
	Server *pgserver.Server

	shared bool
	roles  []string
}

// Each runs a test on the oldest and the newest version of PostgreSQL, each with a database of its own, as parallel subtests named
// pg14, pg18; every third, as its name decides, on one of those between too, so that a package's tests are on all of them.
// Where LAPSE_PG says which, it runs on each of those, and one that is missing is a skipped subtest; with CI=true it fails. Otherwise
// the versions are those that are here.
func Each(t *testing.T, test func(t *testing.T, db *DB)) {
	t.Helper()
	On(t, of(t).some(t.Name()), test)
}

// Every is Each on every version that there is: for what PostgreSQL may decide differently in any of them, such as plans.
func Every(t *testing.T, test func(t *testing.T, db *DB)) {
	t.Helper()
	On(t, of(t).runs(), test)
}

// some are the oldest, the newest and perhaps one of the versions between them, unless the environment chose.
func (b *binary) some(name string) []int {
	runs := b.runs()
	if b.chosen || len(runs) < 4 {
		return runs
	}
	return drawn(runs, name)
}

func drawn(majors []int, name string) []int {
	first, last := majors[0], majors[len(majors)-1]
	between := majors[1 : len(majors)-1]
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	if h.Sum32()%3 != 0 {
		return []int{first, last}
	}
	return []int{first, between[int(h.Sum32()/3)%len(between)], last}
}

// On is Each for some major versions.
func On(t *testing.T, majors []int, test func(t *testing.T, db *DB)) {
	t.Helper()
	perMajor(t, majors, func(t *testing.T, major int) { test(t, New(t, major)) })
}

// OnSolo is On with a private server for each subtest: for tests that stop or kill it.
func OnSolo(t *testing.T, majors []int, test func(t *testing.T, db *DB), options ...Option) {
	t.Helper()
	perMajor(t, majors, func(t *testing.T, major int) { test(t, Solo(t, major, options...)) })
}

func perMajor(t *testing.T, majors []int, test func(t *testing.T, major int)) {
	t.Helper()
	of(t)
	for _, major := range majors {
		t.Run(fmt.Sprintf("pg%d", major), func(t *testing.T) {
			t.Parallel()
			test(t, major)
		})
	}
}

// New makes a database for the test, on the shared server of that major version.
func New(t testing.TB, major int) *DB {
	t.Helper()
	return newDB(t, of(t).server(t, major).server)
}

// Solo starts a server for this test alone, a copy of the shared one as it was before the first test, with further Settings, and a
// database on it. All copies have one system identifier. Its log is shown if the test fails.
func Solo(t testing.TB, major int, options ...Option) *DB {
	t.Helper()
	shared, p := of(t).server(t, major), of(t).with(options)
	install := shared.server.Install()
	server, err := pgserver.Start(t.Context(), pgserver.Options{Install: install, Settings: p.settings, Env: p.env, From: shared.fresh})
	if err != nil {
		t.Fatal(err)
	}
	announce(install)
	return solo(t, server)
}

// Packaged is Solo on the distribution's own server, which has JIT, with JIT on as its package has it: what most
// databases run on. Where it is missing the test is skipped, or fails with CI=true.
func Packaged(t testing.TB, options ...Option) *DB {
	t.Helper()
	b := of(t)
	install := b.packagedInstall(t)
	server, err := b.with(append([]Option{Settings(map[string]string{"jit": "on"})}, options...)).start(t.Context(), install)
	if err != nil {
		t.Fatal(err)
	}
	db := solo(t, server)
	var compiles bool
	if err := db.Connect(t).QueryRow(t.Context(), "select pg_jit_available()").Scan(&compiles); err != nil {
		t.Fatal(err)
	}
	if !compiles {
		t.Fatalf("PostgreSQL %s of %s cannot load its JIT compiler: the server's log says why", install.Version, install.BinDir)
	}
	return db
}

// solo makes a database on a server that goes with the test.
func solo(t testing.TB, server *pgserver.Server) *DB {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", child.Tail(server.LogFile(), 60))
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	db := &DB{Server: server, Major: server.Install().Major, Name: databaseName()}
	db.URL = server.URL("postgres", db.Name)
	create(t, db)
	return db
}

func newDB(t testing.TB, server *pgserver.Server) *DB {
	t.Helper()
	db := &DB{Server: server, Major: server.Install().Major, Name: databaseName(), shared: true}
	db.URL = server.URL("postgres", db.Name)
	create(t, db)
	t.Cleanup(func() {
		if err := db.drop(); err != nil {
			t.Errorf("drop %s: %v", db.Name, err)
		}
	})
	return db
}

var databases atomic.Int64

func databaseName() string {
	return fmt.Sprintf("test_%d", databases.Add(1))
}

func create(t testing.TB, db *DB) {
	t.Helper()
	sql := "create database " + db.Name + " template " + templateName
	if db.Major >= 15 {
		sql += " strategy file_copy" // as before: through the buffers and the write-ahead log costs twice as much
	}
	if err := execute(t.Context(), db.Server.URL("postgres", "postgres"), sql); err != nil {
		t.Fatal(err)
	}
}

// As is the URL of this database for another role, over TCP. No password is asked for.
func (db *DB) As(role string) string { return db.Server.URL(role, db.Name) }

// NewRole makes a role that belongs to this database's test, and returns its name: suffix after the database's name.
// The attributes are those of CREATE ROLE. The role may log in, and goes with the database.
func (db *DB) NewRole(t testing.TB, suffix string, attributes ...string) string {
	t.Helper()
	role := db.Name + "_" + suffix
	db.Exec(t, "create role "+schemas.Identifier(role)+" login "+strings.Join(attributes, " "))
	db.roles = append(db.roles, role)
	return role
}

// Connect opens a connection as the superuser. It is closed when the test ends.
func (db *DB) Connect(t testing.TB) *pgx.Conn {
	t.Helper()
	return db.ConnectAs(t, "postgres")
}

// ConnectAs opens a connection as a role. It is closed when the test ends.
func (db *DB) ConnectAs(t testing.TB, role string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.As(role))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Exec runs statements as the superuser, each in a transaction of its own (and a text of several in one). The test ends
// at the first that fails.
func (db *DB) Exec(t testing.TB, statements ...string) {
	t.Helper()
	if err := execute(t.Context(), db.URL, statements...); err != nil {
		t.Fatal(err)
	}
}

// execute runs statements over a connection of its own.
func execute(ctx context.Context, url string, statements ...string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	for _, sql := range statements {
		// The simple protocol takes several statements in one text.
		if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			return fmt.Errorf("%w\nin: %s", err, sql)
		}
	}
	return nil
}

// drop ends every session of the database, walsenders too, and drops its slots, the database, and its test's roles. The
// test's own context has ended by now.
func (db *DB) drop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, db.Server.URL("postgres", "postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := db.dropSlots(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "drop database if exists "+db.Name+" with (force)"); err != nil {
		return err
	}
	for _, role := range db.roles {
		if _, err := conn.Exec(ctx, "drop role if exists "+schemas.Identifier(role)); err != nil {
			return err
		}
	}
	return nil
}

// dropSlots drops the slots of the database. A slot in use cannot be dropped, and is free a moment after its walsender
// was told to end.
func (db *DB) dropSlots(ctx context.Context, conn *pgx.Conn) error {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		var slots int
		err := conn.QueryRow(ctx, `
			select count(*) + count(pg_terminate_backend(active_pid))
			  from pg_replication_slots
			 where database = $1 and active_pid is not null`, db.Name).Scan(&slots)
		if err != nil {
			return err
		}
		if slots == 0 {
			break
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	_, err := conn.Exec(ctx, `
		select pg_drop_replication_slot(slot_name)
		  from pg_replication_slots
		 where database = $1`, db.Name)
	return err
}
