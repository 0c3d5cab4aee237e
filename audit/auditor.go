package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"lapse/audit/history"
	"lapse/audit/witness"
	"lapse/internal/backoff"
	"lapse/replication"
	"lapse/schemas"
)

// Auditor publishes what is deleted, and keeps the log. The package comment says what it promises.
type Auditor struct {
	config  Config
	metrics *Metrics
	log     *slog.Logger
	process string // names this process in its fences and heartbeats

	notReady   atomic.Pointer[string] // why no stream is open; nil while one is
	publisher  atomic.Pointer[publisher]
	server     atomic.Pointer[Server] // of the open stream; nil while none is open
	heartbeats heartbeatMonitor
	probed     probeState
	probing    probeLimits
	standby    standby
	witnesses  *witness.Witnesses // nil: the log's checkpoints are not sent to witnesses

	streamOpened chan struct{} // receives when a stream has passed the history check

	compared atomic.Bool // the log was compared with the database, or another auditor has the slot
	until    schemas.LSN // where to stop; 0: nowhere, or not known yet
	reported string      // the text of the last error that was logged because a person must decide

	boundary   func(step, func() bool) // relay.boundary
	coverEvery time.Duration           // of coverage
}

const (
	heartbeatTimeout = 10 * time.Second
	recheckPause     = 5 * time.Second  // between two history checks while a person must decide
	openTimeout      = 30 * time.Second // for a stream
	drainTimeout     = 5 * time.Second  // for what is not acknowledged when Run ends
	closeTimeout     = 2 * time.Second  // for each connection
	readyStalled     = 5 * time.Second  // not ready: the sink has taken nothing for that long
	backoffMin       = 100 * time.Millisecond
	backoffMax       = 10 * time.Second
)

// New makes an auditor. It connects to nothing before Run.
func New(config Config) (*Auditor, error) {
	if err := config.checkKeys(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	a := &Auditor{
		config: config, metrics: config.Metrics, log: config.Logger, probing: defaultProbeLimits, streamOpened: make(chan struct{}, 1),
		process: uuid.NewString(), coverEvery: coverageEvery,
	}
	if err := a.route(replication.Identity{}).Validate(); err != nil {
		return nil, err
	}
	a.metrics.of(a)
	a.setNotReady("not started")
	return a, nil
}

// sinkStalled is how long the sink has accepted nothing although something waits; 0 without a sink.
func (a *Auditor) sinkStalled() time.Duration {
	if p := a.publisher.Load(); p != nil {
		return (*p).Stalled()
	}
	return 0
}

// Ready is nil while the auditor streams, Kafka and the server answer, and heartbeats come back, or while it stands by for another auditor: see
// StandsBy. Safe for concurrent use.
func (a *Auditor) Ready() error {
	if a.StandsBy() != "" {
		return nil
	}
	if why := a.notReady.Load(); why != nil {
		return errors.New(*why)
	}
	if p := a.publisher.Load(); p != nil {
		if stalled := (*p).Stalled(); stalled >= readyStalled {
			return fmt.Errorf("events wait: %s for %s", (*p).Awaits(), stalled.Round(time.Second))
		}
	}
	if err := a.checkServer(time.Now()); err != nil {
		return err
	}
	return a.heartbeats.check(2 * a.config.HeartbeatEvery)
}

// Compared reports whether the log was compared with the database, or another auditor was found on the slot. Safe for concurrent use.
func (a *Auditor) Compared() bool { return a.compared.Load() }

// Until is where a Run with Config.Once ended.
func (a *Auditor) Until() schemas.LSN { return a.until }

func (a *Auditor) setNotReady(why string) { a.notReady.Store(&why) }

// Run audits until ctx ends, or, with Config.Once, until the current end is reached; neither is an error. It retries errors that go away by
// themselves forever; it returns any other error, for a person to check. Call it once.
//
// When ctx ends, Run reads nothing more, waits for what is not acknowledged (five seconds at most), and confirms it to the
// slot.
func (a *Auditor) Run(ctx context.Context) error {
	stopHeartbeats := a.startHeartbeats(ctx)
	defer stopHeartbeats()
	defer a.startWitnesses(ctx)()
	defer a.setNotReady("stopped")
	retry := backoff.Backoff{Min: backoffMin, Max: backoffMax}
	waits := time.Now() // since when another stream has had the slot
	for {
		if a.StandsBy() == "" {
			a.metrics.setWaiting(time.Now())
		}
		began := time.Now()
		err := a.takeOver(ctx)
		if time.Since(began) > backoffMax {
			retry.Reset() // it worked for a while
		}
		a.doubt(ctx, err)
		pause, taken := recheckPause, a.standsBy(err, time.Now())
		if taken {
			a.compared.Store(true)
		} else {
			waits = time.Now()
		}
		switch {
		case ctx.Err() != nil, errors.Is(err, errReached):
			return nil
		case a.waitsForPerson(err):
		case gradeOf(err) == stop, taken && a.config.SlotPatience > 0 && time.Since(waits) > a.config.SlotPatience:
			return err
		case taken:
			pause = a.pauseAfter(err, retry.Next())
		default:
			a.logInterruption(err)
			a.setNotReady(notReadyText(err))
			pause = a.pauseAfter(err, retry.Next())
		}
		if backoff.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

// waitsForPerson reports whether an error goes away only after a person has decided. Until then nothing is published or confirmed. The error is
// logged once, and Ready reports it. With Config.Once it does not wait: Run returns the error.
func (a *Auditor) waitsForPerson(err error) bool {
	var bent *history.BentError
	if !errors.As(err, &bent) && !errors.Is(err, history.ErrForeignTail) && !errors.Is(err, history.ErrOtherAuditor) {
		return false
	}
	a.metrics.bent.Set(1)
	if a.config.asks.end != nil {
		return false
	}
	if text := err.Error(); a.reported != text {
		a.reported = text
		a.log.Error("nothing is published, confirmed or deleted", "error", err)
	}
	a.setNotReady(err.Error())
	return true
}

// interruption is an error that ended a session and was logged already.
type interruption struct{ error }

func (i interruption) Unwrap() error { return i.error }

// logInterruption logs an error that ended a session, unless the session has done so.
func (a *Auditor) logInterruption(err error) {
	var logged interruption
	if !errors.As(err, &logged) {
		a.log.Warn("audit interrupted; starting over", "error", err)
	}
}
