package executor

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lapse/executor/batch"
	"lapse/executor/guard"
	"lapse/planner/record"
	"lapse/schemas"
)

// counted sums a metric over the series that have one of these label values, or over all.
func counted(t testing.TB, e *Executor, name string, values ...string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(e.Metrics().Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			has := map[string]bool{}
			for _, label := range metric.GetLabel() {
				has[label.GetValue()] = true
			}
			all := true
			for _, value := range values {
				all = all && has[value]
			}
			if all {
				sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func TestADroppedPolicyLeavesNoSeries(t *testing.T) {
	t.Parallel()
	m, began := newMetrics(), time.Now()
	p := func(name, table string) record.InForce {
		return record.InForce{Name: schemas.PolicyName(name), TableName: table}
	}
	measured := func(of record.InForce) {
		m.committed(&of, &batch.Result{Picked: 1, Deleted: 1})
		m.failed(&of, outcomeLost)
		m.limited(&of, "rate")
		m.in(&of, schemas.Armed)
		m.stay(&of, nil)
		m.inQuarantine(&of, began)
		m.backlog.nothingDue(&of, began)
		m.backlog.late(&of, began)
		m.batchSeconds.WithLabelValues(string(of.Name), of.TableName).Observe(1)
	}
	series := func(label string) (n int) {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(m.Collectors()...)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				for _, l := range metric.GetLabel() {
					if l.GetValue() == label {
						n++
					}
				}
			}
		}
		return n
	}
	stays, goes := p("stays", "public.a"), p("goes", "public.b")
	m.inForce([]record.InForce{stays, goes}, began)
	measured(stays)
	measured(goes)
	if series("goes") == 0 || series("goes") != series("stays") {
		t.Fatalf("%d series of one policy and %d of the other", series("goes"), series("stays"))
	}
	m.inForce([]record.InForce{stays}, began)
	if n := series("goes"); n != 0 {
		t.Errorf("a dropped policy has %d series", n)
	}
	measured(goes) // by the turn that was under way
	m.inForce([]record.InForce{stays}, began.Add(time.Second))
	if n := series("goes"); n != 0 {
		t.Errorf("after its last turn a dropped policy has %d series", n)
	}
	m.inForce([]record.InForce{p("stays", "public.renamed")}, began.Add(2*time.Second))
	if n := series("public.a"); n != 0 {
		t.Errorf("a table that has another name has %d series", n)
	}
}

func TestTheReasonWhyNothingIsDeletedIsOneSeries(t *testing.T) {
	t.Parallel()
	e := &Executor{metrics: newMetrics()}
	for _, c := range []struct {
		answer  guard.Answer
		paused  float64
		stopped map[string]float64
	}{
		{guard.Answer{}, 0, nil},
		{guard.Answer{Verdict: guard.Wait, Refusal: guard.Refusal{Reason: guard.PausedAll}}, 1, map[string]float64{"paused_all": 1}},
		{guard.Answer{Verdict: guard.Refuse, Refusal: guard.Refusal{Reason: guard.LostSlot}}, 0, map[string]float64{"paused_all": 0, "slot_lost": 1}},
		{guard.Answer{}, 0, map[string]float64{"paused_all": 0, "slot_lost": 0}},
	} {
		e.metrics.answered(&c.answer)
		if got := counted(t, e, "lapse_paused"); got != c.paused {
			t.Errorf("%v: lapse_paused is %v", c.answer.Reason, got)
		}
		for reason, want := range c.stopped {
			if got := counted(t, e, "lapse_deletion_stopped", reason); got != want {
				t.Errorf("%v: of %s it is %v", c.answer.Reason, reason, got)
			}
		}
	}
}
