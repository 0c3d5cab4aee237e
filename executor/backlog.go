package executor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lapse/planner/record"
	"lapse/schemas"
)

// backlogMetrics measure due and remaining rows from the results of runs and looks. They read no table.
type backlogMetrics struct {
	backlog, oldest, watermark, held, success, lag, latitude *prometheus.GaugeVec
}

func newBacklogMetrics() backlogMetrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "lapse", Name: name, Help: help}, labels())
	}
	return backlogMetrics{
		backlog:   gauge("expired_backlog_rows", "Rows that are due: during a run those that it expects and has not deleted yet, at its end those that it left."),
		oldest:    gauge("oldest_expired_age_seconds", "How long the oldest row has been due that the last run left, or that stays because something keeps the policy from deleting it; 0 for none."),
		watermark: gauge("watermark_timestamp_seconds", "When the last run ended, no row that fell due before this time was left."),
		held:      gauge("rows_held", "Rows that were due and held when the last run ended."),
		success:   gauge("last_success_timestamp_seconds", "When a run of the policy last ended that tried all due rows, or a look found none; rows in quarantine are ignored."),
		lag:       gauge("schedule_lag_seconds", "For how long a run of the policy has been due that is not over; 0 for none. Time outside its window counts."),
		latitude:  gauge("latitude_seconds", "How long after they fall due rows are to be gone, as the policy says; 0 where it says nothing."),
	}
}

func (b *backlogMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{b.backlog, b.oldest, b.watermark, b.held, b.success, b.lag, b.latitude}
}

// goesOn records how far a run is, if its number of due rows is known.
func (b *backlogMetrics) goesOn(p *record.InForce, expected, deleted int64) {
	if expected > 0 {
		b.backlog.WithLabelValues(string(p.Name), p.TableName).Set(float64(max(expected-deleted, 0)))
	}
}

// ended records what a run left. whole: nothing kept it from any due row.
func (b *backlogMetrics) ended(p *record.InForce, st *Statistics, whole bool, now time.Time) {
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

// outsideRuns records what any process found out about a policy outside its runs: after a start, while something keeps the policy from
// deleting, and while other processes do the work. at: this process works on a run, which reports its own progress.
func (b *backlogMetrics) outsideRuns(p *record.InForce, at bool, now time.Time) {
	name, table := string(p.Name), p.TableName
	latest := func(g *prometheus.GaugeVec, t *time.Time, looked bool) {
		if t == nil || looked && p.LookedAt.After(*t) {
			t = &p.LookedAt
		}
		if !t.IsZero() {
			g.WithLabelValues(name, table).Set(seconds(*t))
		}
	}
	latest(b.success, p.Success, true)
	latest(b.watermark, p.Watermark, lookedAtAll(p))
	if p.Ended != nil && p.Ended.LeftHeld != nil {
		b.held.WithLabelValues(name, table).Set(float64(*p.Ended.LeftHeld))
	}
	if at {
		return
	}
	if due := p.Overdue(); due != nil {
		b.backlog.WithLabelValues(name, table).Set(float64(due.Due))
	}
	b.oldest.WithLabelValues(name, table).Set(p.OverdueFor(now).Seconds())
}

// late records the policy's latitude, and how long a run of an armed policy has been overdue. The catalog knows other processes' runs
// after lookedInterval at most.
func (b *backlogMetrics) late(p *record.InForce, now time.Time) {
	b.latitude.WithLabelValues(string(p.Name), p.TableName).Set(p.Latitude.Seconds())
	next, err := p.NextRun()
	if err == nil {
		next, err = p.Schedule.Opens(next)
	}
	if err != nil || p.State != schemas.Armed {
		b.lag.DeleteLabelValues(string(p.Name), p.TableName)
		return
	}
	lag := now.Sub(next)
	if p.Unfinished == nil && lag < lookedInterval+factsInterval {
		lag = 0
	}
	b.lag.WithLabelValues(string(p.Name), p.TableName).Set(max(0, lag.Seconds()))
}

// lookedAtAll reports whether a look that found nothing saw every due row. A look leaves out rows in quarantine.
func lookedAtAll(p *record.InForce) bool { return p.Quarantine.Rows == 0 && p.PutAside == 0 }

// nothingDue records a look that found nothing.
func (b *backlogMetrics) nothingDue(p *record.InForce, now time.Time) {
	none, watermark := int64(0), &now
	if !lookedAtAll(p) {
		watermark = p.Watermark
	}
	b.ended(p, &Statistics{LeftDue: &none, Watermark: watermark}, true, now)
}

// forget drops the gauges of a policy that is no longer in force.
func (b *backlogMetrics) forget(name schemas.PolicyName) {
	for _, g := range []*prometheus.GaugeVec{b.backlog, b.oldest, b.watermark, b.held, b.success, b.lag, b.latitude} {
		g.DeletePartialMatch(prometheus.Labels{"policy": string(name)})
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
