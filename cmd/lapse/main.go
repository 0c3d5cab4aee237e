package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/term"
)

func main() { os.Exit(runCommand()) }

// run is main with an exit code.
func runCommand() int {
	ctx, stop := untilSignalled(context.Background())
	defer stop()
	a := &app{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.LookupEnv,
		variables: variableNames(os.Environ()),
		asks:      term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())),
		patient:   true,
		shows:     term.IsTerminal(int(os.Stderr.Fd())),
	}
	if out := int(os.Stdout.Fd()); term.IsTerminal(out) {
		a.width = func() int {
			width, _, err := term.GetSize(out)
			if err != nil {
				return 0 // unknown: lines are not cut
			}
			return width
		}
	}
	return execute(ctx, os.Args[1:], a)
}

func variableNames(environment []string) (names []string) {
	for _, one := range environment {
		name, _, _ := strings.Cut(one, "=")
		names = append(names, name)
	}
	return names
}

// errSignalled is the cause of a context that a signal ended.
var errSignalled = errors.New("stopped by a signal")

// untilSignalled returns a context that ends with the first SIGINT or SIGTERM. The second one ends the process at once.
func untilSignalled(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			cancel(errSignalled)
		case <-ctx.Done():
			return
		}
		<-signals
		os.Exit(exitFailed)
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}
