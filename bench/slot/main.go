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
)

func main() {
	b := bench{progress: os.Stderr}
	flag.StringVar(&b.lapse, "lapse", "bin/lapse", "the lapse `binary`")
	flag.IntVar(&b.major, "pg", 17, "major `version` of PostgreSQL")
	flag.IntVar(&b.rounds, "rounds", 5, "how often each way is measured, after one round that does not count")
	flag.IntVar(&b.rows, "rows", 1_000_000, "rows of the backlog")
	flag.IntVar(&b.passing, "passing", 10_000_000, "rows of the one large transaction; 0: none")
	flag.DurationVar(&b.lasts, "time", 10*time.Second, "how long rows are deleted at each rate")
	transports := flag.String("transports", "unix,tcp", "how the server is reached")
	rates := flag.String("rates", "1000,10000,50000", "deletes a second at which it is measured how late events come; empty: none")
	out := flag.String("o", "bench/out/slot.json", "the `file` for all figures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // A program of its own.
	err := b.run(ctx, *transports, *rates, *out)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "slot:", err)
		os.Exit(1) //nolint:forbidigo // A program of its own.
	}
}

// bench is what is measured, and with what.
type bench struct {
	lapse     string
	major     int
	install   pgserver.Install
	rounds    int
	rows      int
	passing   int
	lasts     time.Duration
	rates     []int
	scenarios []scenario
	progress  io.Writer
	dir       string // for keys and configuration
}

// scenario is how the server is reached.
type scenario string

const (
	unix scenario = "unix"
	tcp  scenario = "tcp"
)

var titles = map[scenario]string{unix: "Unix socket", tcp: "TCP"}

func (s scenario) String() string { return titles[s] }

func (b *bench) run(ctx context.Context, transports, rates, out string) (err error) {
	if b.lapse, err = filepath.Abs(b.lapse); err != nil {
		return err
	}
	if _, err := os.Stat(b.lapse); err != nil {
		return fmt.Errorf("%w: build it with go build -o bin/lapse ./cmd/lapse", err)
	}
	if _, err := exec.LookPath("pg_recvlogical"); err != nil {
		return fmt.Errorf("%w: it is in Debian's postgresql package", err)
	}
	if b.rounds < 1 || b.rows < 1 {
		return errors.New("-rounds and -rows: at least one")
	}
	for transport := range strings.SplitSeq(transports, ",") {
		if titles[scenario(transport)] == "" {
			return fmt.Errorf("-transports %q: there are unix and tcp", transports)
		}
		b.scenarios = append(b.scenarios, scenario(transport))
	}
	for text := range strings.SplitSeq(rates, ",") {
		if text == "" {
			continue
		}
		rate, err := strconv.Atoi(text)
		if err != nil || rate < 1 {
			return fmt.Errorf("-rates %q: whole numbers with commas between them", rates)
		}
		b.rates = append(b.rates, rate)
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
	return errors.Join(err, r.print(os.Stdout), r.write(out))
}

// measure returns what it measured, all of it or up to an error.
func (b *bench) measure(ctx context.Context) (*report, error) {
	r := &report{Rounds: b.rounds, Rows: b.rows, CPUs: runtime.NumCPU(), Server: b.install.Version}
	for i, of := range b.scenarios {
		if err := b.scenario(ctx, of, i == 0, r); err != nil {
			return r, fmt.Errorf("%s: %w", of, err)
		}
	}
	return r, nil
}

// scenario measures one scenario, on servers of its own. The first one has latencies and the large transaction too.
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
	r.add(of, samples)
	if !first {
		return nil
	}
	if len(b.rates) > 0 {
		if r.Latencies, err = b.latencies(ctx, p); err != nil {
			return err
		}
	}
	if b.passing == 0 {
		return nil
	}
	r.Passing, err = p.pass(ctx, b.passing)
	return err
}

// pass lets one transaction of the application's pass through the audit.
func (p *place) pass(ctx context.Context, rows int) (*sample, error) {
	if _, err := p.fill(ctx, rows, false); err != nil {
		return nil, err
	}
	if _, err := p.run(ctx, true, "audit", "--once"); err != nil {
		return nil, err
	}
	if err := p.execute(ctx, "delete from shop.sessions", "checkpoint"); err != nil {
		return nil, err
	}
	got, err := p.drain(ctx, toKafka, rows)
	return &got, err
}
