package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"lapse/bench/internal/measure"
	"lapse/internal/pgserver"
)

func main() {
	var p plan
	p.Flags("pace")
	flag.IntVar(&p.app.connections, "connections", 8, "the application's connections")
	flag.IntVar(&p.app.accounts, "accounts", 200_000, "the application's accounts")
	flag.DurationVar(&p.app.lasts, "time", 10*time.Second, "how long the application is measured")
	flag.DurationVar(&p.app.warm, "warm", 2*time.Second, "how long the application runs beside each way before it is measured")
	flag.IntVar(&p.due, "due", 3_000_000, "rows that are due before each run; what is measured ends when they are gone")
	flag.IntVar(&p.workers, "workers", 2, "limits.workers of lapse.yaml")
	flag.StringVar(&p.loads, "loads", "40,50,65", "how many percent of all processors the application takes")
	flag.StringVar(&p.disks, "disks", "fast,slow", "disks")
	flag.StringVar(&p.tables, "tables", "other,own", "where the accounts are: in another table, or among the rows of the policy's own")
	flag.StringVar(&p.list, "ways", strings.Join(usual, ","), "what it is measured beside: loop N% of the time, or a policy's pace")
	flag.BoolVar(&p.cold, "cold", false, "Lapse starts when the application does, and not before it")
	flag.BoolVar(&p.short, "short", false, "about a minute: one round, half of the processors, another table, a fast disk")
	measure.Main(&p.Options, p.check, p.measure)
}

// plan is what is measured, and with what.
type plan struct {
	measure.Options
	due                        int
	workers                    int
	app                        app
	loads, disks, tables, list string
	short, cold                bool
	ways                       []string
	scenarios                  []scenario
}

// scenario is a disk, where the accounts are, and how much the application does.
type scenario struct {
	Disk  string `json:"disk"`
	Table string `json:"table"`
	Load  int    `json:"percent_of_the_processors"`
}

func (s scenario) String() string {
	return fmt.Sprintf("%d %% CPU, %s table, %s disk", s.Load, s.Table, s.Disk)
}

// The ways that the application runs.
const (
	alone     = "alone"
	gentle    = "gentle"
	unlimited = "unlimited"
	loopOf    = "loop "
)

var usual = []string{gentle, unlimited, "loop 10%", "loop 20%"}

func (p *plan) check() error {
	if p.short {
		p.Rounds, p.due, p.loads, p.disks, p.tables, p.app.lasts = 1, 1_000_000, "50", "fast", "other", 7*time.Second
	}
	if p.app.connections < 1 || p.app.accounts < 1 || p.due < 1 {
		return errors.New("-connections, -accounts and -due: at least one")
	}
	p.ways = append([]string{alone}, strings.Split(p.list, ",")...)
	for _, way := range p.ways[1:] {
		if _, err := percent(strings.TrimPrefix(way, loopOf)); err != nil && way != gentle && way != unlimited {
			return fmt.Errorf("-ways: there are gentle, unlimited, N%% and loop N%%, not %q", way)
		}
	}
	for disk := range strings.SplitSeq(p.disks, ",") {
		for table := range strings.SplitSeq(p.tables, ",") {
			for load := range strings.SplitSeq(p.loads, ",") {
				part, err := percent(load)
				if _, ok := diskSettings[disk]; !ok || err != nil || table != ownTable && table != otherTable {
					return fmt.Errorf("-disks %q, -tables %q, -loads %q: there are fast and slow, other and own, and percentages", p.disks, p.tables, p.loads)
				}
				p.scenarios = append(p.scenarios, scenario{disk, table, part})
			}
		}
	}
	return nil
}

// percent reads 20 and 20%.
func percent(text string) (int, error) {
	part, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	if err == nil && (part < 1 || part > 100) {
		err = strconv.ErrRange
	}
	return part, err
}

// measure returns what it measured, all of it or up to an error.
func (p *plan) measure(ctx context.Context) (r *report, err error) {
	r = &report{Rounds: p.Rounds, Connections: p.app.connections, Seconds: p.app.lasts.Seconds()}
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
	load, err := p.app.calibrate(ctx, s, of.Table, float64(of.Load)/100)
	if err != nil {
		return err
	}
	p.Say("PostgreSQL %s, %s: %.0f transactions/s", r.Server, of, load.rate)
	samples, err := measure.Rounds(&p.Options, 0, p.ways, func(way string) (sample, error) { return p.sample(ctx, s, load, way) })
	if err != nil {
		return err
	}
	r.add(of, p.ways, samples)
	return nil
}

// sample lets the application run, alone or beside something that deletes.
func (p *plan) sample(ctx context.Context, s *server, load load, way string) (sample, error) {
	if err := s.refill(ctx, p.due); err != nil {
		return sample{}, err
	}
	if way == alone {
		return p.app.run(ctx, s, load, nil)
	}
	if part, ok := strings.CutPrefix(way, loopOf); ok {
		return p.besideLoop(ctx, s, load, part)
	}
	process, err := p.start(ctx, s, way)
	if err != nil {
		return sample{}, err
	}
	got, err := p.app.run(ctx, s, load, process.Exited())
	err = errors.Join(err, process.Stop(stopped))
	if err == nil {
		got.Deleted, got.Batch, err = s.deleted(ctx, got.began, got.ended)
	}
	return got, err
}

// besideLoop lets the application run beside the loop that people write.
func (p *plan) besideLoop(ctx context.Context, s *server, load load, part string) (sample, error) {
	of, err := percent(part)
	if err != nil {
		return sample{}, err
	}
	l, err := startLoop(ctx, s, float64(of)/100)
	if err != nil {
		return sample{}, err
	}
	got, err := p.app.run(ctx, s, load, nil)
	return got, errors.Join(err, l.stop(&got))
}
