package executor

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
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
