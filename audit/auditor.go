package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"lapse/audit/kafka"
	"lapse/replication"
	"lapse/schemas"
)

// Config of an Auditor.
type Config struct {
	// Stream says where the slot is.
	Stream replication.StreamConfig

	// Kafka says how to reach the brokers. Topics, TransactionalID, FenceHeaders and Metrics are the auditor's own.
	Kafka kafka.Config

	// System, User and Log are the topics. System and User have Partitions partitions, Log has one. They are made, with
	// Replication copies (0: the brokers' default), if they are missing and Create is set.
	System, User, Log string
	Partitions        int
	Replication       int
	Create            bool

	// Keys are the tag keys under which a claim verifies.
	Keys []schemas.Key

	// HashKey is what long key values are hashed with. A log has one, for ever.
	HashKey schemas.Key

	// Beat writes the sign of life, lapse.beat, on the database that a stream was found to be of; on another it must fail. It
	// is called when the check of Histories has passed, and each BeatEvery. It must be safe for concurrent use. nil: none.
	Beat func(ctx context.Context, nonce uuid.UUID, place Place) error

	// BeatEvery is the time between two heartbeats; 0 is a minute, which the deletion functions count on.
	BeatEvery time.Duration

	// FailoverTolerance is how much a promotion may lose without a person's word, by the time between heartbeats; 0 is five
	// minutes, negative is nothing.
	FailoverTolerance time.Duration

	// Alarm stops every deletion in the database: lapse.alarm(reason). It is called when a batch that the deletion functions
	// wrote fits none of Keys, before that transaction's record is in the log, and again after a crash or an error: to be
	// stopped twice must be the same as once. The stop must be durable when it returns. Its error breaks the stream, which
	// is opened again; nothing behind that transaction is recorded before it has succeeded. It must be safe for concurrent
	// use with Beat. nil: such a batch is logged and counted, and that is all.
	Alarm func(ctx context.Context, reason string) error

	// Look returns the end of the server's log, and the error of replication.CheckAsync for the server process of the
	// stream. It is called every few seconds beside each stream, and must be safe for concurrent use with Beat and Alarm.
	// nil: the lag knows nothing of what the server has not sent.
	Look func(ctx context.Context, pid uint32) (schemas.LSN, error)

	// Until, if it is not nil, says where to stop: it is asked once, before the first transaction is read, and Run ends
	// when everything up to its answer is confirmed.
	Until func(ctx context.Context) (schemas.LSN, error)

	Metrics *Metrics     // nil: some that nobody sees
	Logger  *slog.Logger // nil: none
}

// Auditor publishes what is deleted, and keeps the log. See the package comment for what it promises.
type Auditor struct {
	config  Config
	metrics *Metrics
	log     *slog.Logger

	standing  atomic.Pointer[string] // why it is not ready; nil if it streams
	publisher atomic.Pointer[kafka.Publisher]
	pulse     pulse
	sight     sight
	looks     looks
	place     atomic.Pointer[Place] // of the stream that is read; nil between two
	process   string                // tells this process's fences from all others'
	streaming chan struct{}         // receives when a stream is fit to be read

	until schemas.LSN // 0: none, or not asked yet
	told  string      // the last error that waits for a person

	boundary func(step, func() bool) // relay.boundary
}

const (
	beatEvery    = time.Minute
	beatTimeout  = 10 * time.Second
	tolerance    = 5 * time.Minute
	bentPause    = 5 * time.Second  // between two looks at a database that is not the log's
	openTimeout  = 30 * time.Second // for a stream
	drainTimeout = 5 * time.Second  // for what is on its way when Run is to end
	closeTimeout = 2 * time.Second  // for each connection
	readyStalled = 5 * time.Second  // Kafka has not answered for so long: not ready
	backoffMin   = 100 * time.Millisecond
	backoffMax   = 10 * time.Second
)

