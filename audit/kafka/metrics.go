package kafka

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of publishing. One lives as long as the process; publishers that follow one another count in the same.
type Metrics struct {
	seconds *prometheus.HistogramVec
	records *prometheus.CounterVec
	batches *prometheus.CounterVec
	bytes   *prometheus.CounterVec
	retries *prometheus.CounterVec
	opened  prometheus.Counter
	foreign *prometheus.CounterVec

	mu      sync.Mutex
	counted map[topicPartition]int64 // up to which offset foreign records are counted
}

type topicPartition struct {
	topic     string
	partition int32
}

// NewMetrics makes the collectors; registering them is the caller's.
func NewMetrics() *Metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"topic"})
	}
	return &Metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lapse_publish_seconds",
			Help:    "Time from the first attempt to send a batch to its acknowledgement by all replicas.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12),
		}, []string{"topic"}),
		records: counter("lapse_publish_records_total", "Records acknowledged, without fences."),
		batches: counter("lapse_publish_batches_total", "Batches acknowledged."),
		bytes:   counter("lapse_publish_bytes_total", "Bytes of acknowledged batches, as they were sent: compressed."),
		retries: counter("lapse_publish_retries_total", "Attempts to send a batch that had to be repeated."),
		foreign: counter("lapse_foreign_records_total", "Somebody else's records that were found after ours and skipped."),
		counted: make(map[topicPartition]int64),
		opened: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lapse_publisher_opened_total",
			Help: "Times a publisher took over the topics: at start, and after each loss of its session.",
		}),
	}
}

// Collectors are all collectors, for a registry.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.seconds, m.records, m.batches, m.bytes, m.retries, m.opened, m.foreign}
}

// countedTo returns the offset up to which former publishers have counted foreign records; 0 for a fence below it, which is in a topic that
// was created again.
func (m *Metrics) countedTo(at topicPartition, fence int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if offset, ok := m.counted[at]; ok && offset < fence {
		return offset
	}
	return noOffset
}

// steppedOver counts n foreign records that were not counted before, and remembers up to which offset.
func (m *Metrics) steppedOver(at topicPartition, n int, offset int64) {
	m.foreign.WithLabelValues(at.topic).Add(float64(n))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counted[at] = offset
}
