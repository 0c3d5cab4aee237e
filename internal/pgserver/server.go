package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"lapse/internal/child"
)

// Options say how a server is made. The zero value of each field but Install is a good one.
type Options struct {
	// Install is the PostgreSQL to run: see Find.
	Install Install
	// Dir holds data, socket and log, and stays when the server is closed. A cluster that is in it is started as it is:
	// Settings, HBA and InitArgs have no effect then. Empty: a temporary folder, which goes with the server.
	Dir string
	// Settings of postgresql.conf, over the defaults: wal_level=logical, room for 100 slots, fsync=off.
	Settings map[string]string
	// Env are further variables of the server's environment, such as LD_PRELOAD=....
	Env []string
	// HBA are lines of pg_hba.conf that come before those that trust the loopback address and the socket.
	HBA []string
	// InitArgs are further arguments for initdb, such as --encoding=SQL_ASCII.
	InitArgs []string
	// From is a cluster to copy instead of making one with initdb: of the same install. Settings are over those that it has.
	// Its system identifier is that of the other, as with Copy.Clone.
	From *Copy
	// Port on 127.0.0.1. Zero: a free one.
	Port int
}

// Mode is how a running server is asked to stop.
type Mode syscall.Signal

// The modes of pg_ctl stop.
const (
	Smart     = Mode(syscall.SIGTERM) // waits for every client to leave
	Fast      = Mode(syscall.SIGINT)  // disconnects clients; waits until walsenders' clients have confirmed everything
	Immediate = Mode(syscall.SIGQUIT) // leaves without a checkpoint; the next start recovers
)

// Server is one PostgreSQL server. Its methods are for one goroutine at a time, but for URL, SocketURL and the paths.
type Server struct {
	install   Install
	options   Options
	account   child.Account
	folder    *child.Folder // nil if the caller named one
	dir       string
	socketDir *child.Folder // nil if the socket fits into dir
	programs  *child.Folder // nil if the account may pass to the install
	binDir    string
	dataDir   string
	logFile   string
	port      int
	process   *child.Process // nil when it is not running
}

// maxSocketDir leaves room for "/.s.PGSQL.12345" in the 107 bytes of a Unix socket's address.
const maxSocketDir = 90

// Start makes a cluster and starts its server. It returns when the server takes connections. If the context ends
// before, nothing is left behind.
func Start(ctx context.Context, options Options) (*Server, error) {
	account, err := child.Unprivileged()
	if err != nil {
		return nil, err
	}
	s := &Server{install: options.Install, options: options, account: account, dir: options.Dir, port: options.Port}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare PostgreSQL %d: %w", s.install.Major, err), s.removeFolders())
	}
	if err := s.makeCluster(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("make a cluster of PostgreSQL %d: %w", s.install.Major, err), s.removeFolders())
	}
	if err := s.firstStart(ctx); err != nil {
		return nil, errors.Join(err, s.removeFolders())
	}
	return s, nil
}

