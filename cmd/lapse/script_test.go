package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/planner/database"
)

// TestTheCommandLine runs the scripts of testdata, each with a database of its own, and with Kafka where the script's
// name begins with "line".
//
// Beside testscript's own commands there are:
//
//	exits CODE COMMAND...    runs a command that must exit with CODE
//	sql [-as ROLE] TEXT      runs SQL, as the superuser or a role, and leaves the rows in stdout
//	sqlfile FILE             runs a script of SQL as the superuser
//	until SQL                waits until a query of one boolean says true
//	lines N COMMAND...       runs a command again until it prints N lines
func TestTheCommandLine(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t, pgtest.Newest(t))
			s := &script{t: t, db: db}
			if strings.HasPrefix(name, "line") {
				s.brokers = kafkatest.Broker(t).Addr()
			}
			testscript.Run(t, testscript.Params{
				Files: []string{file}, Setup: s.setup, RequireExplicitExec: true, RequireUniqueNames: true,
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"exits": s.exits, "sql": s.sql, "sqlfile": s.sqlFile, "until": s.until, "lines": s.lines,
				},
			})
		})
	}
}

type script struct {
	t       *testing.T
	db      *pgtest.DB
	brokers string
}

func (s *script) setup(env *testscript.Env) error {
	env.Setenv("LAPSE_DATABASE_URL", s.db.URL)
	env.Vars = append(env.Vars, allowSuperuser)
	env.Setenv("LAPSE_KAFKA_BROKERS", s.brokers)
	env.Setenv("DB", s.db.Name)
	env.Setenv("DATABASE", s.db.URL)
	env.Setenv("VERSION", readVersions().Version)
	env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, "config"))
	env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
	for _, role := range []string{"app", "nobody"} {
		env.Setenv(strings.ToUpper(role), s.db.NewRole(s.t, role))
	}
	env.Setenv("NOBODY_URL", s.db.As(s.db.Name+"_nobody"))
	env.Setenv("EXECUTOR_URL", s.db.As("lapse_executor"))
	env.Setenv("AUDITOR_URL", s.db.As("lapse_auditor"))
	prefix := fmt.Sprintf("roles: { prefix: p_%s_ }\n", s.db.Name)
	if err := os.WriteFile(filepath.Join(env.WorkDir, "prefix.yaml"), []byte(prefix), 0o600); err != nil {
		return err
	}
	topics := fmt.Sprintf("topics: { system: %[1]s.system, user: %[1]s.user, log: %[1]s.log, partitions: 3 }\n", s.db.Name)
	return os.WriteFile(filepath.Join(env.WorkDir, "topics.yaml"), []byte(topics), 0o600)
}

func (s *script) exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if code != want {
		ts.Fatalf("%s exited with %d, want %d\nstdout: %s\nstderr: %s", strings.Join(args[1:], " "), code, want,
			ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
	ts.Check(checkEnvelope(args, ts.ReadFile("stdout")))
}

const scriptTimeout = time.Minute

func (s *script) connect(ts *testscript.TestScript, role string) (context.Context, *pgx.Conn) {
	ctx, cancel := context.WithTimeout(s.t.Context(), scriptTimeout)
	ts.Defer(cancel)
	conn, err := pgx.Connect(ctx, s.db.As(role))
	ts.Check(err)
	return ctx, conn
}

func (s *script) sql(ts *testscript.TestScript, neg bool, args []string) {
	role := "postgres"
	if len(args) == 3 && args[0] == "-as" {
		role, args = args[1], args[2:]
	}
	if len(args) != 1 {
		ts.Fatalf("usage: sql [-as ROLE] TEXT")
	}
	ctx, conn := s.connect(ts, role)
	defer database.Close(conn)
	results, err := conn.PgConn().Exec(ctx, args[0]).ReadAll()
	if (err != nil) != neg {
		ts.Fatalf("sql: %v", err)
	}
	if err != nil {
		fmt.Fprintln(ts.Stderr(), err)
	}
	for _, result := range results {
		for _, row := range result.Rows {
			texts := make([]string, len(row))
			for i, value := range row {
				texts[i] = string(value)
			}
			fmt.Fprintln(ts.Stdout(), strings.Join(texts, "|"))
		}
	}
}

func (s *script) sqlFile(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: sqlfile FILE")
	}
	s.sql(ts, neg, []string{strings.TrimPrefix(ts.ReadFile(args[0]), stopOnError)})
}

func (s *script) lines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: lines N COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(s.t.Context(), scriptTimeout)
	defer cancel()
	got := 0
	err = eventually(ctx, func() (bool, error) {
		if err := ts.Exec(args[1], args[2:]...); err != nil {
			return false, err
		}
		if got = strings.Count(ts.ReadFile("stdout"), "\n"); got > want {
			return false, errors.New("too many")
		}
		return got == want, nil
	})
	if err != nil {
		ts.Fatalf("%d lines, want %d: %v\n%s", got, want, err, ts.ReadFile("stdout"))
	}
}

func (s *script) until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: until SQL")
	}
	ctx, conn := s.connect(ts, "postgres")
	defer database.Close(conn)
	ts.Check(untilTrue(ctx, conn, args[0]))
}

// untilTrue waits until a query of one boolean says true.
func untilTrue(ctx context.Context, conn *pgx.Conn, query string, args ...any) error {
	err := eventually(ctx, func() (done bool, err error) {
		err = conn.QueryRow(ctx, query, args...).Scan(&done)
		return done, err
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("waited in vain for %s: %w", query, ctx.Err())
	}
	return err
}
