package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"lapse/internal/pgserver"
)

func main() {
	p := plan{progress: os.Stderr}
	flag.StringVar(&p.lapse, "lapse", "bin/lapse", "the lapse `binary`")
	flag.IntVar(&p.major, "pg", 17, "major `version` of PostgreSQL")
	flag.IntVar(&p.rounds, "rounds", 5, "how often each way is measured")
	flag.IntVar(&p.app.connections, "connections", 4, "the application's connections")
	flag.IntVar(&p.app.rate, "rate", 0, "the application's transactions per second; 0: as many as it gets answers to")
	flag.IntVar(&p.app.accounts, "accounts", 200_000, "the application's accounts")
	flag.DurationVar(&p.app.lasts, "time", 15*time.Second, "how long the application runs")
	flag.DurationVar(&p.app.warm, "warm", 3*time.Second, "how long the application runs each time before it is measured")
	flag.IntVar(&p.due, "due", 4_000_000, "rows that are due before each run; what is measured ends when they are gone")
	flag.IntVar(&p.workers, "workers", 2, "limits.workers of lapse.yaml")
	disks := flag.String("disks", "fast,slow", "disks")
	tables := flag.String("tables", "other,own", "where the accounts are: in another table, or among the rows of the policy's own")
	beside := flag.String("paces", strings.Join(paces, ","), "the paces that it is measured beside")
	out := flag.String("o", "bench/out/pace.json", "the `file` for all figures")
	quick := flag.Bool("quick", false, "one short round: does it work?")
	flag.Parse()
	if *quick {
		p.rounds, p.app.lasts, p.app.accounts, p.due = 1, time.Second, 1000, 300_000
		p.app.warm = 100 * time.Millisecond
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // A program of its own.
	p.ways = append([]string{alone}, strings.Split(*beside, ",")...)
	err := run(ctx, &p, *disks, *tables, *out)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "pace:", err)
		os.Exit(1) //nolint:forbidigo // A program of its own.
	}
}

// plan is what is measured, and with what.
type plan struct {
	lapse     string
	major     int
	rounds    int
	due       int
	workers   int
	app       app
	ways      []string
	scenarios []scenario
	progress  io.Writer
	dir       string // for keys and configuration
}

// scenario is a disk, and where the accounts are.
type scenario struct {
	Disk  string `json:"disk"`
	Table string `json:"table"`
}

func (s scenario) String() string { return s.Disk + " disk, " + s.Table + " table" }

// The ways that the application runs.
const (
	alone     = "alone"
	gentle    = "gentle"
	unlimited = "unlimited"
)

var paces = []string{gentle, unlimited}

func run(ctx context.Context, p *plan, disks, tables, out string) (err error) {
	if p.lapse, err = filepath.Abs(p.lapse); err != nil {
		return err
	}
	if _, err := os.Stat(p.lapse); err != nil {
		return fmt.Errorf("%w: build it with go build -o bin/lapse ./cmd/lapse", err)
	}
	if p.rounds < 1 || p.app.connections < 1 || p.app.accounts < 1 || p.due < 1 {
		return errors.New("-rounds, -connections, -accounts and -due: at least one")
	}
	for _, way := range p.ways[1:] {
		if !slices.Contains(paces, way) {
			return fmt.Errorf("-paces: there are %s, not %q", strings.Join(paces, " and "), way)
		}
	}
	for disk := range strings.SplitSeq(disks, ",") {
		for table := range strings.SplitSeq(tables, ",") {
			if _, ok := diskSettings[disk]; !ok || table != ownTable && table != otherTable {
				return fmt.Errorf("-disks %q, -tables %q: there are fast and slow, other and own", disks, tables)
			}
			p.scenarios = append(p.scenarios, scenario{disk, table})
		}
	}
	if p.dir, err = os.MkdirTemp("", "lapse-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(p.dir)) }()
	r, err := p.measure(ctx)
	if len(r.Figures) == 0 {
		return err
	}
	return errors.Join(err, r.print(os.Stdout), r.write(out))
}

// measure returns what it measured, all of it or up to an error.
func (p *plan) measure(ctx context.Context) (r *report, err error) {
	r = &report{Rounds: p.rounds, Connections: p.app.connections, Rate: p.app.rate, Seconds: p.app.lasts.Seconds()}
	install, err := pgserver.Find(p.major)
	if err != nil {
		return r, err
	}
	r.Server = install.Version
	for _, of := range p.scenarios {
		if err := p.scenario(ctx, install, of, r); err != nil {
			return r, fmt.Errorf("%s: %w", of, err)
		}
	}
	return r, nil
}

// scenario measures every way in each round, on a server of its own.
func (p *plan) scenario(ctx context.Context, install pgserver.Install, of scenario, r *report) (err error) {
	fmt.Fprintf(p.progress, "PostgreSQL %s, %s\n", r.Server, of)
	s, err := startServer(ctx, install, of.Disk)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.fill(ctx, p.app.accounts); err != nil {
		return err
	}
	if err := p.install(ctx, s); err != nil {
		return err
	}
	samples := map[string][]sample{}
	for round := range p.rounds {
		for i := range p.ways {
			way := p.ways[(i+round)%len(p.ways)]
			got, err := p.sample(ctx, s, of, way)
			if err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
			fmt.Fprintf(p.progress, "  round %d, %s: p50 %.2f ms, p99 %.2f ms, %.0f transactions/s, %.0f rows/s deleted in batches of %.0f\n",
				round+1, way, got.P50, got.P99, got.Transactions, got.Deleted, got.Batch)
			samples[way] = append(samples[way], got)
		}
	}
	r.add(of, p.ways, samples)
	return nil
}

// sample lets the application run, alone or beside Lapse.
func (p *plan) sample(ctx context.Context, s *server, of scenario, way string) (sample, error) {
	if err := s.refill(ctx, p.due); err != nil {
		return sample{}, err
	}
	if way == alone {
		return p.app.run(ctx, s, of.Table, nil)
	}
	process, err := p.start(ctx, s, way)
	if err != nil {
		return sample{}, err
	}
	got, err := p.app.run(ctx, s, of.Table, process.ended)
	if stopped := process.stop(); err == nil {
		err = stopped
	}
	if err == nil {
		got.Deleted, got.Batch, err = s.deleted(ctx, got.began, got.ended)
	}
	return got, err
}
