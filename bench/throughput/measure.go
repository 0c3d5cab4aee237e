package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"

	"lapse/internal/pgserver"
)

// bench is what is measured, and with what.
type bench struct {
	dir      string // for keys and configuration
	sides    []side
	plan     []station
	rounds   int
	progress io.Writer
}

// station is a server and the scenarios that are measured on it.
type station struct {
	install   pgserver.Install
	scenarios []scenario
}

// sample is one run of one side.
type sample struct {
	Batches int64   `json:"batches"`
	Rows    int64   `json:"rows"`
	Seconds float64 `json:"seconds"`         // from the first batch's start to the last one's end
	Command float64 `json:"command_seconds"` // of the whole command
	CutOff  bool    `json:"cut_off"`
}

// measure returns what it measured, all of it or up to an error.
func (b *bench) measure(ctx context.Context) (*report, error) {
	r := &report{Rounds: b.rounds, CPUs: runtime.NumCPU()}
	for _, at := range b.plan {
		if err := b.station(ctx, at, r); err != nil {
			return r, fmt.Errorf("PostgreSQL %s: %w", at.install.Version, err)
		}
	}
	return r, nil
}

// station measures everything on one kind of server.
func (b *bench) station(ctx context.Context, at station, r *report) error {
	var deleting []scenario
	for _, of := range at.scenarios {
		if of.where != onNewest {
			deleting = append(deleting, of)
			continue
		}
		if err := b.auditing(ctx, at.install, &of, r); err != nil {
			return fmt.Errorf("%s: %w", of.name, err)
		}
	}
	if len(deleting) == 0 {
		return nil
	}
	return b.deleting(ctx, station{at.install, deleting}, r)
}

// inTurns takes a sample of each side in each round, and returns those of the rounds that count: all but the first.
func (b *bench) inTurns(title string, take func(side) (sample, error)) (map[string][]sample, error) {
	samples := map[string][]sample{}
	for round := range b.rounds + 1 {
		order := slices.Clone(b.sides)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, side := range order {
			got, err := take(side)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(b.progress, "  %s, round %d, %s: %s\n", title, round, side.name, got)
			if round > 0 {
				samples[side.name] = append(samples[side.name], got)
			}
		}
	}
	return samples, nil
}
