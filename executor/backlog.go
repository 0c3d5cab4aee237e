package executor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lapse/planner"
	"lapse/schemas"
)

// backlogMetrics say what is due and left, from what runs and looks know: no table is read for them.
type backlogMetrics struct {
	backlog, oldest, watermark, held, success *prometheus.GaugeVec
}

func newBacklogMetrics() backlogMetrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "lapse", Name: name, Help: help}, labels())
	}
	return backlogMetrics{
		backlog:   gauge("expired_backlog_rows", "Rows that are due and there: what a run has not deleted yet of what it expects to, and at its end what it left."),
		oldest:    gauge("oldest_expired_age_seconds", "How long the oldest row that the last run left had been due when it ended; 0 for none."),
		watermark: gauge("watermark_timestamp_seconds", "Nothing that fell due before was left when the last run ended."),
		held:      gauge("rows_held", "Rows that were due and held when the last run ended."),
		success:   gauge("last_success_timestamp_seconds", "When a run of the policy last ended with nothing in its way."),
	}
}

func (b *backlogMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{b.backlog, b.oldest, b.watermark, b.held, b.success}
}

// goesOn takes down how far a run is, where it is known how much there was.
func (b *backlogMetrics) goesOn(p *planner.InForce, expected, deleted int64) {
	if expected > 0 {
		b.backlog.WithLabelValues(string(p.Name), p.TableName).Set(float64(max(expected-deleted, 0)))
	}
}

// ended takes down what a run left. whole: nothing stood in its way.
func (b *backlogMetrics) ended(p *planner.InForce, st *Statistics, whole bool, now time.Time) {
	name, table := string(p.Name), p.TableName
	if st.LeftDue != nil {
		b.backlog.WithLabelValues(name, table).Set(float64(*st.LeftDue))
	} else {
		b.backlog.DeleteLabelValues(name, table)
	}
	if st.LeftHeld != nil {
		b.held.WithLabelValues(name, table).Set(float64(*st.LeftHeld))
	}
	if st.Watermark != nil {
		b.watermark.WithLabelValues(name, table).Set(seconds(*st.Watermark))
		age := 0.0
		if st.LeftDue != nil && *st.LeftDue > 0 {
			age = max(0, now.Sub(*st.Watermark).Seconds())
		}
		b.oldest.WithLabelValues(name, table).Set(age)
	}
	if whole {
		b.success.WithLabelValues(name, table).Set(seconds(now))
	}
}

// nothingDue takes down a look that found nothing.
func (b *backlogMetrics) nothingDue(p *planner.InForce, now time.Time) {
	none := int64(0)
	b.ended(p, &Statistics{LeftDue: &none, Watermark: &now}, true, now)
}

// forget drops the gauges of a policy that is no longer in force.
func (b *backlogMetrics) forget(name schemas.PolicyName) {
	for _, g := range []*prometheus.GaugeVec{b.backlog, b.oldest, b.watermark, b.held, b.success} {
		g.DeletePartialMatch(prometheus.Labels{"policy": string(name)})
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
