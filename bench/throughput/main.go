package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"lapse/bench/internal/measure"
	"lapse/internal/pgserver"
)

func main() {
	var b bench
	before := flag.String("before", "", "the lapse `binary` to compare with; none: measure the other alone")
	after := flag.String("after", "bin/lapse", "the lapse `binary` to measure")
	majors := flag.String("pg", "15,17", "major `versions` of PostgreSQL for deleting")
	only := flag.String("scenarios", "", "only these scenarios (default: all of "+strings.Join(scenarioNames(), ",")+")")
	b.RoundFlags("throughput")
	measure.Main(&b.Options, func() (err error) {
		if b.sides, err = sidesOf(*before, *after); err == nil {
			b.plan, err = planOf(*majors, *only)
		}
		return err
	}, b.measure)
}

// bench is what is measured, and with what.
type bench struct {
	measure.Options
	sides []side
	plan  []station
}

// station is a server and the scenarios that are measured on it.
type station struct {
	install   pgserver.Install
	scenarios []scenario
}

// sidesOf are the binaries to compare, or the one to measure.
func sidesOf(before, after string) ([]side, error) {
	var sides []side
	for _, s := range []side{{"before", before}, {"after", after}} {
		if s.binary == "" {
			continue
		}
		path, err := measure.Binary(s.binary)
		if err != nil {
			return nil, err
		}
		sides = append(sides, side{s.name, path})
	}
	return sides, nil
}

// planOf finds the servers, and says what is measured on each.
func planOf(majors, only string) ([]station, error) {
	wanted, err := chosen(only)
	if err != nil {
		return nil, err
	}
	var plan []station
	for word := range strings.SplitSeq(majors, ",") {
		major, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil {
			return nil, fmt.Errorf("-pg %q: %q is no major version", majors, word)
		}
		install, err := pgserver.Find(major)
		if err != nil {
			return nil, err
		}
		if fetched := wanted(onFetched); len(fetched) > 0 {
			plan = append(plan, station{install, fetched})
		}
	}
	if packaged := wanted(onPackaged); len(packaged) > 0 {
		install, err := pgserver.FindPackaged()
		if err != nil {
			return nil, fmt.Errorf("%w, or leave jit and jit-off out of -scenarios", err)
		}
		plan = append(plan, station{install, packaged})
	}
	if audits := wanted(onNewest); len(audits) > 0 {
		installed, err := pgserver.Installed()
		if err != nil {
			return nil, err
		}
		if len(installed) == 0 {
			return nil, errors.New("no PostgreSQL is installed: make servers")
		}
		plan = append(plan, station{installed[len(installed)-1], audits})
	}
	return plan, nil
}

// measure returns what it measured, all of it or up to an error.
func (b *bench) measure(ctx context.Context) (*report, error) {
	r := &report{Rounds: b.Rounds, CPUs: runtime.NumCPU()}
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

// inTurns takes a sample of each side in each round, after one round that does not count.
func (b *bench) inTurns(w workload, take func(side) (sample, error)) (measure.Samples[sample], error) {
	sides := map[string]side{}
	var names []string
	for _, s := range b.sides {
		sides[s.name] = s
		names = append(names, s.name)
	}
	b.Say("  %s", w.title())
	return measure.Rounds(&b.Options, 1, names, func(name string) (sample, error) { return take(sides[name]) })
}
