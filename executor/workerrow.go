package executor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/executor/guard"
	"lapse/planner/record"
	"lapse/schemas"
)

// lapse.worker holds what only this process knows: the policies it works on, and what holds them back. `lapse status` reads it. Nothing
// else depends on it: if it cannot be written, deletion continues.
//
//	crash    the rows stay for an hour, until another process removes them; status calls the process silent after 25 seconds, and
//	         ignores it after two minutes

const (
	// reportPause is the shortest time between two reports, and reportInterval the longest.
	reportPause    = 3 * time.Second
	reportInterval = 10 * time.Second
)

// The states of a process, and of the policies it works on.
const (
	atWork      = "running" // of the process
	isDeleting  = "deleting"
	isSlow      = "slow" // deleting, held back
	isWaiting   = "waiting"
	isStopped   = "stopped"
	processLine = 0 // the policy number of the process as a whole
)

// reportLine is the report on one policy, or on the whole process.
type reportLine struct {
	policy        schemas.PolicyID
	state, reason string
	held          schemas.HeldBack // why due rows stay, if only this process knows
	next          time.Time        // when a stopped or waiting policy is tried again; zero: not known
}

// reports holds the last report. Safe for concurrent use.
type reports struct {
	mu   sync.Mutex
	said []reportLine
	at   time.Time
}

// due reports whether it is time to send lines, and records them as sent.
func (r *reports) due(lines []reportLine, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := now.Sub(r.at)
	if !r.at.IsZero() && (since < reportPause || since < reportInterval && slices.Equal(lines, r.said)) {
		return false
	}
	r.said, r.at = lines, now
	return true
}

// report reports what this process works on, if it is time.
func (w *worker) report(ctx context.Context, policies []record.InForce, a *guard.Answer) {
	lines := w.reportLines(policies, a)
	if !w.reports.due(lines, w.now()) {
		return
	}
	if err := writeReport(ctx, w.session.Control, w.Executor.holder, lines); err != nil {
		w.log.Warn("lapse status cannot show what this process does", "error", stripped("report", err))
	}
}

// signOff closes the sessions of workers that have ended. One of them signs off before: preferably one that has read the list, since its session
// knows the statements.
func signOff(workers []*worker) {
	reader := slices.IndexFunc(workers, func(w *worker) bool { return w.hasRead && !w.session.Mute() })
	if reader < 0 {
		reader = slices.IndexFunc(workers, func(w *worker) bool { return !w.session.Mute() })
	}
	if reader >= 0 {
		workers[reader].signOff()
	}
	for _, w := range workers {
		w.close()
	}
}

// signOff withdraws the process's report.
func (w *worker) signOff() {
	ctx, cancel := context.WithTimeout(context.Background(), lastWordsTime)
	defer cancel()
	if err := w.guards.remember(ctx, w.session.Control, w.now()); err != nil {
		w.log.Warn("what was deleted last is not remembered", "error", stripped("remember", err))
	}
	if err := writeReport(ctx, w.session.Control, w.Executor.holder, nil); err != nil {
		w.log.Warn("lapse status believes for two minutes that this process runs", "error", stripped("sign off", err))
	}
	if last := w.scheduler.goal.lastLines(); len(last) > 0 {
		if err := writeReport(ctx, w.session.Control, record.LastPass, last); err != nil {
			w.log.Warn("lapse status does not hear how this pass ended", "error", stripped("sign off", err))
		}
	}
}

func (w *worker) reportLines(policies []record.InForce, a *guard.Answer) []reportLine {
	whole := reportLine{policy: processLine, state: atWork}
	if a.Stops() {
		whole.state, whole.reason, whole.held = isWaiting, a.Detail, stopsAll(a).Reason
		if a.Reason == guard.HistoryChanged {
			whole.state = isStopped // `lapse history` relies on it: it may see less of the server
		}
	}
	lines := []reportLine{whole}
	working := w.scheduler.working()
	for i := range policies {
		p := &policies[i]
		if p.State != schemas.Armed {
			continue
		}
		m := w.memory(p)
		said := w.guards.saying(p.Name)
		is, run, by, own := m.pauses.now(), m.run.now(), m.locks.by(), w.stays(p)
		line := reportLine{policy: p.ID, held: own.Reason}
		switch {
		case is.stopped != nil:
			line.state, line.reason, line.next = isStopped, is.stopped.Error(), is.until
		case a.Stops():
			continue // the line of the process says so
		case said.verdict >= guard.Wait:
			line.state, line.reason, line.next = isWaiting, said.text(), said.until
		case is.throttled == throttleLock:
			line.state, line.reason, line.next = isWaiting, lockText(by), is.until
		case own.Reason == schemas.HeldByLock: // between two runs
			line.state, line.reason = isWaiting, own.Detail
			line.next, _ = p.NextRun()
		case !working[p.ID] && !run.at(p.Unfinished):
			continue
		case said.verdict == guard.Slow:
			line.state, line.reason = isSlow, said.text()
		case m.index.now().missing != "":
			line.state, line.reason = isSlow, noIndex+": "+m.index.now().missing
		case is.throttled == limitPass:
			line.next = is.until
			line.state, line.reason = isWaiting, fmt.Sprintf("%s lets no more go in this minute, of all policies together", limitPass)
		case is.throttled == limitRate:
			line.state, line.reason = isSlow, rateText(p)
		default:
			line.state = isDeleting
			if is.throttled == throttlePace {
				line.reason = fmt.Sprintf("at gentle pace, in batches of about %s, for %.3g %% of the time", rowsOf(int64(m.sizing.rows())), 100*is.share)
				if p.Limits.PaceShare() > 0 {
					line.reason = fmt.Sprintf("for %s of the time, in batches of about %s", p.Limits.Pace, rowsOf(int64(m.sizing.rows())))
				}
			}
			if by.process != 0 {
				line.reason = strings.TrimPrefix(line.reason+"; "+string(schemas.HeldByLock)+": "+by.String(), "; ")
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// writeReport replaces the report of a process.
func writeReport(ctx context.Context, conn *pgx.Conn, process string, lines []reportLine) error {
	policies, states, reasons, tries := make([]int32, len(lines)), make([]string, len(lines)), make([]string, len(lines)), make([]*time.Time, len(lines))
	held := make([]string, len(lines))
	for i, l := range lines {
		policies[i], states[i], reasons[i], held[i] = int32(l.policy), l.state, l.reason, string(l.held)
		if !l.next.IsZero() {
			tries[i] = &l.next
		}
	}
	var nothing any
	if err := conn.QueryRow(ctx, `select lapse.report($1, $2, $3, $4, $5, $6)`, process, policies, states, reasons, tries, held).Scan(&nothing); err != nil {
		return fmt.Errorf("say what this process is at: %w", err)
	}
	return nil
}
