package main

import (
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

// progress reports the progress of a long command on stderr: on a terminal in one line that changes, elsewhere in the log. A nil progress
// reports nothing. Safe for concurrent use.
type progress struct {
	out   io.Writer
	log   *slog.Logger
	shows bool // stderr is a terminal
	unit  string

	mu    sync.Mutex
	timer *time.Timer // nil after end
	step  string
	nth   int
	of    int
	line  string // the line that is shown now
}

// Commands shorter than progressAfter report nothing. After that the terminal's line is updated often, the log every progressInterval.
const (
	progressAfter    = 2 * time.Second
	progressInterval = 5 * time.Second
)

// progress starts to report a command's progress through policies, or through units.
func (a *app) progress(unit string) *progress {
	if !a.patient {
		return nil
	}
	p := &progress{out: a.err, log: a.log, shows: a.shows, unit: unit}
	p.mu.Lock() // the first tick waits until timer is set
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(progressAfter, p.tick)
	return p
}

// at records that the command is at the nth of so many steps.
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

// end removes the line.
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
