// Package measure is what the benchmarks share: medians with what lies around them, and the CPU time of processes.
package measure

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Spread is a median with what lies around it.
type Spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

// SpreadOf returns the spread of some values, of none the zero one.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := sorted[len(sorted)/2]
	if len(sorted)%2 == 0 {
		middle = (middle + sorted[len(sorted)/2-1]) / 2
	}
	return Spread{middle, sorted[0], sorted[len(sorted)-1]}
}

// tick is the unit of /proc's times: a hundredth of a second on every Linux that PostgreSQL runs on.
const tick = 10 * time.Millisecond

// CPU is what a process and its children have taken: the children that have ended and been waited for, and those that run.
func CPU(pid int) (time.Duration, error) {
	folders, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	var ticks int64
	for _, folder := range folders {
		if _, err := strconv.Atoi(folder.Name()); err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + folder.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		field := strings.Fields(rest) // from the state on, field 3 of proc(5)
		own := folder.Name() == strconv.Itoa(pid)
		if len(field) < 15 || !own && field[1] != strconv.Itoa(pid) {
			continue
		}
		counted := field[11:13] // utime, stime
		if own {
			counted = field[11:15] // and those of children that have ended
		}
		for _, n := range counted {
			value, err := strconv.ParseInt(n, 10, 64)
			if err != nil {
				return 0, err
			}
			ticks += value
		}
	}
	return time.Duration(ticks) * tick, nil
}