// New makes an auditor. It connects to nothing before Run.
func New(config Config) (*Auditor, error) {
	a := &Auditor{
		config: config, metrics: config.Metrics, log: config.Logger, looks: defaultLooks, streaming: make(chan struct{}, 1),
		process: uuid.NewString(),
	}
	if a.config.BeatEvery == 0 {
		a.config.BeatEvery = beatEvery
	}
	if a.config.FailoverTolerance == 0 {
		a.config.FailoverTolerance = tolerance
	}
	if a.metrics == nil {
		a.metrics = NewMetrics()
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if len(config.Keys) == 0 {
		return nil, errors.New("no tag key: without one no claim can be verified")
	}
	for _, key := range config.Keys {
		if err := key.Check(); err != nil {
			return nil, fmt.Errorf("tag %w", err)
		}
	}
	if err := config.HashKey.Check(); err != nil {
		return nil, fmt.Errorf("hash %w", err)
	}
	if err := a.route(replication.Identity{}).Validate(); err != nil {
		return nil, err
	}
	a.stand("not started")
	return a, nil
}

// Collectors are all of the audit's metrics.
func (a *Auditor) Collectors() []prometheus.Collector { return a.metrics.Collectors() }

// Ready is nil while the auditor does its job: it streams, and Kafka answers. Safe for concurrent use.
func (a *Auditor) Ready() error {
	if why := a.standing.Load(); why != nil {
		return errors.New(*why)
	}
	if p := a.publisher.Load(); p != nil {
		if stalled := p.Stalled(); stalled >= readyStalled {
			return fmt.Errorf("events wait: Kafka has not answered for %s", stalled.Round(time.Second))
		}
	}
	if err := a.seen(time.Now()); err != nil {
		return err
	}
	return a.pulse.check(2 * a.config.BeatEvery)
}

func (a *Auditor) stand(why string) { a.standing.Store(&why) }

// Run audits until ctx ends, which is no error, or until Config.Until is reached. Any other end is an error that a
// person must look at: what passes by itself is tried again, for ever. It may be called once.
//
// When ctx ends, nothing more is read, what is on its way is waited for (five seconds at most), and the slot is told.
func (a *Auditor) Run(ctx context.Context) error {
	stopBeating := a.startBeating(ctx)
	defer stopBeating()
	defer a.stand("stopped")
	tries := attempts{}
	for {
		a.metrics.behind(time.Now())
		tries.begin()
		err := a.takeOver(ctx)
		switch {
		case ctx.Err() != nil, errors.Is(err, errReached):
			return nil
		case a.waitsForAPerson(err):
			if !pause(ctx, bentPause) {
				return nil
			}
			continue
		case gradeOf(err) == stop:
			return err
		}
		a.log.Warn("audit interrupted; starting over", "error", err)
		a.stand(whyNot(err))
		if !pause(ctx, a.pauseAfter(err, tries.next())) {
			return nil
		}
	}
}

// waitsForAPerson says whether an error passes only when somebody has decided, and tells them: nothing is published or
// confirmed meanwhile. With Until there is nobody to wait for.
func (a *Auditor) waitsForAPerson(err error) bool {
	var bent *BentError
	if !errors.As(err, &bent) && !errors.Is(err, ErrForeignTail) && !errors.Is(err, ErrOtherAuditor) {
		return false
	}
	a.metrics.bent.Set(1)
	if a.config.Until != nil {
		return false
	}
	if text := err.Error(); a.told != text {
		a.told = text
		a.log.Error("nothing is published, confirmed or deleted", "error", err)
	}
	a.stand(err.Error())
	return true
}

// attempts counts tries that failed soon after one another.
type attempts struct {
	count int
	began time.Time
}

func (t *attempts) begin() { t.began = time.Now() }

// next is the pause before the next try: twice as long each time, with chance in it, and short again after a try that
// lasted.
func (t *attempts) next() time.Duration {
	if time.Since(t.began) > backoffMax {
		t.count = 0
	}
	d := min(backoffMin<<min(t.count, 10), backoffMax)
	t.count++
	return d/2 + rand.N(d/2)
}

// pause reports whether it has passed before ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
