package audit

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lapse/audit/evidence"
	"lapse/audit/kafka"
	"lapse/audit/witness"
)

// Metrics of the audit. One lives as long as the process; cmd registers its collectors.
type Metrics struct {
	published    *prometheus.CounterVec
	deduplicated prometheus.Counter
	unverified   prometheus.Counter
	own          prometheus.Counter
	mismatches   prometheus.Counter
	gaps         prometheus.Counter
	bent         prometheus.Gauge
	standingBy   prometheus.Gauge
	lag          prometheus.GaugeFunc
	checkpoint   prometheus.GaugeFunc
	stalled      prometheus.GaugeFunc
	bytes        prometheus.Counter
	keysEnd      prometheus.Gauge
	kafka        *kafka.Metrics
	witness      *witness.Metrics

	byCause   [evidence.Unverified + 1][evidence.Move + 1]prometheus.Counter // published, looked up once
	since     atomic.Int64                                                   // see setWaiting; Unix microseconds, 0 for nothing
	unsigned  atomic.Int64                                                   // see setUnsigned; the same
	serverLag lagTracker
	sink      atomic.Pointer[func() time.Duration] // how long the sink has accepted nothing; nil before there is an auditor
}

// NewMetrics makes the collectors.
func NewMetrics() *Metrics {
	m := &Metrics{
		published: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lapse_events_published_total",
			Help: "Events handed to Kafka, by cause and operation. A truncate or a drop counts once for each partition.",
		}, []string{"cause", "op"}),
		deduplicated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapse_events_deduplicated_total",
			Help: "Events that the slot sent again and that were in their topic already.",
		}),
		unverified: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapse_transactions_unverified_total",
			Help: "Transactions that wrote into the ledger what does not verify, or deleted beside a claim.",
		}),
		own: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapse_own_batches_unverified_total",
			Help: "Transactions with a batch or a drop that the deletion functions wrote and that fits none of the tag keys. Each stops all deletion.",
		}),
		mismatches: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapse_reconciliation_mismatches_total",
			Help: "Transactions whose changes in the WAL were not what they claimed.",
		}),
		gaps: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapse_gaps_total",
			Help: "Gaps written: deletions between two positions that are not in the topics, or not as what they were.",
		}),
		bent: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lapse_history_bent",
			Help: "1 while the database is not the one that the log is of, and nothing is published, confirmed or deleted.",
		}),
		standingBy: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lapse_standing_by",
			Help: "1 while another auditor reads the slot, and this one takes over when that one ends.",
		}),
		kafka: kafka.NewMetrics(), witness: witness.NewMetrics(),
	}
	m.lag = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lapse_audit_lag_seconds",
		Help: "Age of the oldest transaction that is being read or waits for Kafka, time since the server wrote what has not been read, " +
			"or time without a stream, whichever is longest; 0 if none.",
	}, m.lagSeconds)
	m.checkpoint = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lapse_checkpoint_age_seconds",
		Help: "Age of the oldest record of the log that no checkpoint covers, by this auditor's clock; 0 if all are covered.",
	}, func() float64 {
		since := m.unsigned.Load()
		if since == 0 {
			return 0
		}
		return max(0, time.Since(time.UnixMicro(since)).Seconds())
	})
	m.addLimits()
	m.lookUpCauses()
	return m
}

// addLimits makes the metrics that say how much is read, and how near the auditor is to a stop.
func (m *Metrics) addLimits() {
	m.bytes = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lapse_stream_bytes_total",
		Help: "Bytes read from the replication slot.",
	})
	m.keysEnd = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "lapse_row_keys_end_timestamp_seconds",
		Help: "When the first month begins that has no key for commitments to rows, in Unix time, as of this auditor's start: it stops then.",
	})
	m.stalled = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lapse_sink_stalled_seconds",
		Help: "Time for which what waits for Kafka or the folder has not been taken there; 0 if nothing waits.",
	}, func() float64 {
		if stalled := m.sink.Load(); stalled != nil {
			return (*stalled)().Seconds()
		}
		return 0
	})
}

// lookUpCauses fills in byCause, so that every combination has a series from the start.
func (m *Metrics) lookUpCauses() {
	for _, cause := range []evidence.Cause{evidence.System, evidence.Unverified} {
		m.byCause[cause][evidence.SoftDelete] = m.published.WithLabelValues(cause.String(), evidence.SoftDelete.String())
	}
	m.byCause[evidence.System][evidence.Drop] = m.published.WithLabelValues(evidence.System.String(), evidence.Drop.String())
	m.byCause[evidence.User][evidence.Move] = m.published.WithLabelValues(evidence.User.String(), evidence.Move.String())
	for _, cause := range []evidence.Cause{evidence.System, evidence.User, evidence.Unverified} {
		for _, op := range []evidence.Op{evidence.Delete, evidence.Truncate} {
			m.byCause[cause][op] = m.published.WithLabelValues(cause.String(), op.String())
		}
	}
}

// Collectors returns all collectors, including those of publishing, for a registry.
func (m *Metrics) Collectors() []prometheus.Collector {
	own := []prometheus.Collector{m.published, m.deduplicated, m.unverified, m.own, m.mismatches, m.gaps, m.bent, m.standingBy, m.lag, m.checkpoint, m.stalled, m.bytes, m.keysEnd}
	return append(append(own, m.kafka.Collectors()...), m.witness.Collectors()...)
}

// Published is only the counter of events, by cause and operation. Reading it makes no request.
func (m *Metrics) Published() prometheus.Collector { return m.published }

// of sets the auditor that the metrics measure.
func (m *Metrics) of(a *Auditor) {
	m.keysEnd.Set(float64(a.config.RowsKeys.End(time.Now()).Unix()))
	stalled := a.sinkStalled
	m.sink.Store(&stalled)
}

// setWaiting records since when something waits; the zero time means that nothing does.
func (m *Metrics) setWaiting(since time.Time) { m.since.Store(microsOrZero(since)) }

// setUnsigned records since when a record of the log has had no checkpoint; the zero time means that all have one.
func (m *Metrics) setUnsigned(since time.Time) { m.unsigned.Store(microsOrZero(since)) }

func microsOrZero(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func (m *Metrics) lagSeconds() float64 {
	now := time.Now()
	lag := m.serverLag.lag(now)
	if since := m.since.Load(); since != 0 {
		lag = max(lag, now.Sub(time.UnixMicro(since)))
	}
	return max(0, lag.Seconds())
}

// concluded counts the outcome of a transaction.
func (m *Metrics) concluded(a *evidence.Account, v evidence.Verdict) {
	if a.Unverified() {
		m.unverified.Inc()
	}
	if a.OwnUnverified != nil {
		m.own.Inc()
	}
	if v == evidence.Mismatch {
		m.mismatches.Inc()
	}
}
