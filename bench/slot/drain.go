package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"lapse/internal/measure"
)

// The ways of draining the slot.
const (
	toNothing = "pg_recvlogical to nothing"
	toKafka   = "lapse audit into Kafka"
)

var ways = []string{toNothing, toKafka}

// sample is one way's doing in one round.
type sample struct {
	Rows      int     `json:"rows"`
	Seconds   float64 `json:"seconds"`
	ClientCPU float64 `json:"client_cpu_seconds"`
	ServerCPU float64 `json:"server_cpu_seconds"`
	BrokerCPU float64 `json:"broker_cpu_seconds"`
	Memory    int64   `json:"client_memory_bytes"`
}

func (s sample) rate() float64 { return float64(s.Rows) / s.Seconds }

// drains makes a backlog in each round, and measures who drains it.
func (b *bench) drains(ctx context.Context, p *place) (map[string][]sample, error) {
	samples := map[string][]sample{}
	for round := range b.rounds + 1 {
		if err := p.backlog(ctx, b.rows); err != nil {
			return nil, err
		}
		for i := range ways {
			way := ways[(i+round)%len(ways)]
			got, err := p.drain(ctx, way, b.rows)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", way, err)
			}
			fmt.Fprintf(b.progress, "  round %d, %s: %.0f rows/s, CPU %.2f s of the client, %.2f s of PostgreSQL, %.2f s of the broker, %d MB\n",
				round, way, got.rate(), got.ClientCPU, got.ServerCPU, got.BrokerCPU, got.Memory>>20)
			if round > 0 { // the first one warms the broker up
				samples[way] = append(samples[way], got)
			}
		}
		if _, err := p.conn.Exec(ctx, "select pg_drop_replication_slot($1)", copied); err != nil {
			return nil, err
		}
	}
	return samples, nil
}

// backlog deletes rows in tagged batches, behind the slot and a copy of it.
func (p *place) backlog(ctx context.Context, rows int) error {
	if _, err := p.fill(ctx, rows, true); err != nil {
		return err
	}
	if _, err := p.fill(ctx, 1, false); err != nil {
		return err
	}
	// Inserts are not published: what is drained is the deletions.
	if _, err := p.run(ctx, true, "audit", "--once"); err != nil {
		return err
	}
	if err := p.deleteDue(ctx); err != nil {
		return err
	}
	if err := p.conn.QueryRow(ctx, "select pg_current_wal_insert_lsn()::text").Scan(&p.end); err != nil {
		return err
	}
	// Whoever reads to a position stops at the first message above it, and would wait for one.
	return p.execute(ctx, "delete from shop.sessions where id = (select max(id) from shop.sessions)",
		fmt.Sprintf("select pg_copy_logical_replication_slot('%s', '%s')", slot, copied), "checkpoint")
}

// drain measures one way.
func (p *place) drain(ctx context.Context, way string, rows int) (got sample, err error) {
	drain := p.intoKafka
	if way == toNothing {
		drain = p.intoNothing
	}
	server, broker, err := p.cpu()
	if err != nil {
		return got, err
	}
	s, err := drain(ctx)
	if err != nil {
		return got, err
	}
	serverAfter, brokerAfter, err := p.cpu()
	return sample{
		Rows: rows, Seconds: s.seconds, ClientCPU: s.cpu.Seconds(), Memory: s.memory,
		ServerCPU: (serverAfter - server).Seconds(), BrokerCPU: (brokerAfter - broker).Seconds(),
	}, err
}

// cpu is what server and broker have taken.
func (p *place) cpu() (server, broker time.Duration, err error) {
	server, err = measure.CPU(p.server.PID())
	broker, other := measure.CPU(p.broker.PID())
	return server, broker, errors.Join(err, other)
}

func (p *place) intoKafka(ctx context.Context) (spent, error) {
	return p.run(ctx, true, "audit", "--once")
}

func (p *place) intoNothing(ctx context.Context) (spent, error) {
	publications, err := p.publications(ctx)
	if err != nil {
		return spent{}, err
	}
	return timed(exec.CommandContext(ctx, "pg_recvlogical", "--dbname", p.url(), "--slot", copied, "--start", "--file", "/dev/null", "--no-loop",
		"--option", "proto_version=1", "--option", "publication_names="+publications, "--endpos", p.end))
}
