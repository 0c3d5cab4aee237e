package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"lapse/internal/measure"
)

// idleName is what -ways calls it.
const idleName = "idle"

// warmUp is how long the executor runs before it is measured: its first looks plan and examine what the later ones know.
const warmUp = 15 * time.Second

// idling is what an executor costs that has nothing to do.
type idling struct {
	Policies     int     `json:"policies"`
	Seconds      float64 `json:"seconds"`
	ServerCPU    float64 `json:"server_cpu_seconds_per_minute"`
	LapseCPU     float64 `json:"lapse_cpu_seconds_per_minute"`
	Transactions float64 `json:"transactions_per_second"`
	WAL          float64 `json:"wal_bytes_per_second"`
}

// idle measures one policy, and many, of which each is looked at every second and none finds anything.
func (p *plan) idle(ctx context.Context, s *server, r *report) error {
	for _, policies := range []int{1, p.idlers} {
		fmt.Fprintf(p.progress, "PostgreSQL %s, %d policies with nothing due, each every second, for %s\n", r.Server, policies, p.idleFor)
		if err := s.copy(ctx, "template1", installed); err != nil {
			return err
		}
		made, err := p.idlePolicies(ctx, s, policies)
		if err != nil {
			return err
		}
		i, err := p.idlesFor(ctx, s, made)
		if err != nil {
			return fmt.Errorf("%d policies with nothing due: %w", policies, err)
		}
		i.Policies = policies
		r.Idle = append(r.Idle, i)
		if err := s.dropAll(ctx); err != nil {
			return err
		}
	}
	return nil
}

// idlePolicies makes tables and an armed policy for each, and returns the configuration.
func (p *plan) idlePolicies(ctx context.Context, s *server, policies int) (config string, err error) {
	file := strings.Builder{}
	file.WriteString("policies:\n")
	for n := range policies {
		fmt.Fprintf(&file, "  - {name: p%[1]d, table: shop.t%[1]d, expire: {column: at, after: 30 days}, every: 1 second, state: armed}\n", n)
	}
	path := filepath.Join(p.dir, "idle.yaml")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		return "", err
	}
	err = s.execute(ctx, installed, "create schema shop", "create role app", "alter schema shop owner to app", "set role app", fmt.Sprintf(`do $$ begin
		  for n in 0 .. %d loop
		    execute format('create table shop.t%%s (id bigint primary key, at timestamptz not null)', n);
		    execute format('create index on shop.t%%s (at, id)', n);
		    execute format('insert into shop.t%%s select g, now() from generate_series(1, 1000) g', n);
		  end loop;
		end $$`, policies-1), "reset role", "vacuum analyze")
	if err != nil {
		return "", err
	}
	if _, err := p.command(ctx, s, installed, 1, "init", "--keys", filepath.Join(p.dir, "keys")); err != nil {
		return "", err
	}
	if _, err := p.command(ctx, s, installed, 1, "apply", "--yes", "-f", path); err != nil {
		return "", err
	}
	return p.configure(s, installed, 1)
}

// idlesFor runs an executor and measures it once it is warm.
func (p *plan) idlesFor(ctx context.Context, s *server, config string) (i idling, err error) {
	cmd := exec.CommandContext(ctx, p.lapse, "run")
	cmd.Env = p.environment(config)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		return i, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var before, after usage
	for _, part := range []struct {
		lasts time.Duration
		then  *usage
	}{{warmUp, &before}, {p.idleFor, &after}} {
		select {
		case <-ctx.Done():
			return i, errors.Join(context.Cause(ctx), <-ended)
		case err := <-ended:
			return i, fmt.Errorf("lapse run ended: %w\n%s", err, stderr.Bytes())
		case <-time.After(part.lasts):
		}
		if *part.then, err = s.usage(ctx, cmd.Process.Pid); err != nil {
			return i, errors.Join(err, cmd.Process.Signal(syscall.SIGTERM), <-ended)
		}
	}
	if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), <-ended); err != nil {
		return i, fmt.Errorf("stop lapse run: %w\n%s", err, stderr.Bytes())
	}
	seconds := after.at.Sub(before.at).Seconds()
	return idling{
		Seconds: seconds, ServerCPU: (after.server - before.server).Seconds() / seconds * 60, LapseCPU: (after.lapse - before.lapse).Seconds() / seconds * 60,
		Transactions: float64(after.commits-before.commits) / seconds, WAL: float64(after.wal-before.wal) / seconds,
	}, nil
}

// usage is what was used up to an instant.
type usage struct {
	at            time.Time
	server, lapse time.Duration
	commits, wal  int64
}

func (s *server) usage(ctx context.Context, pid int) (u usage, err error) {
	// What a session did is in the statistics within a second of its next pause.
	err = s.admin.QueryRow(ctx, `select d.xact_commit, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8 from pg_stat_database d where d.datname = $1`,
		installed).Scan(&u.commits, &u.wal)
	if err != nil {
		return u, err
	}
	if u.server, err = measure.CPU(s.server.PID()); err != nil {
		return u, err
	}
	u.lapse, err = measure.CPU(pid)
	u.at = time.Now()
	return u, err
}
