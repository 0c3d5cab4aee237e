package measure

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// Options are what every benchmark is told.
type Options struct {
	Lapse    string // binary; empty where there are several
	Major    int    // of PostgreSQL; 0 where there are several
	Rounds   int
	Dir      string // for keys and configuration; it goes at the end
	Progress io.Writer

	out string
}

// Flags defines the flags of a benchmark that measures one binary on one server.
func (o *Options) Flags(name string) {
	flag.StringVar(&o.Lapse, "lapse", "bin/lapse", "the lapse `binary`")
	flag.IntVar(&o.Major, "pg", 17, "major `version` of PostgreSQL")
	o.RoundFlags(name)
}

// RoundFlags defines those of them that do not name a binary or a server.
func (o *Options) RoundFlags(name string) {
	flag.IntVar(&o.Rounds, "rounds", 5, "how often each way is measured")
	flag.StringVar(&o.out, "o", "bench/out/"+name+".json", "the `file` for all figures")
}

// Main reads the flags, checks them, measures, and reports. What was measured up to an error is reported too.
func Main[R Report](o *Options, check func() error, measure func(context.Context) (R, error)) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // The mains of the benchmarks are here.
	err := run(ctx, o, check, measure)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1) //nolint:forbidigo // The mains of the benchmarks are here.
	}
}

func run[R Report](ctx context.Context, o *Options, check func() error, measure func(context.Context) (R, error)) (err error) {
	o.Progress = os.Stderr
	if o.Rounds < 1 {
		return fmt.Errorf("-rounds %d: at least one", o.Rounds)
	}
	if o.Lapse != "" {
		if o.Lapse, err = Binary(o.Lapse); err != nil {
			return err
		}
	}
	if err := check(); err != nil {
		return err
	}
	if o.Dir, err = os.MkdirTemp("", "lapse-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	r, err := measure(ctx)
	if r.Empty() {
		return err
	}
	return errors.Join(err, r.Print(os.Stdout), write(r, o.out))
}

// Binary is the path of a binary that is there.
func Binary(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: build it with go build -o bin/lapse ./cmd/lapse", err)
	}
	return path, nil
}

// Say writes a line of progress.
func (o *Options) Say(format string, args ...any) { fmt.Fprintf(o.Progress, format+"\n", args...) }
