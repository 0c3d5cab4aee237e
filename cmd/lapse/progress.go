package main

import (
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

// progress says on stderr how far a command is that takes long: on a terminal in one line that changes, elsewhere in the log. nil says nothing.
// Safe for concurrent use.
type progress struct {
	out   io.Writer
	log   *slog.Logger
	shows bool // a person watches
	unit  string

	mu    sync.Mutex
	timer *time.Timer // nil once it has ended
	step  string
	nth   int
	of    int
	line  string // what stands there
}

// What takes less than progressAfter is not spoken of. Later the line is as new as a person can read, and the log has one every progressInterval.
const (
	progressAfter    = 2 * time.Second
	progressInterval = 5 * time.Second
)

// progress begins to watch a command that goes through policies, or what unit says.
func (a *app) progress(unit string) *progress {
	if !a.patient {
		return nil
	}
	p := &progress{out: a.err, log: a.log, shows: a.shows, unit: unit}
	p.mu.Lock() // the first tick waits for its timer
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(progressAfter, p.tick)
	return p
}

// at is told that step has come to the nth of so many.
func (p *progress) at(step string, nth, of int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step, p.nth, p.of = step, nth, of
}

func (p *progress) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.timer == nil:
		return
	case p.shows:
		p.timer.Reset(meterInterval)
		if line := fmt.Sprintf("%s %s %d of %d", p.step, p.unit, p.nth, p.of); p.of > 0 && line != p.line {
			fmt.Fprint(p.out, clearLine+line)
			p.line = line
		}
	default:
		p.timer.Reset(progressInterval)
		if p.of > 0 {
			p.log.Info("progress", "step", p.step, p.unit, p.nth, "of", p.of)
		}
	}
}

// end takes the line away.
func (p *progress) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	if p.line != "" {
		fmt.Fprint(p.out, clearLine)
		p.line = ""
	}
}
