package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"lapse/bench/internal/measure"
	"lapse/internal/pgserver"
)

func main() {
	var p plan
	p.Flags("deletion")
	flag.IntVar(&p.rows, "rows", 4_000_000, "rows of the table, of which half are due")
	flag.StringVar(&p.orders, "orders", "clustered,shuffled", "orders of the rows")
	flag.StringVar(&p.only, "ways", "", "only these ways, by their names (default: all); idle: nothing but what is measured with -idle")
	flag.IntVar(&p.idlers, "idle", 200, "policies that are looked at every second and find nothing; 0: none")
	flag.DurationVar(&p.idleFor, "idle-for", time.Minute, "how `long` they are measured")
	flag.IntVar(&p.looked, "looks", 10_000_000, "rows of the large table in which a look finds nothing; 0: no looks")
	flag.BoolVar(&p.snapshot, "snapshot", true, "measure with an old snapshot held, too")
	measure.Main(&p.Options, p.check, p.measure)
}

// plan is what is measured, and with what.
type plan struct {
	measure.Options
	orders    string
	only      string // ways
	snapshot  bool
	looked    int // rows of the large table in which nothing is due
	idlers    int // policies with nothing due
	idleFor   time.Duration
	rows      int
	ways      []way
	scenarios []scenario
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

func (p *plan) check() (err error) {
	if p.rows < 2 {
		return errors.New("-rows: at least two")
	}
	for order := range strings.SplitSeq(p.orders, ",") {
		if _, ok := orderSQL[order]; !ok {
			return fmt.Errorf("-orders %q: there are clustered and shuffled", order)
		}
		p.scenarios = append(p.scenarios, scenario{Order: order})
		if p.snapshot {
			p.scenarios = append(p.scenarios, scenario{order, true})
		}
	}
	if p.only == idleName {
		p.scenarios, p.looked = nil, 0
		return nil
	}
	p.ways, err = chosen(p.only)
	return err
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
	r = &report{Rounds: p.Rounds, Rows: p.rows}
	install, err := pgserver.Find(p.Major)
	if err != nil {
		return r, err
	}
	s, err := startServer(ctx, install)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
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
	p.Say("PostgreSQL %s, %s: %d rows, half of them due", r.Server, of, p.rows)
	if err := s.fill(ctx, of.Order, p.rows); err != nil {
		return err
	}
	if slices.ContainsFunc(p.ways, func(w way) bool { return w.processes > 0 }) {
		if err := s.Copy(ctx, filled, installed); err != nil {
			return err
		}
		if err := p.install(ctx, s); err != nil {
			return err
		}
	}
	samples, err := measure.Rounds(&p.Options, 0, names(p.ways), func(name string) (sample, error) {
		return p.sample(ctx, s, of, &p.ways[slices.Index(names(p.ways), name)])
	})
	if err != nil {
		return err
	}
	r.add(of, p.rows/2, names(p.ways), samples)
	return s.dropAll(ctx)
}

// sample lets a way delete what is due in a fresh copy.
func (p *plan) sample(ctx context.Context, s *server, of scenario, w *way) (got sample, err error) {
	if err := s.Copy(ctx, w.database(), measured); err != nil {
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
	got.rows = p.rows / 2
	left, err := s.left(ctx)
	if err != nil {
		return got, err
	}
	if left != int64(p.rows-p.rows/2) {
		return got, fmt.Errorf("%d rows are left of %d, of which half were due", left, p.rows)
	}
	return got, nil
}
