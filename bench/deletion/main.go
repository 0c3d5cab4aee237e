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
	flag.IntVar(&p.rows, "rows", 4_000_000, "rows of the table, of which half are due")
	orders := flag.String("orders", "clustered,shuffled", "orders of the rows")
	only := flag.String("ways", "", "only these ways, by their names (default: all); idle: nothing but what is measured with -idle")
	flag.IntVar(&p.idlers, "idle", 200, "policies that are looked at every second and find nothing; 0: none")
	flag.DurationVar(&p.idleFor, "idle-for", time.Minute, "how `long` they are measured")
	flag.IntVar(&p.looked, "looks", 10_000_000, "rows of the large table in which a look finds nothing; 0: no looks")
	snapshot := flag.Bool("snapshot", true, "measure with an old snapshot held, too")
	out := flag.String("o", "bench/out/deletion.json", "the `file` for all figures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // A program of its own.
	err := run(ctx, &p, *orders, *only, *snapshot, *out)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "deletion:", err)
		os.Exit(1) //nolint:forbidigo // A program of its own.
	}
}

// plan is what is measured, and with what.
type plan struct {
	lapse     string
	major     int
	looked    int // rows of the large table in which nothing is due
	idlers    int // policies with nothing due
	idleFor   time.Duration
	rounds    int
	rows      int
	ways      []way
	scenarios []scenario
	progress  io.Writer
	dir       string // for keys and configuration
}

// scenario is a table's order, and whether somebody holds a snapshot.
type scenario struct {
	Order    string `json:"order"`
	Snapshot bool   `json:"old_snapshot"`
}

func (s scenario) String() string {
	if s.Snapshot {
		return s.Order + ", old snapshot held"
	}
	return s.Order
}

func run(ctx context.Context, p *plan, orders, only string, snapshot bool, out string) (err error) {
	if p.rounds < 1 || p.rows < 2 {
		return errors.New("-rounds and -rows: at least one round and two rows")
	}
	if p.lapse, err = filepath.Abs(p.lapse); err != nil {
		return err
	}
	if _, err := os.Stat(p.lapse); err != nil {
		return fmt.Errorf("%w: build it with go build -o bin/lapse ./cmd/lapse", err)
	}
	for order := range strings.SplitSeq(orders, ",") {
		if _, ok := orderSQL[order]; !ok {
			return fmt.Errorf("-orders %q: there are clustered and shuffled", order)
		}
		p.scenarios = append(p.scenarios, scenario{Order: order})
		if snapshot {
			p.scenarios = append(p.scenarios, scenario{order, true})
		}
	}
	if only == idleName {
		p.scenarios, p.looked = nil, 0
	} else if p.ways, err = chosen(only); err != nil {
		return err
	}
	if p.dir, err = os.MkdirTemp("", "lapse-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(p.dir)) }()
	report, err := p.measure(ctx)
	if len(report.Figures)+len(report.Looks)+len(report.Idle) == 0 {
		return err
	}
	return errors.Join(err, report.print(os.Stdout), report.write(out))
}

// chosen are the ways that are measured. The giant DELETE is always among them.
func chosen(only string) ([]way, error) {
	if only == "" {
		return ways(), nil
	}
	wanted := strings.Split(only, ",")
	all := slices.DeleteFunc(ways(), func(w way) bool { return w.name != giant && !slices.Contains(wanted, w.name) })
	if len(all) != len(wanted)+1 && !slices.Contains(wanted, giant) {
		return nil, fmt.Errorf("-ways %q: there are %s", only, strings.Join(names(ways()), ", "))
	}
	return all, nil
}

// measure returns what it measured, all of it or up to an error.
func (p *plan) measure(ctx context.Context) (r *report, err error) {
	r = &report{Rounds: p.rounds, Rows: p.rows}
	install, err := pgserver.Find(p.major)
	if err != nil {
		return r, err
	}
	s, err := startServer(ctx, install)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r.Server = install.Version
	if p.looked > 0 {
		if err := p.looks(ctx, s, p.looked, r); err != nil {
			return r, err
		}
	}
	if p.idlers > 0 {
		if err := p.idle(ctx, s, r); err != nil {
			return r, err
		}
	}
	for _, of := range p.scenarios {
		if err := p.scenario(ctx, s, of, r); err != nil {
			return r, fmt.Errorf("%s: %w", of, err)
		}
	}
	return r, nil
}

// scenario measures every way in each round.
func (p *plan) scenario(ctx context.Context, s *server, of scenario, r *report) error {
	fmt.Fprintf(p.progress, "PostgreSQL %s, %s: %d rows, half of them due\n", r.Server, of, p.rows)
	if err := s.fill(ctx, of.Order, p.rows); err != nil {
		return err
	}
	for i := range p.ways {
		if err := p.ways[i].prepare(ctx, p, s); err != nil {
			return fmt.Errorf("prepare %s: %w", p.ways[i].name, err)
		}
	}
	samples := map[string][]sample{}
	for round := range p.rounds {
		for i := range p.ways {
			w := &p.ways[(i+round)%len(p.ways)]
			got, err := p.sample(ctx, s, of, w)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			fmt.Fprintf(p.progress, "  round %d, %s: %.2f s, %.0f rows/s\n", round+1, w.name, got.Seconds, float64(p.rows/2)/got.Seconds)
			samples[w.name] = append(samples[w.name], got)
		}
	}
	r.add(of, p.rows/2, names(p.ways), samples)
	return s.dropAll(ctx)
}

// sample lets a way delete what is due in a fresh copy.
func (p *plan) sample(ctx context.Context, s *server, of scenario, w *way) (got sample, err error) {
	if err := s.copy(ctx, w.database(), measured); err != nil {
		return got, err
	}
	if of.Snapshot {
		release, err := s.holdSnapshot(ctx, measured)
		if err != nil {
			return got, err
		}
		defer release()
	}
	if got, err = s.watch(ctx, func() (float64, error) { return w.run(ctx, p, s) }); err != nil {
		return got, err
	}
	left, err := s.left(ctx)
	if err != nil {
		return got, err
	}
	if left != int64(p.rows-p.rows/2) {
		return got, fmt.Errorf("%d rows are left of %d, of which half were due", left, p.rows)
	}
	return got, nil
}