// prepare chooses folders.
func (s *Server) prepare() (err error) {
	if s.dir == "" {
		if s.folder, err = child.NewFolder("pg"); err != nil {
			return err
		}
		s.dir = s.folder.Path
	}
	if s.dir, err = filepath.Abs(s.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	if err := s.account.Own(s.dir); err != nil {
		return err
	}
	if err := s.reachPrograms(); err != nil {
		return err
	}
	s.dataDir = filepath.Join(s.dir, "data")
	s.logFile = filepath.Join(s.dir, "postgres.log")
	if len(s.dir) > maxSocketDir {
		if s.socketDir, err = child.NewFolder("pgsocket"); err != nil {
			return err
		}
		return s.account.Own(s.socketDir.Path)
	}
	return nil
}

// firstStart starts the server on a port of its own choice, unless the caller chose one. Between choice and start
// somebody else may have taken it: then another.
func (s *Server) firstStart(ctx context.Context) (err error) {
	for try := 1; ; try++ {
		if s.options.Port == 0 {
			if s.port, err = child.FreePort(); err != nil {
				return err
			}
		}
		err = s.Start(ctx)
		if err == nil || ctx.Err() != nil || s.options.Port != 0 || child.PortIsFree(s.port) || try == 3 {
			return err
		}
	}
}

// Start starts the server again after Stop or Kill, with its data, its settings and its port. It returns when the server
// takes connections: after a crash, when recovery has ended. A standby takes them while it recovers; a recovery to a point
// in time is waited for.
func (s *Server) Start(ctx context.Context) error {
	if s.Running() {
		return fmt.Errorf("start PostgreSQL %d: it is running", s.install.Major)
	}
	log, err := s.openLog()
	if err != nil {
		return err
	}
	postgres := s.command("postgres", log,
		"-D", s.dataDir, "-p", strconv.Itoa(s.port), "-k", s.SocketDir(), "-h", "127.0.0.1")
	_, noSignal := os.Stat(filepath.Join(s.dataDir, recoverySignal))
	process, err := child.Start(postgres, syscall.SIGQUIT)
	if err = errors.Join(err, log.Close()); err != nil {
		return err
	}
	s.process = process
	err = s.waitReady(ctx)
	if err == nil && noSignal == nil {
		err = s.waitRecovered(ctx)
	}
	if err != nil {
		return errors.Join(
			fmt.Errorf("start PostgreSQL %d: %w\n%s", s.install.Major, err, child.Tail(s.logFile, 20)), s.Kill())
	}
	return nil
}

// waitReady waits for the postmaster's own word in postmaster.pid: no connection is needed, so none can be refused.
func (s *Server) waitReady(ctx context.Context) error {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !s.ready() {
		select {
		case <-poll.C:
		case <-s.process.Exited():
			return fmt.Errorf("it ended: %s", s.process.State())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (s *Server) ready() bool {
	lines := s.pidFile()
	return len(lines) > 7 && lines[0] == strconv.Itoa(s.process.PID()) && strings.TrimSpace(lines[7]) == "ready"
}

// pidFile is postmaster.pid by lines: 1 process id, 7 System V segment, 8 status. Nil if there is none.
func (s *Server) pidFile() []string {
	content, err := os.ReadFile(filepath.Join(s.dataDir, "postmaster.pid"))
	if err != nil {
		return nil
	}
	return strings.Split(string(content), "\n")
}

// Running says whether the postmaster is alive. A server may also end by itself.
func (s *Server) Running() bool {
	return s.process != nil && s.process.State() == nil
}

// Stop asks the server to stop and waits until it has. When the context ends first, the server still runs: it is the
// caller's to Stop in another mode, or to Kill.
func (s *Server) Stop(ctx context.Context, mode Mode) error {
	if !s.Running() {
		return nil
	}
	err := s.process.Signal(syscall.Signal(mode))
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop PostgreSQL %d: %w", s.install.Major, err)
	}
	if err := s.process.Wait(ctx); err != nil {
		return fmt.Errorf("stop PostgreSQL %d: %w", s.install.Major, err)
	}
	return nil
}

// Close ends the server at once and removes the folder that Start made. A folder named in Options stays.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if s.Frozen() || s.Stop(ctx, Immediate) != nil {
		if err := s.Kill(); err != nil {
			return err
		}
	}
	return errors.Join(s.removeSegment(), s.removeFolders())
}

func (s *Server) removeFolders() error {
	var errs []error
	for _, folder := range []*child.Folder{s.folder, s.socketDir, s.programs} {
		if folder != nil {
			errs = append(errs, folder.Remove())
		}
	}
	return errors.Join(errs...)
}

// URL connects to a database as a role over TCP.
func (s *Server) URL(role, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(role), Host: "127.0.0.1:" + strconv.Itoa(s.port), Path: "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// SocketURL connects to a database as a role over the Unix socket.
func (s *Server) SocketURL(role, database string) string {
	query := url.Values{"host": {s.SocketDir()}, "port": {strconv.Itoa(s.port)}}
	u := url.URL{Scheme: "postgres", User: url.User(role), Path: "/" + database, RawQuery: query.Encode()}
	return u.String()
}

// Install is the PostgreSQL that runs.
func (s *Server) Install() Install { return s.install }

// Port is the TCP port on 127.0.0.1. It stays for the server's life.
func (s *Server) Port() int { return s.port }

// PID is the postmaster's process id, or that of the last one.
func (s *Server) PID() int { return s.process.PID() }

// DataDir is the data directory.
func (s *Server) DataDir() string { return s.dataDir }

// SocketDir is where the Unix socket is.
func (s *Server) SocketDir() string {
	if s.socketDir != nil {
		return s.socketDir.Path
	}
	return s.dir
}

// LogFile is the server's log, initdb's output first. It goes with the folder.
func (s *Server) LogFile() string { return s.logFile }
