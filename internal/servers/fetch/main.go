package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"lapse/internal/kafkaserver"
	"lapse/internal/pgserver"
	"lapse/internal/servers"
)

func main() {
	onlyDebezium := flag.Bool("debezium", false, "fetch Debezium and Kafka Connect, and nothing else")
	forDemo := flag.Bool("demo", false, "fetch what the demonstration lacks: a PostgreSQL if there is none, Kafka if there are Java and Maven")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *onlyDebezium, *forDemo); err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, onlyDebezium, forDemo bool) error {
	dir, err := servers.Dir()
	if err != nil {
		return err
	}
	majors, err := servers.WantedMajors(os.Getenv("LAPSE_PG"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	if forDemo {
		list, err := wantedForDemo(dir)
		if err != nil {
			return err
		}
		return fetchMissing(ctx, list, adviceForServers)
	}
	if onlyDebezium {
		return fetchMissing(ctx, []server{debezium(dir)}, adviceForDebezium)
	}
	if err := fetchMissing(ctx, wanted(dir, majors), adviceForServers); err != nil {
		return err
	}
	return kafkaserver.ArchiveClasses(ctx)
}

// wanted are the servers to have in dir: Kafka, and PostgreSQL in these major versions.
func wanted(dir string, majors []int) []server {
	list := []server{kafka(dir)}
	for _, pin := range servers.PostgresPins() {
		if slices.Contains(majors, pin.Major) {
			list = append(list, postgres(dir, pin))
		}
	}
	return list
}

// wantedForDemo are what the demonstration cannot do without, and Kafka where it can run.
func wantedForDemo(dir string) (list []server, err error) {
	installed, err := pgserver.Installed()
	if err != nil {
		return nil, err
	}
	if len(installed) == 0 {
		pins := servers.PostgresPins()
		list = append(list, postgres(dir, pins[len(pins)-1]))
	}
	_, noJava := exec.LookPath("java")
	if _, noMaven := exec.LookPath("mvn"); noJava == nil && noMaven == nil {
		list = append(list, kafka(dir))
	}
	return list, nil
}

// fetchMissing fetches what is not complete. One that fails does not keep the others from being fetched.
func fetchMissing(ctx context.Context, wanted []server, otherwise advice) error {
	var missing []server
	for _, s := range wanted {
		if !servers.Complete(s.folder, s.release) {
			missing = append(missing, s)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	for _, tool := range []struct{ name, install string }{
		{"mvn", "apt-get install -y maven"},
		{"tar", "apt-get install -y tar"},
		{"xz", "apt-get install -y xz-utils"},
	} {
		if tool.name == "mvn" && !slices.ContainsFunc(missing, func(s server) bool { return s.needsMaven }) {
			continue
		}
		if _, err := exec.LookPath(tool.name); err != nil {
			return fmt.Errorf("%s is missing, so %s cannot be fetched; install it with: %s\n%s",
				tool.name, names(missing), tool.install, otherwise.meanwhile)
		}
	}
	var failed []error
	for _, s := range missing {
		fmt.Printf("fetching %s\n", s.release)
		if err := s.fetch(ctx); err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("%w\n%s\n%s", errors.Join(failed...), otherwise.retry, otherwise.meanwhile)
}

// advice is for a machine that cannot fetch.
type advice struct {
	retry     string // what helps where Maven does not reach its repository
	meanwhile string // how it goes on until then
}

var (
	adviceForServers = advice{
		retry: "run make servers again once Maven reaches its repository (a mirror goes into ~/.m2/settings.xml, or for PostgreSQL alone into LAPSE_MAVEN_URL), " +
			"set LAPSE_SERVERS to a .servers folder that another clone has filled, or leave PostgreSQL versions out with LAPSE_PG",
		meanwhile: "until then the tests use the PostgreSQL of this system (/usr/lib/postgresql), if there is one",
	}
	adviceForDebezium = advice{
		retry: "run make debezium again once Maven reaches its repository (a mirror goes into ~/.m2/settings.xml), " +
			"or set LAPSE_SERVERS to a .servers folder that another clone has filled",
		meanwhile: "until then make bench-slot measures the rest",
	}
)

func names(list []server) string {
	text := ""
	for i, s := range list {
		if i > 0 {
			text += ", "
		}
		text += s.release
	}
	return text
}

// server is one thing to fetch.
type server struct {
	release string // as the stamp names it
	folder  string // its place
	unpack  func(ctx context.Context, into string) error

	needsMaven bool // what it is made of only Maven knows
}

// fetch puts the server in its place.
//
//	crash before the rename    a folder *.partial, which the next fetch removes
//	crash after it             the server is complete
func (s server) fetch(ctx context.Context) error {
	partial := s.folder + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	if err := os.MkdirAll(partial, 0o755); err != nil {
		return err
	}
	if err := s.unpack(ctx, partial); err != nil {
		return fmt.Errorf("fetch %s: %w", s.release, err)
	}
	if err := servers.Stamp(partial, s.release); err != nil {
		return err
	}
	if err := os.RemoveAll(s.folder); err != nil {
		return err
	}
	return os.Rename(partial, s.folder)
}

func postgres(dir string, pin servers.PostgresPin) server {
	return server{
		release: servers.PostgresRelease(pin),
		folder:  servers.PostgresDir(dir, pin.Major),
		unpack:  func(ctx context.Context, into string) error { return unpackPostgres(ctx, pin, into) },
	}
}

func kafka(dir string) server {
	return server{
		release: servers.KafkaRelease(),
		folder:  servers.KafkaDir(dir),
		unpack:  unpackKafka, needsMaven: true,
	}
}

func debezium(dir string) server {
	return server{
		release: servers.DebeziumRelease(),
		folder:  servers.DebeziumDir(dir),
		unpack:  unpackDebezium, needsMaven: true,
	}
}

// lock keeps two fetches in one folder apart: two test runs may start at once.
func lock(dir string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}
