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
	flag.IntVar(&p.rows, "rows", 4_000_000, "rows of a table, half of them due; fewer where they are large")
	flag.StringVar(&p.only, "tables", "", "only these, by their names; looks, idle and big are what doc.go says (default: all)")
	flag.StringVar(&p.onlyWays, "ways", "", "only these ways beside the giant DELETE, by their names (default: all)")
	flag.BoolVar(&p.quick, "quick", false, "one round of the first tables with 1.6 M rows: two minutes")
	flag.IntVar(&p.idlers, "idle", 200, "policies that are checked every second and find nothing; then two and a half times as many, and one on 25 times as many partitions")
	flag.DurationVar(&p.idleFor, "idle-for", time.Minute, "how `long` they are measured")
	flag.IntVar(&p.looked, "looks", 10_000_000, "rows of the large table in which a look finds nothing")
	flag.IntVar(&p.big, "big", 20_000_000, "rows of the table whose plan and first run are measured")
	measure.Main(&p.Options, p.check, p.measure)
}

// plan is what is measured, and with what.
type plan struct {
	measure.Options
	quick    bool
	only     string
	onlyWays string
	looked   int // rows of the large table in which nothing is due
	idlers   int // policies with nothing due
	idleFor  time.Duration
	big      int // rows of the table that is planned
	rows     int
	ways     []way
	tables   []table
	beside   []string // of looks, idle and big
}

// beside are what is measured beside the tables.
func beside() []string { return []string{looksName, idleName, bigName} }

const (
	looksName = "looks"
	idleName  = "idle"
	bigName   = "big"
)

func (p *plan) check() error {
	p.tables, p.beside, p.ways = tables(), beside(), ways()
	if p.quick {
		p.rows, p.Rounds, p.tables, p.beside = 1_600_000, 1, p.tables[:quick], nil
	}
	if p.rows < 1000 {
		return errors.New("-rows: at least a thousand")
	}
	if p.only != "" {
		wanted := strings.Split(p.only, ",")
		p.tables = chosenTables(wanted)
		p.beside = slices.DeleteFunc(beside(), func(name string) bool { return !slices.Contains(wanted, name) })
		if len(p.tables)+len(p.beside) != len(wanted) {
			return fmt.Errorf("-tables %q: doc.go and table.go have the names", p.only)
		}
	}
	if p.onlyWays != "" {
		wanted := append(strings.Split(p.onlyWays, ","), giant)
		p.ways = slices.DeleteFunc(p.ways, func(w way) bool { return !slices.Contains(wanted, w.name) })
		if len(p.ways) < 2 {
			return fmt.Errorf("-ways %q: there are %s", p.onlyWays, strings.Join(names(ways()), ", "))
		}
	}
	return nil
}

// measure returns what it measured, all of it or up to an error.
func (p *plan) measure(ctx context.Context) (r *report, err error) {
	r = &report{Rounds: p.Rounds}
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
	if r.Disk, err = measure.Disk(s.DataDir()); err != nil {
		return r, err
	}
	do := map[string]func(context.Context, *server, *report) error{looksName: p.looks, idleName: p.idle, bigName: p.bigs}
	for _, name := range p.beside {
		if err := do[name](ctx, s, r); err != nil {
			return r, fmt.Errorf("%s: %w", name, err)
		}
	}
	for i := range p.tables {
		if err := p.table(ctx, s, &p.tables[i], r); err != nil {
			return r, fmt.Errorf("%s: %w", p.tables[i].name, err)
		}
	}
	return r, nil
}

// table measures every way in each round.
func (p *plan) table(ctx context.Context, s *server, of *table, r *report) error {
	rows := of.rows(p.rows)
	p.Say("PostgreSQL %s, %d rows, half of them due: %s", r.Server, rows, of.title)
	if err := s.fill(ctx, of, rows); err != nil {
		return err
	}
	was, err := s.count(ctx, filled, of)
	if err != nil {
		return err
	}
	if err := s.Copy(ctx, filled, installed); err != nil {
		return err
	}
	if err := p.install(ctx, s, of.policy()); err != nil {
		return err
	}
	samples, err := measure.Rounds(&p.Options, 0, names(p.ways), func(name string) (sample, error) {
		return p.sample(ctx, s, of, &p.ways[slices.Index(names(p.ways), name)], was)
	})
	if err != nil {
		return err
	}
	r.add(of, was.due, names(p.ways), samples)
	return s.dropAll(ctx)
}

// sample lets a way delete what is due in a fresh copy.
func (p *plan) sample(ctx context.Context, s *server, of *table, w *way, was counts) (got sample, err error) {
	if err := s.Copy(ctx, w.database(), measured); err != nil {
		return got, err
	}
	if of.snapshot {
		release, err := s.holdSnapshot(ctx, measured)
		if err != nil {
			return got, err
		}
		defer release()
	}
	if got, err = s.watch(ctx, func() (float64, time.Duration, error) { return w.run(ctx, p, s, of) }); err != nil {
		return got, err
	}
	if w.workers > 0 {
		var first time.Time
		if got.Batches, first, _, err = s.batches(ctx); err != nil {
			return got, err
		}
		got.Before = first.Sub(got.begun).Seconds()
	}
	got.rows = was.due
	return got, s.verify(ctx, of, was)
}
