package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"lapse/executor"
	"lapse/internal/status"
)

// meter shows the executor's progress on a terminal, in one line below the log. Safe for concurrent use.
type meter struct {
	out io.Writer
	now func() time.Time

	mu   sync.Mutex
	at   time.Time
	line string // the line that is shown now
}

// meterInterval is the shortest time between two updates of the line.
const meterInterval = 200 * time.Millisecond

const clearLine = "\r\x1b[K"

// show is called by the executor after each batch.
func (m *meter) show(p executor.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now().Sub(m.at) < meterInterval {
		return
	}
	m.at, m.line = m.now(), meterLine(&p)
	fmt.Fprint(m.out, clearLine+m.line)
}

// meterLine describes a run in progress.
func meterLine(p *executor.Progress) string {
	line := fmt.Sprintf("%s: %s deleted", p.Policy, counted(p.Deleted+p.Cascaded, "row"))
	if p.Expected > 0 {
		line = fmt.Sprintf("%s: %d of about %s deleted", p.Policy, p.Deleted, counted(max(p.Expected, p.Deleted), "row"))
	}
	line += fmt.Sprintf(", %.0f a second", p.Rate)
	if rest, known := p.Remaining(); known {
		line += ", about " + status.Short(rest) + " left"
	}
	if p.Held != "" {
		line += ", held back: " + p.Held
	}
	return line
}

// Write writes log output above the line.
func (m *meter) Write(text []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.line == "" {
		return m.out.Write(text)
	}
	if _, err := fmt.Fprint(m.out, clearLine); err != nil {
		return 0, err
	}
	n, err := m.out.Write(text)
	if err == nil {
		_, err = fmt.Fprint(m.out, m.line)
	}
	return n, err
}

// clear removes the line.
func (m *meter) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.line != "" {
		fmt.Fprint(m.out, clearLine)
	}
	m.line = ""
}
