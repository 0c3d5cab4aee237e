package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"lapse/internal/pgserver"
	"lapse/internal/servers"
)

func main() {
	b := bench{progress: os.Stderr}
	flag.StringVar(&b.lapse, "lapse", "bin/lapse", "the lapse `binary`")
	flag.IntVar(&b.major, "pg", 17, "major `version` of PostgreSQL")
	flag.IntVar(&b.rounds, "rounds", 5, "how often each way is measured")
	flag.IntVar(&b.warming, "warming", 4, "rounds before them that do not count: one of all ways, then of lapse audit into Kafka alone")
	flag.IntVar(&b.rows, "rows", 1_000_000, "rows of the backlog")
	flag.IntVar(&b.passing, "passing", 10_000_000, "rows that pass while memory is watched, in one transaction and in many; 0: none")
	flag.DurationVar(&b.lasts, "time", 10*time.Second, "how long rows are deleted at each rate")
	var o options
	flag.StringVar(&o.transports, "transports", "unix,tcp", "how the server is reached")
	flag.StringVar(&o.identities, "identity", "default", "what the log has of a deleted row: default (its key), columns (all of it, by an index), full (REPLICA IDENTITY FULL)")
	flag.BoolVar(&o.debezium, "debezium", true, "measure Debezium too, where the server is reached over TCP")
	flag.StringVar(&o.rates, "rates", "1000,10000,50000", "deletes a second at which it is measured how late events come; empty: none")
	flag.StringVar(&o.out, "o", "bench/out/slot.json", "the `file` for all figures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // A program of its own.
	err := b.run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "slot:", err)
		os.Exit(1) //nolint:forbidigo // A program of its own.
	}
}

// options are flags that are looked at before anything is measured.
type options struct {
	transports, identities, rates, out string
	debezium                           bool
}

// bench is what is measured, and with what.
type bench struct {
	lapse     string
	major     int
	install   pgserver.Install
	rounds    int
	warming   int
	rows      int
	passing   int
	lasts     time.Duration
	rates     []int
	scenarios []scenario
	debezium  string // its folder; empty: without
	progress  io.Writer
	dir       string // for keys and configuration
}

func (b *bench) run(ctx context.Context, o options) (err error) {
	if b.lapse, err = filepath.Abs(b.lapse); err != nil {
		return err
	}
	if _, err := os.Stat(b.lapse); err != nil {
		return fmt.Errorf("%w: build it with go build -o bin/lapse ./cmd/lapse", err)
	}
	if _, err := exec.LookPath("pg_recvlogical"); err != nil {
		return fmt.Errorf("%w: it is in Debian's postgresql package", err)
	}
	if b.rounds < 1 || b.warming < 1 || b.rows < 1 {
		return errors.New("-rounds, -warming and -rows: at least one")
	}
	if b.scenarios, err = parseScenarios(o.transports, o.identities); err != nil {
		return err
	}
	if b.rates, err = parseRates(o.rates); err != nil {
		return err
	}
	if o.debezium {
		if b.debezium, err = b.findDebezium(); err != nil {
			return err
		}
	}
	if b.install, err = pgserver.Find(b.major); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "lapse-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	r, err := b.measure(ctx)
	if len(r.Figures) == 0 {
		return err
	}
	return errors.Join(err, r.print(os.Stdout), r.write(o.out))
}

// parseRates reads the value of -rates.
func parseRates(value string) (rates []int, err error) {
	for text := range strings.SplitSeq(value, ",") {
		if text == "" {
			continue
		}
		rate, err := strconv.Atoi(text)
		if err != nil || rate < 1 {
			return nil, fmt.Errorf("-rates %q: whole numbers with commas between them", value)
		}
		rates = append(rates, rate)
	}
	return rates, nil
}

// measure returns what it measured, all of it or up to an error.
func (b *bench) measure(ctx context.Context) (*report, error) {
	r := &report{Rounds: b.rounds, Rows: b.rows, CPUs: runtime.NumCPU(), Server: b.install.Version}
	if b.debezium != "" {
		r.Debezium = servers.DebeziumRelease()
	}
	for i, of := range b.scenarios {
		if err := b.scenario(ctx, of, i == 0, r); err != nil {
			return r, fmt.Errorf("%s: %w", of, err)
		}
	}
	return r, nil
}

// scenario measures one scenario, on servers of its own. The first one has latencies and memory too.
func (b *bench) scenario(ctx context.Context, of scenario, first bool, r *report) (err error) {
	fmt.Fprintf(b.progress, "PostgreSQL %s, %s\n", b.install.Version, of)
	p, err := b.open(ctx, of)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	r.Broker = p.broker.Version()
	samples, err := b.drains(ctx, p)
	if err != nil {
		return err
	}
	r.add(of, b.ways(of), samples)
	if !first {
		return nil
	}
	if len(b.rates) > 0 && of.named() { // an event is known by its row
		if r.Latencies, err = b.latencies(ctx, p); err != nil {
			return err
		}
	}
	if b.passing == 0 {
		return nil
	}
	r.Passing, err = b.passings(ctx, p)
	return err
}
