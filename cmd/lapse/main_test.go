package main

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// TestMain lets scripts run this very binary as `lapse`, and a test as a program that does not stop when it should.
func TestMain(m *testing.M) {
	testscript.Main(tidy{kafkatest.Wrap(pgtest.Wrap(m))}, map[string]func(){
		"lapse": func() { os.Exit(runCommand()) }, "stubborn": stubborn,
	})
}

// tidy runs the tests and removes what they built.
type tidy struct{ m testscript.TestingM }

func (w tidy) Run() int {
	code := w.m.Run()
	if err := built.remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return code
}

// stubborn is told to stop and does not.
func stubborn() {
	ctx, stop := untilSignalled(context.Background())
	defer stop()
	fmt.Println("waiting")
	<-ctx.Done()
	fmt.Println(context.Cause(ctx))
	select {}
}
