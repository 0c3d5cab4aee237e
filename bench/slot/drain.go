package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"lapse/bench/internal/measure"
)

// The ways of draining the slot.
const (
	toNothing       = "pg_recvlogical to nothing"
	toNull          = "lapse audit to nothing"
	toKafka         = "lapse audit into Kafka"
	debeziumDefault = "Debezium, default"
	debeziumTuned   = "Debezium, tuned"
)

// ways are those of a scenario. Debezium reaches PostgreSQL over TCP alone.
func (b *bench) ways(of scenario) []string {
	all := []string{toNothing, toNull, toKafka}
	if b.debezium != "" && of.Transport == tcp {
		all = append(all, debeziumDefault, debeziumTuned)
	}
	return all
}

// inTurn are the ways in the order of a round. The slot itself is where lapse reads: to nothing it leaves it where it is, so that comes before
// Kafka in each round.
func inTurn(ways []string, round int) []string {
	order := measure.InTurn(ways, round)
	null, kafka := slices.Index(order, toNull), slices.Index(order, toKafka)
	if null > kafka {
		order[null], order[kafka] = toKafka, toNull
	}
	return order
}

// sample is one way's doing in one round.
type sample struct {
	Rows      int     `json:"rows"`
	Seconds   float64 `json:"seconds"`
	ClientCPU float64 `json:"client_cpu_seconds"`
	ServerCPU float64 `json:"server_cpu_seconds"`
	BrokerCPU float64 `json:"broker_cpu_seconds"`
	Memory    int64   `json:"client_memory_bytes"`
	WarmUp    *warmUp `json:"until_the_first_record,omitempty"` // of ways whose clock begins with it
}

func (s sample) rate() float64 { return float64(s.Rows) / s.Seconds }

func (s sample) String() string {
	return fmt.Sprintf("%.0f rows/s, CPU %.2f s of the client, %.2f s of PostgreSQL, %.2f s of the broker, %d MB",
		s.rate(), s.ClientCPU, s.ServerCPU, s.BrokerCPU, s.Memory>>20)
}

// drains makes a backlog in each round, and measures who drains it. The first rounds do not count: one of all ways, then lapse's into Kafka
// alone, since the broker's code is not all compiled before some million records.
func (b *bench) drains(ctx context.Context, p *place) (measure.Samples[sample], error) {
	samples := measure.Samples[sample]{}
	ways := b.ways(p.of)
	for round := range b.warming + b.Rounds {
		order := inTurn(ways, round)
		if round > 0 && round < b.warming {
			order = []string{toKafka}
		}
		if err := p.backlog(ctx, b.rows); err != nil {
			return nil, err
		}
		err := samples.Round(&b.Options, round-b.warming+1, order, func(way string) (sample, error) { return p.drain(ctx, way, b.rows, round == 0) })
		if err != nil {
			return nil, err
		}
		if _, err := p.conn.Exec(ctx, "select pg_drop_replication_slot($1)", base); err != nil {
			return nil, err
		}
	}
	return samples, nil
}

// backlog deletes rows above the slot's position, and copies the slot.
func (p *place) backlog(ctx context.Context, rows int) (err error) {
	if p.first, err = p.fill(ctx, rows, true); err != nil {
		return err
	}
	if _, err := p.fill(ctx, 1, false); err != nil {
		return err
	}
	p.deleted = rows + 1
	// Inserts are not published: what is drained is the deletions.
	if _, err := p.lapse.Run(ctx, p.audit(), "audit", "--once"); err != nil {
		return err
	}
	if p.of.Identity == full {
		err = p.deleteInSteps(ctx, p.first, rows, rowsOfTransaction)
	} else {
		err = p.deleteDue(ctx)
	}
	if err != nil {
		return err
	}
	if err := p.conn.QueryRow(ctx, "select pg_current_wal_insert_lsn()::text").Scan(&p.end); err != nil {
		return err
	}
	// A reader to a position stops at the first message above it, and would wait for one.
	return p.execute(ctx, "delete from shop.sessions where id = (select max(id) from shop.sessions)",
		fmt.Sprintf("select pg_copy_logical_replication_slot('%s', '%s')", measure.Slot, base), "checkpoint")
}

