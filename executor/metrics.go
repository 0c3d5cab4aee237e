package executor

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lapse/executor/batch"
	"lapse/executor/guard"
	"lapse/planner/record"
	"lapse/schemas"
)

// Metrics are the executor's measurements. Safe for concurrent use.
type Metrics struct {
	deleted, cascaded, batches, skips, throttled, limits *prometheus.CounterVec
	batchSeconds, runSeconds                             *prometheus.HistogramVec
	batchSize, state                                     *prometheus.GaugeVec
	backlog                                              backlogMetrics
	quarantined, oldestQuarantined                       *prometheus.GaugeVec
	paused                                               prometheus.Gauge
	stopped                                              *prometheus.GaugeVec
	stays                                                *prometheus.GaugeVec

	mu     sync.Mutex
	reason guard.Reason                     // the label of stopped while it is 1
	tables map[schemas.PolicyName]string    // of the policies in force
	gone   map[schemas.PolicyName]time.Time // policies dropped lately: their series are dropped again until this time
}

// goneFor is longer than a turn of a policy that is dropped meanwhile: such a turn makes series again.
const goneFor = time.Minute

// Outcomes of a batch: a label of batches_total.
const (
	outcomeCommitted = "committed"
	outcomeEmpty     = "empty" // committed; there was nothing to delete
	outcomeLost      = "lost"  // its COMMIT got no answer and did not happen
)

// reasonPutAside is the label of skips_total for shards with a row that resists.
const reasonPutAside = "shard_put_aside"

// stateStopped is the state of a policy that the executor stopped. The gate has no such state.
const stateStopped schemas.State = "stopped"

func newMetrics() *Metrics {
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "lapse", Name: name, Help: help}, labels(more...))
	}
	gauge := func(name, help string, more ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "lapse", Name: name, Help: help}, labels(more...))
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "lapse", Name: name, Help: help, Buckets: buckets}, labels())
	}
	return &Metrics{
		tables: map[schemas.PolicyName]string{}, gone: map[schemas.PolicyName]time.Time{},
		backlog:      newBacklogMetrics(),
		deleted:      counter("rows_deleted_total", "Rows deleted from the policy's table."),
		cascaded:     counter("rows_cascaded_total", "Rows that foreign keys took along."),
		batches:      counter("batches_total", "Batches, by how they ended.", "outcome"),
		skips:        counter("skips_total", "Turns that a due policy did not get, by the reason.", "reason"),
		limits:       counter("limit_reached_total", "Runs that a limit ended or held up, by the limit.", "which"),
		throttled:    counter("throttle_seconds_total", "Time that batches were held back, by the reason; pace includes the pauses within a batch.", "reason"),
		batchSeconds: histogram("batch_seconds", "Time from BEGIN to the answer to COMMIT, with the batch's pauses.", prometheus.ExponentialBuckets(0.001, 2, 15)),
		runSeconds:   histogram("run_seconds", "Time from the opening of a run to its last batch.", prometheus.ExponentialBuckets(0.1, 3, 14)),
		batchSize:    gauge("batch_size", "Rows that the latest batch was allowed."),
		state:        gauge("policy_state", "1 for the state the policy is in. stopped: by an error, until its next scheduled time.", "state"),
		quarantined:  gauge("rows_quarantined", "Rows that could not be deleted and are in quarantine."),
		stays:        gauge("held_back", "1 while due rows stay for that reason: breaker, held_back, limit, window, lock, quarantine, guard, clock or pause.", "reason"),
		paused: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "lapse", Name: "paused", Help: "1 while every deletion in the database is paused, by a person or by the auditor's alarm.",
		}),
		stopped: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "lapse", Name: "deletion_stopped",
			Help: "1 while this executor deletes nothing in the whole database, by the reason: paused_all (a person), alarm (the auditor), slot_lost and the like.",
		}, []string{"reason"}),
		oldestQuarantined: gauge("oldest_quarantined_age_seconds", "Time since the first of them was tried first; 0 for none."),
	}
}

// inQuarantine measures what a policy has in quarantine.
func (m *Metrics) inQuarantine(p *record.InForce, now time.Time) {
	age := 0.0
	if p.Quarantine.Rows > 0 {
		age = max(0, now.Sub(p.Quarantine.Oldest).Seconds())
	}
	m.quarantined.WithLabelValues(string(p.Name), p.TableName).Set(float64(p.Quarantine.Rows))
	m.oldestQuarantined.WithLabelValues(string(p.Name), p.TableName).Set(age)
}

