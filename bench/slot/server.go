package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"

	"lapse/bench/internal/measure"
	"lapse/internal/kafkaserver"
)

const (
	database = "app"
	base     = "lapse_bench_base" // a copy of the slot that stays where the backlog begins
	copied   = "lapse_bench_copy" // a copy of that, for one that drains it beside lapse
)

// place is where one scenario is measured: a server and a broker, with Lapse installed.
type place struct {
	of     scenario
	server *measure.Server
	broker *kafkaserver.Server
	kafka  *kafka.Client
	conn   *pgx.Conn
	dir    string // for Debezium's configuration
	lapse  measure.Lapse
	nextID int // of the rows to come

	first, deleted int    // id of the first deleted row, and how many there are
	end            string // where the backlog ends in the server's log

	debezium string // its folder
	connects int    // runs of it
}

// url is how the scenario reaches the server.
func (p *place) url() string {
	if p.of.Transport == tcp {
		return p.server.URL("postgres", database)
	}
	return p.server.SocketURL("postgres", database)
}

// open starts server and broker, and installs Lapse.
func (b *bench) open(ctx context.Context, of scenario) (p *place, err error) {
	dir := filepath.Join(b.Dir, string(of.Transport)+"-"+string(of.Identity))
	p = &place{of: of, lapse: measure.Lapse{Binary: b.Lapse, Dir: dir}, dir: dir, nextID: 1, debezium: b.debezium}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
			p = nil
		}
	}()
	settings := map[string]string{"fsync": "on", "log_checkpoints": "on"}
	if b.checkpoints {
		maps.Copy(settings, map[string]string{"autovacuum": "on", "checkpoint_timeout": "5min", "max_wal_size": "1GB", "shared_buffers": "128MB"})
	}
	if p.server, err = measure.StartServer(ctx, b.install, settings); err != nil {
		return p, err
	}
	if p.broker, err = kafkaserver.Start(ctx, kafkaserver.Options{Java: []string{"-Xmx1g", "-XX:TieredStopAtLevel=4"}}); err != nil {
		return p, err
	}
	p.kafka = &kafka.Client{Addr: kafka.TCP(p.broker.Addr()), Transport: &kafka.Transport{}}
	if err := p.server.Copy(ctx, "template1", database); err != nil {
		return p, err
	}
	if p.conn, err = p.server.Connect(ctx, database); err != nil {
		return p, err
	}
	statements := append([]string{
		"create schema shop", "create role app", "alter schema shop owner to app", "set role app",
		"create table shop.sessions (id bigint primary key, tenant int not null, at timestamptz not null, note text not null)",
		"create index on shop.sessions (at, id)",
	}, of.Identity.setup()...)
	if err := p.execute(ctx, append(statements, "reset role")...); err != nil {
		return p, err
	}
	return p, p.setUp(ctx)
}

func (p *place) close() error {
	var errs []error
	if p.conn != nil {
		errs = append(errs, p.conn.Close(context.Background()))
	}
	if p.broker != nil {
		errs = append(errs, p.broker.Close())
	}
	if p.server != nil {
		errs = append(errs, p.server.Close())
	}
	return errors.Join(errs...)
}

func (p *place) execute(ctx context.Context, statements ...string) error {
	return measure.Execute(ctx, p.conn, statements...)
}

// fill inserts rows and returns the first one's id. They are due, or not.
func (p *place) fill(ctx context.Context, rows int, due bool) (first int, err error) {
	at := "now()"
	if due {
		at = "now() - interval '60 days' + n * interval '1 ms'"
	}
	first = p.nextID
	p.nextID += rows
	return first, p.execute(ctx, fmt.Sprintf(
		"insert into shop.sessions select %d + n, n %% 1000, %s, repeat('x', 96) from generate_series(0, %d) n", first, at, rows-1),
		"vacuum analyze shop.sessions", "checkpoint")
}

// publications are those that the slot's reader names.
func (p *place) publications(ctx context.Context) (names string, err error) {
	err = p.conn.QueryRow(ctx, "select string_agg(quote_ident(pubname), ',') from pg_publication").Scan(&names)
	return names, err
}