// drained is what a way took, and what is done when nothing is measured any more: it checks whether all came, reads it through if it is told
// to, and leaves nothing.
type drained struct {
	measure.Spent
	warmUp *warmUp
	after  func(ctx context.Context, through bool) error
}

// drain measures one way.
func (p *place) drain(ctx context.Context, way string, rows int, through bool) (got sample, err error) {
	server, broker, err := p.cpu()
	if err != nil {
		return got, err
	}
	var d drained
	switch way {
	case toNothing:
		d, err = p.intoNothing(ctx)
	case toNull:
		d, err = p.intoNull(ctx)
	case toKafka:
		d, err = p.intoKafka(ctx)
	default:
		d, err = p.throughDebezium(ctx, way == debeziumTuned)
	}
	if err != nil {
		return got, err
	}
	serverAfter, brokerAfter, err := p.cpu()
	got = sample{
		Rows: rows, Seconds: d.Seconds, ClientCPU: d.CPU.Seconds(), Memory: d.Memory, WarmUp: d.warmUp,
		ServerCPU: (serverAfter - server).Seconds(), BrokerCPU: (brokerAfter - broker).Seconds(),
	}
	if d.warmUp != nil {
		got.BrokerCPU -= d.warmUp.BrokerCPU
	}
	return got, errors.Join(err, d.after(ctx, through))
}

// cpu is what server and broker have taken.
func (p *place) cpu() (server, broker time.Duration, err error) {
	server, err = measure.CPU(p.server.PID())
	broker, other := measure.CPU(p.broker.PID())
	return server, broker, errors.Join(err, other)
}

// fences is more than the publisher writes beside events.
const fences = 1000

func (p *place) intoKafka(ctx context.Context) (d drained, err error) {
	from, err := p.ends(ctx, systemTopic, userTopic)
	if err != nil {
		return d, err
	}
	d.after = func(ctx context.Context, through bool) error {
		return p.arrived(ctx, from, p.deleted, fences, through, p.of.named())
	}
	d.Spent, err = p.lapse.Run(ctx, p.audit(), "audit", "--once")
	return d, err
}

// intoNull lets lapse read, classify and write events, from a copy of the slot that it makes, and throws them away.
func (p *place) intoNull(ctx context.Context) (d drained, err error) {
	d.Spent, err = p.lapse.Run(ctx, p.audit(), "audit", "--once", "--to", "-")
	d.after = func(context.Context, bool) error {
		if want := fmt.Sprintf(" events=%d ", p.deleted); !strings.Contains(d.Said, want) {
			return fmt.Errorf("it wrote other than%sand said: %s", want, d.Said)
		}
		return nil
	}
	return d, err
}

func (p *place) intoNothing(ctx context.Context) (d drained, err error) {
	publications, err := p.publications(ctx)
	if err != nil {
		return d, err
	}
	if err := p.copySlot(ctx); err != nil {
		return d, err
	}
	d.after = func(ctx context.Context, _ bool) error { return p.dropCopy(ctx) }
	d.Spent, err = measure.Run(exec.CommandContext(ctx, "pg_recvlogical", "--dbname", p.url(), "--slot", copied, "--start", "--file", "/dev/null", "--no-loop",
		"--option", "proto_version=1", "--option", "publication_names="+publications, "--endpos", p.end))
	return d, err
}

// copySlot makes a copy of the slot for who drains it: the slot itself, and base, stay where they are.
func (p *place) copySlot(ctx context.Context) error {
	return p.execute(ctx, fmt.Sprintf("select pg_copy_logical_replication_slot('%s', '%s')", base, copied))
}

// dropCopy drops that copy, if there is one, and ends who still reads it.
func (p *place) dropCopy(ctx context.Context) error {
	return p.execute(ctx,
		fmt.Sprintf("select pg_terminate_backend(active_pid, 30000) from pg_replication_slots where slot_name = '%s' and active", copied),
		fmt.Sprintf("select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '%s'", copied))
}
