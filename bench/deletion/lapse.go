package main

import (
	"context"
	"fmt"

	"lapse/bench/internal/measure"
)

func (p *plan) lapse() measure.Lapse { return measure.Lapse{Binary: p.Lapse, Dir: p.Dir} }

// install makes Lapse in the database that copies are made of, with an armed policy.
func (p *plan) install(ctx context.Context, s *server, policies string) error {
	return p.lapse().Install(ctx, s.settings(installed, 1), policies)
}

// settings are those of lapse.yaml in a database.
func (s *server) settings(database string, workers int) string {
	return fmt.Sprintf("database: %s\naudit: off\nlimits: {workers: %d}\n", s.SocketURL("postgres", database), workers)
}
