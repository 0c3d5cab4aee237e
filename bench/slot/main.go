package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"lapse/bench/internal/measure"
	"lapse/internal/pgserver"
	"lapse/internal/servers"
)

func main() {
	var b bench
	b.Flags("slot")
	flag.IntVar(&b.warming, "warming", 4, "rounds before them that do not count: one of all ways, then of lapse audit into Kafka alone")
	flag.IntVar(&b.rows, "rows", 1_000_000, "rows of the backlog; 0: none is drained")
	flag.IntVar(&b.passing, "passing", 10_000_000, "rows that pass while memory is watched, in one transaction and in many; 0: none")
	flag.DurationVar(&b.lasts, "time", time.Minute, "how long rows are deleted at each rate")
	flag.IntVar(&b.runs, "runs", 3, "how often that is measured at each rate")
	flag.BoolVar(&b.checkpoints, "checkpoints", false, "leave checkpoints, autovacuum and shared buffers to the server's defaults")
	var o options
	flag.StringVar(&o.transports, "transports", "unix,tcp", "how the server is reached")
	flag.StringVar(&o.identities, "identity", "default", "what the log has of a deleted row: default (its key), columns (all of it, by an index), full (REPLICA IDENTITY FULL)")
	flag.BoolVar(&o.debezium, "debezium", true, "measure Debezium too, where the server is reached over TCP")
	flag.StringVar(&o.rates, "rates", "1000,10000,50000", "deletes a second at which it is measured how late events come; empty: none")
	measure.Main(&b.Options, func() error { return b.check(o) }, b.measure)
}

// options are flags that are checked before anything is measured.
type options struct {
	transports, identities, rates string
	debezium                      bool
}

// bench is what is measured, and with what.
type bench struct {
	measure.Options
	install     pgserver.Install
	warming     int
	rows        int
	passing     int
	lasts       time.Duration
	runs        int
	rates       []int
	checkpoints bool
	scenarios   []scenario
	debezium    string // its folder; empty: without
}

func (b *bench) check(o options) (err error) {
	if _, err := exec.LookPath("pg_recvlogical"); err != nil {
		return fmt.Errorf("%w: it is in Debian's postgresql package", err)
	}
	if b.warming < 1 || b.rows < 0 {
		return errors.New("-warming: at least one; -rows: at least none")
	}
	if b.scenarios, err = parseScenarios(o.transports, o.identities); err != nil {
		return err
	}
	if b.rates, err = parseRates(o.rates); err != nil {
		return err
	}
	if o.debezium {
		if b.debezium, err = b.findDebezium(); err != nil {
			return err
		}
	}
	b.install, err = pgserver.Find(b.Major)
	return err
}

// parseRates reads the value of -rates.
func parseRates(value string) (rates []int, err error) {
	for text := range strings.SplitSeq(value, ",") {
		if text == "" {
			continue
		}
		rate, err := strconv.Atoi(text)
		if err != nil || rate < 1 {
			return nil, fmt.Errorf("-rates %q: whole numbers with commas between them", value)
		}
		rates = append(rates, rate)
	}
	return rates, nil
}

// measure returns what it measured, all of it or up to an error.
func (b *bench) measure(ctx context.Context) (*report, error) {
	r := &report{Rounds: b.Rounds, Rows: b.rows, CPUs: runtime.NumCPU(), Server: b.install.Version}
	if b.debezium != "" {
		r.Debezium = servers.DebeziumRelease()
	}
	for i, of := range b.scenarios {
		if err := b.scenario(ctx, of, i == 0, r); err != nil {
			return r, fmt.Errorf("%s: %w", of, err)
		}
	}
	return r, nil
}

// scenario measures one scenario, on servers of its own. The first one has latencies and memory too.
func (b *bench) scenario(ctx context.Context, of scenario, first bool, r *report) (err error) {
	b.Say("PostgreSQL %s, %s", b.install.Version, of)
	p, err := b.open(ctx, of)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	r.Broker = p.broker.Version()
	if b.rows > 0 {
		samples, err := b.drains(ctx, p)
		if err != nil {
			return err
		}
		r.add(of, b.ways(of), samples)
	}
	if !first {
		return nil
	}
	if len(b.rates) > 0 && of.named() { // an event is known by its row
		if r.Latencies, err = b.latencies(ctx, p); err != nil {
			return err
		}
	}
	if b.passing == 0 {
		return nil
	}
	r.Passing, err = b.passings(ctx, p)
	return err
}
