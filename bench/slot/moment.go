package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// moment is a tenth of a second in which rows were committed whose events were later than those around it.
type moment struct {
	At         float64 `json:"at_seconds"`
	Late       float64 `json:"milliseconds"` // of its latest event
	Checkpoint bool    `json:"checkpoint"`   // the server made one
}

// String names the moment in the progress.
func (m moment) String() string {
	during := ""
	if m.Checkpoint {
		during = " during a checkpoint"
	}
	return fmt.Sprintf("%.0f ms at %.1f s%s", m.Late, m.At, during)
}

// A stall makes all moments late until it is caught up with: of each second there is the latest alone.
const (
	momentLasts = 100 * time.Millisecond
	moments     = 5
)

// slowestOf are the slowest moments, the slowest first.
func slowestOf(waited []time.Duration, committed []time.Time, each int) []moment {
	bySecond := map[int]moment{}
	for n, late := range waited {
		at := committed[n/each].Sub(committed[0])
		if second := int(at.Seconds()); late.Seconds()*1000 > bySecond[second].Late {
			bySecond[second] = moment{At: at.Truncate(momentLasts).Seconds(), Late: float64(late.Microseconds()) / 1000}
		}
	}
	var all []moment
	for _, m := range bySecond {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b moment) int { return cmp.Compare(b.Late, a.Late) })
	return all[:min(moments, len(all))]
}

// nameCheckpoints says which of the moments since begun fell into a checkpoint, by the server's log.
func (p *place) nameCheckpoints(all []moment, begun time.Time) error {
	log, err := os.ReadFile(p.server.LogFile())
	if err != nil {
		return err
	}
	var from time.Time
	for line := range strings.Lines(string(log)) {
		starting, complete := strings.Contains(line, "checkpoint starting"), strings.Contains(line, "checkpoint complete")
		if !starting && !complete {
			continue
		}
		at, err := time.Parse("2006-01-02 15:04:05.000 MST", strings.Join(strings.Fields(line)[:3], " "))
		if err != nil {
			return err
		}
		if starting {
			from = at
			continue
		}
		markBetween(all, from.Sub(begun), at.Sub(begun))
		from = time.Time{}
	}
	if !from.IsZero() {
		markBetween(all, from.Sub(begun), time.Since(begun))
	}
	return nil
}

func markBetween(all []moment, from, to time.Duration) {
	for i := range all {
		if all[i].At+momentLasts.Seconds() >= from.Seconds() && all[i].At <= to.Seconds() {
			all[i].Checkpoint = true
		}
	}
}