func labels(more ...string) []string { return append([]string{"policy", "table"}, more...) }

// Collectors returns the collectors for the caller to register.
func (m *Metrics) Collectors() []prometheus.Collector {
	return append(m.backlog.collectors(), m.quarantined, m.oldestQuarantined, m.deleted, m.cascaded, m.batches, m.skips, m.throttled, m.limits,
		m.batchSeconds, m.runSeconds, m.batchSize, m.state, m.paused, m.stopped, m.stays)
}

// committed counts a durable batch.
func (m *Metrics) committed(p *record.InForce, done *batch.Result) {
	name, table := string(p.Name), p.TableName
	outcome := outcomeCommitted
	if done.Picked == 0 {
		outcome = outcomeEmpty
	}
	m.batches.WithLabelValues(name, table, outcome).Inc()
	m.deleted.WithLabelValues(name, table).Add(float64(done.Deleted))
	m.cascaded.WithLabelValues(name, table).Add(float64(done.Cascaded))
}

// stay measures why due rows of a policy stay.
func (m *Metrics) stay(p *record.InForce, stays []record.Stay) {
	for _, reason := range schemas.HeldBackReasons {
		is := 0.0
		if slices.ContainsFunc(stays, func(s record.Stay) bool { return s.Reason == reason }) {
			is = 1
		}
		m.stays.WithLabelValues(string(p.Name), p.TableName, string(reason)).Set(is)
	}
}

// answered measures whether every deletion is paused, and why this process deletes nothing.
func (m *Metrics) answered(a *guard.Answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	is, reason := 0.0, guard.Reason("")
	if a.Stops() {
		reason = a.Reason
	}
	if reason == guard.PausedAll || reason == guard.Alarmed {
		is = 1
	}
	m.paused.Set(is)
	if m.reason != "" {
		m.stopped.WithLabelValues(string(m.reason)).Set(0)
	}
	if m.reason = reason; reason != "" {
		m.stopped.WithLabelValues(string(reason)).Set(1)
	}
}

// limited counts a run that reached a limit.
func (m *Metrics) limited(p *record.InForce, which string) {
	m.limits.WithLabelValues(string(p.Name), p.TableName, which).Inc()
}

// failed counts a batch that was rolled back.
func (m *Metrics) failed(p *record.InForce, outcome string) {
	m.batches.WithLabelValues(string(p.Name), p.TableName, outcome).Inc()
}

// in measures which state a policy is in.
func (m *Metrics) in(p *record.InForce, state schemas.State) {
	for _, s := range []schemas.State{schemas.Observing, schemas.Arming, schemas.Armed, schemas.Paused, stateStopped} {
		is := 0.0
		if s == state {
			is = 1
		}
		m.state.WithLabelValues(string(p.Name), p.TableName, string(s)).Set(is)
	}
}

// inForce drops the series of policies that are no longer in force, and of tables that were renamed.
func (m *Metrics) inForce(policies []record.InForce, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	tables := make(map[schemas.PolicyName]string, len(policies))
	for i := range policies {
		tables[policies[i].Name] = policies[i].TableName
		delete(m.gone, policies[i].Name)
	}
	for name, table := range m.tables {
		switch renamed, is := tables[name]; {
		case !is:
			m.gone[name] = now.Add(goneFor)
		case renamed != table:
			m.forget(name)
		}
	}
	for name, until := range m.gone {
		m.forget(name)
		if now.After(until) {
			delete(m.gone, name)
		}
	}
	m.tables = tables
}

// forget drops all series of a policy.
func (m *Metrics) forget(name schemas.PolicyName) {
	of := prometheus.Labels{"policy": string(name)}
	for _, c := range []*prometheus.CounterVec{m.deleted, m.cascaded, m.batches, m.skips, m.throttled, m.limits} {
		c.DeletePartialMatch(of)
	}
	for _, g := range []*prometheus.GaugeVec{m.state, m.batchSize, m.stays, m.quarantined, m.oldestQuarantined} {
		g.DeletePartialMatch(of)
	}
	m.batchSeconds.DeletePartialMatch(of)
	m.runSeconds.DeletePartialMatch(of)
	m.backlog.forget(name)
}
