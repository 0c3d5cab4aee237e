package pgtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lapse/internal/fixture"
	"lapse/internal/pgserver"
	"lapse/internal/servers"
)

// Runner runs the tests of a binary: *testing.M, or a wrapper of it such as another Runner or goleak's.
type Runner interface{ Run() int }

// Option says how this binary's servers are made, and how its tests run.
type Option func(*plan)

// plan is how a server is made, and how many tests run at a time.
type plan struct {
	settings map[string]string
	env      []string
	template func(ctx context.Context, superuserURL string) error
	atOnce   int
}

// AtOnce is how many tests run at a time, unless -parallel says otherwise: more than there are cores, since they wait for servers.
// Without it they are three.
func AtOnce(tests int) Option {
	return func(p *plan) { p.atOnce = tests }
}

// Template fills the database from which every test's database is copied. It runs once per server, as the superuser.
// Roles that it makes are there for all.
func Template(fill func(ctx context.Context, superuserURL string) error) Option {
	return func(p *plan) { p.template = fill }
}

// Settings of postgresql.conf, over those of pgserver and of this package.
func Settings(settings map[string]string) Option {
	return func(p *plan) {
		p.settings = maps.Clone(p.settings)
		maps.Copy(p.settings, settings)
	}
}

// Env are further variables of a server's environment.
func Env(pairs ...string) Option {
	return func(p *plan) { p.env = append(slices.Clone(p.env), pairs...) }
}

// defaultPlan makes sessions show that they pin what they depend on.
func defaultPlan() plan {
	return plan{
		settings: map[string]string{
			"timezone": "America/St_Johns", "datestyle": "SQL, DMY",
			"dynamic_shared_memory_type": "mmap", // a killed server leaves it in its folder, not in /dev/shm
		},
		template: func(context.Context, string) error { return nil },
		atOnce:   3,
	}
}

// binary is what a test binary's servers have in common. Tests find it through a package variable, because the testing
// package hands them nothing of TestMain's.
type binary struct {
	plan     plan
	wanted   []int                    // major versions that LAPSE_PG asks for, or all
	chosen   bool                     // LAPSE_PG asks for some
	present  map[int]pgserver.Install // wanted or not
	packaged *pgserver.Install        // the distribution's own, with JIT; nil if there is none

	mu      sync.Mutex
	shared  map[int]*sharedServer
	started []*sharedServer
}

var current *binary

// Main runs the tests and exits. It is the whole of a TestMain.
func Main(m Runner, options ...Option) { os.Exit(Wrap(m, options...).Run()) }

// Wrap is Main for a TestMain that has more to do, with goleak or kafkatest: its Run runs m and stops the servers.
func Wrap(m Runner, options ...Option) Runner {
	return wrapped{m: m, options: options}
}

type wrapped struct {
	m       Runner
	options []Option
}

// Run implements Runner.
func (w wrapped) Run() int {
	b, err := newBinary(w.options)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		return 1
	}
	current = b
	runAtOnce(b.plan.atOnce)
	code := w.m.Run()
	current = nil
	if err := b.stop(code != 0); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		return max(code, 1)
	}
	return code
}

// runAtOnce has so many tests run at a time, or as many as there are cores, unless -parallel says otherwise.
func runAtOnce(tests int) {
	flag.Parse()
	cores := runtime.GOMAXPROCS(0)
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(cores) {
		_ = f.Value.Set(strconv.Itoa(max(tests, cores)))
	}
}

func newBinary(options []Option) (*binary, error) {
	b := &binary{
		plan: defaultPlan(), present: map[int]pgserver.Install{}, shared: map[int]*sharedServer{},
		chosen: os.Getenv("LAPSE_PG") != "",
	}
	for _, option := range options {
		option(&b.plan)
	}
	var err error
	if b.wanted, err = servers.WantedMajors(os.Getenv("LAPSE_PG")); err != nil {
		return nil, err
	}
	found, err := pgserver.Installed()
	if err != nil {
		return nil, err
	}
	for _, install := range found {
		b.present[install.Major] = install
	}
	packaged, err := pgserver.FindPackaged()
	switch {
	case err == nil:
		b.packaged = &packaged
	case !errors.Is(err, pgserver.ErrNotInstalled):
		return nil, err
	}
	return b, nil
}

// with is the plan of the binary's servers with further options.
func (b *binary) with(options []Option) plan {
	p := b.plan
	for _, option := range options {
		option(&p)
	}
	return p
}

// of is this test binary's state.
func of(t testing.TB) *binary {
	t.Helper()
	if current == nil {
		t.Fatal("pgtest: this package needs func TestMain(m *testing.M) { pgtest.Main(m) }")
	}
	return current
}

// Majors are the major versions that the tests of this binary run on: asked for and present, oldest first.
func Majors(t testing.TB) []int {
	t.Helper()
	return of(t).here()
}

func (b *binary) here() []int {
	return slices.DeleteFunc(slices.Clone(b.wanted), func(major int) bool {
		_, present := b.present[major]
		return !present
	})
}

