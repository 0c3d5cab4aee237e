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
	p.Flags("pace")
	flag.StringVar(&p.app.does, "app", bankTransfers, "what a transaction does: bank (as TPC-B's), or keys (an update and two reads by key)")
	flag.IntVar(&p.app.cpu, "cpu", 0, "percent of the machine's time that the application takes alone; its rate follows from that")
	flag.IntVar(&p.app.connections, "connections", 4, "the application's connections")
	flag.IntVar(&p.app.rate, "rate", 0, "the application's transactions per second; 0: as many as it gets answers to")
	flag.IntVar(&p.app.accounts, "accounts", 200_000, "the application's accounts")
	flag.DurationVar(&p.app.lasts, "time", 15*time.Second, "how long the application runs")
	flag.DurationVar(&p.app.warm, "warm", 3*time.Second, "how long the application runs each time before it is measured")
	flag.IntVar(&p.due, "due", 4_000_000, "rows that are due before each run; what is measured ends when they are gone")
	flag.IntVar(&p.workers, "workers", 2, "limits.workers of lapse.yaml")
	flag.StringVar(&p.disks, "disks", "fast,slow", "disks")
	flag.StringVar(&p.tables, "tables", "other,own", "where the accounts are: in another table, or among the rows of the policy's own")
	flag.StringVar(&p.paces, "paces", strings.Join(paces, ","), "the paces that it is measured beside: gentle, unlimited, or a share of the time, as 20%")
	flag.BoolVar(&p.quick, "quick", false, "one short round: does it work?")
	measure.Main(&p.Options, p.check, p.measure)
}

// plan is what is measured, and with what.
type plan struct {
	measure.Options
	due                  int
	workers              int
	app                  app
	disks, tables, paces string
	quick                bool
	ways                 []string
	scenarios            []scenario
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

func (p *plan) check() error {
	if p.quick {
		p.Rounds, p.app.lasts, p.app.accounts, p.due = 1, time.Second, 1000, 2_000_000
		p.app.warm = 100 * time.Millisecond
	}
	if p.app.connections < 1 || p.app.accounts < 1 || p.due < 1 {
		return errors.New("-connections, -accounts and -due: at least one")
	}
	if p.app.does != bankTransfers && p.app.does != keyLookups {
		return fmt.Errorf("-app: there are %s and %s, not %q", bankTransfers, keyLookups, p.app.does)
	}
	if p.app.cpu < 0 || p.app.cpu > 100 || p.app.cpu > 0 && p.app.rate > 0 {
		return errors.New("-cpu: from 1 to 100, and without -rate")
	}
	p.ways = append([]string{alone}, strings.Split(p.paces, ",")...)
	for _, way := range p.ways[1:] {
		if !slices.Contains(paces, way) && !strings.HasSuffix(way, "%") {
			return fmt.Errorf("-paces: there are gentle, unlimited and shares as 20%%, not %q", way)
		}
	}
	for disk := range strings.SplitSeq(p.disks, ",") {
		for table := range strings.SplitSeq(p.tables, ",") {
			if _, ok := diskSettings[disk]; !ok || table != ownTable && table != otherTable {
				return fmt.Errorf("-disks %q, -tables %q: there are fast and slow, other and own", p.disks, p.tables)
			}
			p.scenarios = append(p.scenarios, scenario{disk, table})
		}
	}
	return nil
}

// measure returns what it measured, all of it or up to an error.
func (p *plan) measure(ctx context.Context) (r *report, err error) {
	r = &report{Rounds: p.Rounds, Connections: p.app.connections, Rate: p.app.rate, Seconds: p.app.lasts.Seconds()}
	install, err := pgserver.Find(p.Major)
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
	p.Say("PostgreSQL %s, %s", r.Server, of)
	s, err := startServer(ctx, install, of.Disk)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.fill(ctx, p.app.accounts); err != nil {
		return err
	}
	if err := p.lapse().Init(ctx, p.settings(s)); err != nil {
		return err
	}
	if p.app.cpu > 0 {
		busy, err := p.app.calibrate(ctx, s, of.Table)
		if err != nil {
			return err
		}
		p.Say("%d transactions a second keep the machine busy for %.0f %% of its time", p.app.rate, busy)
	}
	samples, err := measure.Rounds(&p.Options, 0, p.ways, func(way string) (sample, error) { return p.sample(ctx, s, of, way) })
	if err != nil {
		return err
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
	got, err := p.app.run(ctx, s, of.Table, process.Exited())
	err = errors.Join(err, process.Stop(stopped))
	if err == nil {
		got.Deleted, got.Batch, err = s.deleted(ctx, got.began, got.ended)
	}
	return got, err
}
