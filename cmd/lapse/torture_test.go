//go:build torture

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"lapse/internal/fixture"
)

// Drawn worlds for LAPSE_TORTURE minutes, from LAPSE_TEST_SEED on. Each round is a process of its own, with a seed of its own.
func TestTorturePlanSaysWhatApplyRefuses(t *testing.T) {
	number := func(name string, otherwise int64) int64 {
		if os.Getenv(name) == "" {
			return otherwise
		}
		n, err := strconv.ParseInt(os.Getenv(name), 10, 64)
		fixture.Must(t, err)
		return n
	}
	seed := number("LAPSE_TEST_SEED", time.Now().UnixNano()%1_000_000_000)
	rounds := int64(0)
	for ends := time.Now().Add(time.Duration(number("LAPSE_TORTURE", 5)) * time.Minute); time.Now().Before(ends); rounds++ {
		round := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPlanSaysWhatApplyRefuses$", "-test.count=1", "-rapid.checks=100", "-rapid.nofailfile",
			fmt.Sprintf("-rapid.seed=%d", seed+rounds+1))
		if out, err := round.CombinedOutput(); err != nil {
			t.Fatalf("SEED=%d: %v\n%s", seed+rounds, err, out)
		}
	}
	t.Logf("SEED=%d: %d rounds of 100 worlds on each version: plan and apply agree", seed, rounds)
}
