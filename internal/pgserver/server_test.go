package pgserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/fixture"
	"lapse/internal/pgserver"
	"lapse/internal/servers"
)

// parentEnv makes this test binary a parent that is about to be killed: see TestServersGoWhenTheirParentIsKilled.
const parentEnv = "LAPSE_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		parent()
	}
	os.Exit(m.Run())
}

func TestKilledServersKeepWhatWasCommitted(t *testing.T) {
	t.Parallel()
	each(t, pgserver.Options{}, func(t *testing.T, server *pgserver.Server) {
		exec1(t, server, "create table kept (id int)")
		open := connect(t, server)
		if _, err := open.Exec(t.Context(), "begin; insert into kept values (2)"); err != nil {
			t.Fatal(err)
		}
		exec1(t, server, "insert into kept values (1)")
		family := processesOf(t, server.DataDir())
		port := server.Port()

		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		for _, pid := range family {
			if inDataDir(pid, server.DataDir()) {
				t.Errorf("process %d outlived Kill", pid)
			}
		}
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if server.Port() != port {
			t.Errorf("port %d became %d", port, server.Port())
		}
		if got := query1(t, server, "select string_agg(id::text, ',') from kept"); got != "1" {
			t.Errorf("rows %q after the crash, want the committed one alone", got)
		}
		log, err := os.ReadFile(server.LogFile())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(log), "was not properly shut down") {
			t.Error("the server did not recover from a crash: it was shut down in good order")
		}
	})
}

func TestStopModesAreThoseOfPgCtl(t *testing.T) {
	t.Parallel()
	each(t, pgserver.Options{}, func(t *testing.T, server *pgserver.Server) {
		conn := connect(t, server)
		soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := server.Stop(soon, pgserver.Smart); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a smart stop did not wait for the client: %v", err)
		}
		if err := server.Stop(t.Context(), pgserver.Fast); err != nil {
			t.Fatal(err)
		}
		if err := conn.Ping(t.Context()); err == nil {
			t.Error("a client outlived a fast stop")
		}
		for _, mode := range []pgserver.Mode{pgserver.Immediate, pgserver.Smart} {
			if err := server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := server.Stop(t.Context(), mode); err != nil {
				t.Fatal(err)
			}
			if server.Running() {
				t.Errorf("the server runs after mode %d", mode)
			}
		}
	})
}

func TestSettingsAndAccessRulesAreTheCallers(t *testing.T) {
	t.Parallel()
	options := pgserver.Options{
		Settings: map[string]string{"max_replication_slots": "7", "application_name": "it's"},
		HBA:      []string{"host all stranger 127.0.0.1/32 reject"},
	}
	each(t, options, func(t *testing.T, server *pgserver.Server) {
		for name, want := range map[string]string{
			"max_replication_slots": "7", "wal_level": "logical", "application_name": "it's",
			"server_version": server.Install().Version,
		} {
			if got := query1(t, server, "select current_setting('"+name+"')"); !strings.HasPrefix(got, want) {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		exec1(t, server, "create role stranger login")
		_, err := pgx.Connect(t.Context(), server.URL("stranger", "postgres"))
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "28000" {
			t.Errorf("the stranger got %v, want a refusal (28000)", err)
		}
		overSocket, err := pgx.Connect(t.Context(), server.SocketURL("stranger", "postgres"))
		if err != nil {
			t.Fatal(err)
		}
		if err := overSocket.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestANamedFolderStaysAndIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	install := newest(t)
	// Two hundred characters: too long for a Unix socket, and below a folder that others may not pass through.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
	first := start(t, pgserver.Options{Install: install, Dir: dir})
	exec1(t, first, "create table kept (id int)")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := start(t, pgserver.Options{Install: install, Dir: dir})
	if got := query1(t, second, "select count(*)::text from kept"); got != "0" {
		t.Errorf("count is %s", got)
	}
}

func TestATemporaryFolderGoesWithTheServer(t *testing.T) {
	t.Parallel()
	server := start(t, pgserver.Options{Install: newest(t)})
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(server.LogFile()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the log is still there: %v", err)
	}
}

func TestAServerThatCannotStartSaysWhyAndLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := pgserver.Start(t.Context(), pgserver.Options{
		Install: newest(t), Dir: dir, Settings: map[string]string{"no_such_setting": "1"},
	})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("error %v does not have the server's own text", err)
	}
	if left := processesOf(t, filepath.Join(dir, "data")); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

func TestAVersionThatIsNotThereIsNotInstalled(t *testing.T) {
	t.Parallel()
	_, err := pgserver.Find(9)
	if !errors.Is(err, pgserver.ErrNotInstalled) || !strings.Contains(err.Error(), "make servers") {
		t.Errorf("error %v does not say what to do", err)
	}
}

func TestServersGoWhenTheirParentIsKilled(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), parentEnv+"="+t.TempDir())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stdin.Close() }()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dataDir, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(errors.Join(err, cmd.Wait()))
	}
	dataDir = strings.TrimSpace(dataDir)
	if len(processesOf(t, dataDir)) < 3 {
		t.Fatal("the child's server does not run")
	}

	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // Killed, as it should be.

	fixture.Eventually(t, "the server's processes go with the parent", func() bool { return len(processesOf(t, dataDir)) == 0 })
}

