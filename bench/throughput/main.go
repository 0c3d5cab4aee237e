package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"lapse/internal/pgserver"
)

func main() {
	before := flag.String("before", "", "the lapse `binary` to compare with; none: measure the other alone")
	after := flag.String("after", "bin/lapse", "the lapse `binary` to measure")
	majors := flag.String("pg", "15,17", "major `versions` of PostgreSQL for deleting")
	rounds := flag.Int("rounds", 5, "how often each figure is measured")
	only := flag.String("scenarios", "", "only these scenarios (default: all of "+strings.Join(scenarioNames(), ",")+")")
	out := flag.String("o", "bench/out/throughput.json", "the `file` for all figures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // A program of its own.
	err := run(ctx, *before, *after, *majors, *rounds, *only, *out)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "throughput:", err)
		os.Exit(1) //nolint:forbidigo // A program of its own.
	}
}

func run(ctx context.Context, before, after, majors string, rounds int, only, out string) (err error) {
	if rounds < 1 {
		return fmt.Errorf("-rounds %d: at least one", rounds)
	}
	dir, err := os.MkdirTemp("", "lapse-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{dir: dir, rounds: rounds, progress: os.Stderr}
	if b.sides, err = sidesOf(before, after); err != nil {
		return err
	}
	if b.plan, err = planOf(majors, only); err != nil {
		return err
	}
	report, err := b.measure(ctx)
	if len(report.Figures) == 0 {
		return err
	}
	return errors.Join(err, report.print(os.Stdout), report.write(out))
}

// sidesOf are the binaries to compare, or the one to measure.
func sidesOf(before, after string) ([]side, error) {
	var sides []side
	for _, s := range []side{{name: "before", binary: before}, {name: "after", binary: after}} {
		if s.binary == "" {
			continue
		}
		path, err := filepath.Abs(s.binary)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%w: build it with go build -o %s ./cmd/lapse", err, s.binary)
		}
		sides = append(sides, side{name: s.name, binary: path})
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
