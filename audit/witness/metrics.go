package witness

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of witnesses and anchors. One lives as long as the process.
type Metrics struct {
	failing *prometheus.GaugeVec
	lag     prometheus.GaugeFunc
	since   atomic.Int64 // Unix microseconds; 0: no checkpoint waits
}

// NewMetrics makes the collectors.
func NewMetrics() *Metrics {
	m := &Metrics{failing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lapse_witness_failing",
		Help: "1 while a witness does not cosign, or an anchor does not take, the log's checkpoints.",
	}, []string{"kind", "name"})}
	m.lag = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lapse_cosignature_lag_seconds",
		Help: "Age of the oldest checkpoint that neither has the cosignatures of the quorum of witnesses nor is followed by one that has; 0 if none.",
	}, func() float64 {
		since := m.since.Load()
		if since == 0 {
			return 0
		}
		return max(0, time.Since(time.UnixMicro(since)).Seconds())
	})
	return m
}

// Collectors are all collectors, for a registry.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.failing, m.lag}
}

func (m *Metrics) setSince(since time.Time) {
	if since.IsZero() {
		m.since.Store(0)
		return
	}
	m.since.Store(since.UnixMicro())
}
