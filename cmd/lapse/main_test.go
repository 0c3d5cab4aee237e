package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// TestMain lets scripts run this very binary as `lapse`.
func TestMain(m *testing.M) {
	testscript.Main(kafkatest.Wrap(pgtest.Wrap(m)), map[string]func(){"lapse": func() { os.Exit(run()) }})
}