// runs are the versions that tests of no certain version are on: those that LAPSE_PG names or CI=true must have; elsewhere those that are here.
func (b *binary) runs() []int {
	if here := b.here(); !b.chosen && len(here) > 0 && os.Getenv("CI") != "true" {
		return here
	}
	return b.wanted
}

// Newest is the newest of Majors. Where there is none, the test is skipped, or fails with CI=true.
func Newest(t testing.TB) int {
	t.Helper()
	majors := Majors(t)
	if len(majors) == 0 {
		missing(t, "PostgreSQL "+fmt.Sprint(of(t).wanted), makeServers)
	}
	return majors[len(majors)-1]
}

// install is the server program for a test; if it is not there, the test ends here.
func (b *binary) install(t testing.TB, major int) pgserver.Install {
	t.Helper()
	b.want(t, major)
	install, present := b.present[major]
	if !present {
		missing(t, fmt.Sprintf("PostgreSQL %d", major), makeServers)
	}
	return install
}

// packagedInstall is the distribution's server program for a test; if it is not there, the test ends here.
func (b *binary) packagedInstall(t testing.TB) pgserver.Install {
	t.Helper()
	if b.packaged == nil {
		missing(t, "a packaged PostgreSQL with JIT", "apt-get install -y postgresql")
	}
	b.want(t, b.packaged.Major)
	return *b.packaged
}

// want ends a test of a version that LAPSE_PG leaves out.
func (b *binary) want(t testing.TB, major int) {
	t.Helper()
	if !slices.Contains(b.wanted, major) {
		t.Skipf("LAPSE_PG=%s leaves PostgreSQL %d out", os.Getenv("LAPSE_PG"), major)
	}
}

const makeServers = "make servers"

// missing ends a test, with the command that installs what it needs.
func missing(t testing.TB, what, command string) {
	t.Helper()
	fixture.Missing(t, fmt.Errorf("%s is not installed: run %s", what, command))
}

// sharedServer is started by the first test that asks for it, or for a server of its own: those are copies of it.
type sharedServer struct {
	once   sync.Once
	server *pgserver.Server
	fresh  *pgserver.Copy // of the moment when only the template was there
	err    error
}

func (b *binary) server(t testing.TB, major int) *sharedServer {
	t.Helper()
	install := b.install(t, major)
	b.mu.Lock()
	shared, found := b.shared[major]
	if !found {
		shared = &sharedServer{}
		b.shared[major] = shared
	}
	b.mu.Unlock()
	shared.once.Do(func() {
		// Not the test's context: the server is for all of them.
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if shared.err = shared.start(ctx, b.plan, install); shared.err == nil {
			b.mu.Lock()
			b.started = append(b.started, shared)
			b.mu.Unlock()
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared
}

// start starts the server, and copies it when nothing but the template is there.
func (s *sharedServer) start(ctx context.Context, p plan, install pgserver.Install) (err error) {
	if s.server, err = p.start(ctx, install); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := s.server.Stop(ctx, pgserver.Fast); err != nil {
		return err
	}
	if s.fresh, err = s.server.Snapshot(ctx, pgserver.Backup); err != nil {
		return err
	}
	if err := s.server.Start(ctx); err != nil {
		return err
	}
	// Nobody kills this server, and each database made or dropped is a checkpoint, after which every page would go whole into the
	// write-ahead log. The session leaves its relations' cache in the template, so that each copy's first one need not fill it.
	return execute(ctx, s.server.URL("postgres", templateName),
		"alter system set full_page_writes = off", "alter system set wal_init_zero = off", "select pg_reload_conf()")
}

func (s *sharedServer) close() error {
	err := s.server.Close()
	if s.fresh != nil {
		err = errors.Join(err, s.fresh.Close())
	}
	return err
}

// start starts a server and fills its template.
func (p plan) start(ctx context.Context, install pgserver.Install) (*pgserver.Server, error) {
	server, err := pgserver.Start(ctx, pgserver.Options{Install: install, Settings: p.settings, Env: p.env})
	if err != nil {
		return nil, err
	}
	announce(install)
	err = execute(ctx, server.URL("postgres", "postgres"), "create database "+templateName)
	if err == nil {
		err = p.template(ctx, server.URL("postgres", templateName))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fill the template on PostgreSQL %d: %w", install.Major, err), server.Close())
	}
	return server, nil
}

// announce tells the summary of make test (internal/testsummary) what the tests ran on.
func announce(install pgserver.Install) {
	with := ""
	if install.JIT {
		with = " with JIT"
	}
	fmt.Printf("\n%sPostgreSQL %s%s\n", servers.Announcement, install.Version, with)
}

// stop ends the shared servers. Their logs are kept if a test has failed.
func (b *binary) stop(failed bool) error {
	var errs []error
	for _, shared := range b.started {
		server := shared.server
		if failed {
			path, err := servers.KeepLog(server.LogFile(), fmt.Sprintf("%s-pg%d", binaryName(), server.Install().Major))
			errs = append(errs, err)
			fmt.Fprintf(os.Stderr, "PostgreSQL %d: log kept in %s\n", server.Install().Major, path)
		}
		errs = append(errs, shared.close())
	}
	return errors.Join(errs...)
}

func binaryName() string {
	return strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")
}
