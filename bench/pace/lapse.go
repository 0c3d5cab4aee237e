package main

import (
	"context"
	"fmt"
	"time"

	"lapse/bench/internal/measure"
)

const policyFile = `policies:
  - name: bench
    table: shop.sessions
    expire: {column: at, after: 30 days}
    state: armed
    pace: %s
`

// stopped is the exit code of a run that was stopped before it was done.
const stopped = 1

func (p *plan) lapse() measure.Lapse { return measure.Lapse{Binary: p.Lapse, Dir: p.Dir} }

// settings are those of lapse.yaml.
func (p *plan) settings(s *server) string {
	return fmt.Sprintf("database: %s\naudit: off\nlimits: {workers: %d}\n", s.SocketURL("postgres", database), p.workers)
}

// start applies the policy at a pace, lets Lapse run, and returns when it deletes.
func (p *plan) start(ctx context.Context, s *server, pace string) (made *measure.Process, err error) {
	if err := p.lapse().Apply(ctx, p.settings(s), fmt.Sprintf(policyFile, pace)); err != nil {
		return nil, err
	}
	var before int64
	const batches = "select count(*) from lapse.batch_result"
	if err := s.conn.QueryRow(ctx, batches).Scan(&before); err != nil {
		return nil, err
	}
	if made, err = p.lapse().Start(ctx, p.settings(s), "run", "--now", "bench"); err != nil {
		return nil, err
	}
	// Some batches, so that their size is what it comes to.
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for n := int64(0); n < before+10; {
		select {
		case <-made.Exited():
			return made, made.Stop(stopped)
		case <-ticker.C:
		}
		if err := s.conn.QueryRow(ctx, batches).Scan(&n); err != nil {
			return nil, fmt.Errorf("wait for the first batches: %w", err)
		}
	}
	return made, nil
}
