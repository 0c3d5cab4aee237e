package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"lapse/bench/internal/measure"
	"lapse/internal/pgserver"
)

func main() {
	var p plan
	p.Flags("life")
	flag.IntVar(&p.policies, "policies", 20, "tables, each with a policy that runs every minute")
	flag.IntVar(&p.rate, "rate", 200, "the application's transactions per second")
	flag.IntVar(&p.connections, "connections", 4, "the application's connections")
	flag.IntVar(&p.backlog, "backlog", 2_000_000, "due rows of the table with a backlog")
	flag.DurationVar(&p.lasts, "time", 10*time.Minute, "how long each phase lasts")
	flag.BoolVar(&p.quick, "quick", false, "some seconds: does it work?")
	measure.Main(&p.Options, p.check, p.measure)
}

// plan is what is measured, and with what.
type plan struct {
	measure.Options
	policies, rate, connections, backlog int
	lasts, settle                        time.Duration
	quick                                bool
}

func (p *plan) check() error {
	p.settle = 90 * time.Second // each policy's first runs
	if p.quick {
		p.policies, p.backlog, p.lasts, p.settle = 3, 50_000, 5*time.Second, 5*time.Second
	}
	if p.policies < 1 || p.rate < 1 || p.connections < 1 || p.backlog < 1 || p.lasts < time.Second {
		return errors.New("-policies, -rate, -connections and -backlog: at least one; -time: at least a second")
	}
	return nil
}

func (p *plan) measure(ctx context.Context) (r *report, err error) {
	r = &report{Policies: p.policies, Rate: p.rate}
	install, err := pgserver.Find(p.Major)
	if err != nil {
		return r, err
	}
	r.Server = install.Version
	s, err := p.startServer(ctx, install)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	lapse := measure.Lapse{Binary: p.Lapse, Dir: p.Dir}
	settings := fmt.Sprintf("database: %s\nsink: dir:%s\nhttp: 127.0.0.1:0\n", s.SocketURL("postgres", database), filepath.Join(p.Dir, "sink"))
	if err := lapse.Install(ctx, settings, p.policyFile()); err != nil {
		return r, err
	}
	p.Say("PostgreSQL %s, the application alone for %s", r.Server, p.lasts)
	if r.Alone, err = p.phase(ctx, s, 0, nil); err != nil {
		return r, err
	}
	served, err := lapse.Start(ctx, settings, "serve")
	if err != nil {
		return r, err
	}
	p.Say("beside lapse serve for %s, after %s", p.lasts, p.settle)
	r.Beside, err = p.phase(ctx, s, p.settle, served)
	return r, errors.Join(err, served.Stop(0))
}

func (p *plan) policyFile() string {
	file := strings.Builder{}
	file.WriteString("policies:\n")
	for n := range p.policies {
		fmt.Fprintf(&file, "  - {name: t%[1]d, table: shop.t%[1]d, expire: {column: at, after: 30 days}, every: 1 minute, state: armed}\n", n)
	}
	file.WriteString("  - {name: backlog, table: shop.backlog, expire: {column: at, after: 30 days}, every: 1 minute, pace: gentle, state: armed}\n")
	return file.String()
}

// phase lets the application run, and says what both sides took meanwhile.
func (p *plan) phase(ctx context.Context, s *server, settle time.Duration, beside *measure.Process) (took phase, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.application(ctx, s) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-ended)
	}()
	gone := make(<-chan struct{})
	if beside != nil {
		gone = beside.Exited()
	}
	wait := func(d time.Duration) error {
		select {
		case err := <-ended:
			ended <- nil
			return fmt.Errorf("the application ended: %w", err)
		case <-gone:
			return fmt.Errorf("lapse serve ended: %s", beside.State())
		case <-time.After(d):
			return context.Cause(ctx)
		}
	}
	if err := wait(settle); err != nil {
		return took, err
	}
	before, err := s.reading(ctx, beside)
	if err != nil {
		return took, err
	}
	if err := wait(p.lasts); err != nil {
		return took, err
	}
	after, err := s.reading(ctx, beside)
	return after.since(&before), err
}
