package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"lapse/bench/internal/measure"
)

const policyFile = `policies:
  - name: bench
    table: shop.sessions
    expire: {column: at, after: 30 days}
    state: armed
    pace: unlimited
    batch: 20000
`

func (p *plan) lapse() measure.Lapse { return measure.Lapse{Binary: p.Lapse, Dir: p.Dir} }

// install makes Lapse in the database that copies are made of, with an armed policy.
func (p *plan) install(ctx context.Context, s *server) error {
	return p.lapse().Install(ctx, s.settings(installed, 1), policyFile)
}

// settings are those of lapse.yaml in a database.
func (s *server) settings(database string, workers int) string {
	return fmt.Sprintf("database: %s\naudit: off\nlimits: {workers: %d}\n", s.SocketURL("postgres", database), workers)
}

// lapseRuns lets a way's processes run side by side.
func (p *plan) lapseRuns(ctx context.Context, s *server, w *way) (float64, error) {
	errs := make([]error, w.processes)
	var all sync.WaitGroup
	begun := time.Now()
	for i := range w.processes {
		all.Go(func() {
			spent, err := p.lapse().Run(ctx, s.settings(measured, w.workers), "run", "--now", "bench", "--json")
			s.add(spent.CPU)
			errs[i] = err
		})
	}
	all.Wait()
	return time.Since(begun).Seconds(), errors.Join(errs...)
}