// parent starts a server, says where, and waits to be killed.
func parent() {
	found, err := pgserver.Installed()
	if err == nil {
		var server *pgserver.Server
		server, err = pgserver.Start(context.Background(), pgserver.Options{
			Install: found[len(found)-1], Dir: os.Getenv(parentEnv),
		})
		if err == nil {
			fmt.Println(server.DataDir())
			_, err = io.Copy(io.Discard, os.Stdin)
		}
	}
	fmt.Fprintln(os.Stderr, "parent:", err)
	os.Exit(1)
}

// each runs a test on every PostgreSQL of this machine that LAPSE_PG asks for.
func each(t *testing.T, options pgserver.Options, test func(*testing.T, *pgserver.Server)) {
	t.Helper()
	for _, install := range installed(t) {
		options.Install = install
		t.Run(fmt.Sprintf("pg%d", install.Major), func(t *testing.T) {
			test(t, start(t, options))
		})
	}
}

func newest(t *testing.T) pgserver.Install {
	t.Helper()
	found := installed(t)
	return found[len(found)-1]
}

func installed(t *testing.T) []pgserver.Install {
	t.Helper()
	found, err := pgserver.Installed()
	if err != nil {
		t.Fatal(err)
	}
	wanted, err := servers.WantedMajors(os.Getenv("LAPSE_PG"))
	if err != nil {
		t.Fatal(err)
	}
	found = slices.DeleteFunc(found, func(install pgserver.Install) bool { return !slices.Contains(wanted, install.Major) })
	if len(found) == 0 {
		fixture.Missing(t, fmt.Errorf("there is no PostgreSQL of %v: run make servers", wanted))
	}
	return found
}

func start(t *testing.T, options pgserver.Options) *pgserver.Server {
	t.Helper()
	server, err := pgserver.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return server
}

func connect(t *testing.T, server *pgserver.Server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL("postgres", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func exec1(t *testing.T, server *pgserver.Server, sql string) {
	t.Helper()
	conn := connect(t, server)
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func query1(t *testing.T, server *pgserver.Server, sql string) (value string) {
	t.Helper()
	conn := connect(t, server)
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return value
}

// processesOf are the living processes whose working directory is dir, as PostgreSQL's is its data directory.
func processesOf(t *testing.T, dir string) (pids []int) {
	t.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(filepath.Base(entry)); err == nil && inDataDir(pid, dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func inDataDir(pid int, dir string) bool {
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	return err == nil && cwd == dir && syscall.Kill(pid, 0) == nil
}

func TestAnInstallBelowAPrivateFolderCanBeRun(t *testing.T) {
	t.Parallel()
	install := newest(t)
	private := t.TempDir() // Root's alone, if this is root.
	copied := exec.Command("cp", "-r", filepath.Dir(install.BinDir), filepath.Join(private, "install"))
	if output, err := copied.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	install.BinDir = filepath.Join(private, "install", "bin")
	server := start(t, pgserver.Options{Install: install})
	if got := query1(t, server, "select 'here'"); got != "here" {
		t.Errorf("the server says %q", got)
	}
}
