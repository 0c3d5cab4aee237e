package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"lapse/audit"
	"lapse/executor"
	"lapse/internal/fixture"
)

// measurement is what Lapse says of one of its metrics.
type measurement struct{ name, help, labels string }

var describedAs = regexp.MustCompile(`^Desc\{fqName: "(lapse_\w+)", help: "(.*)", unit: "", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// measurements are all metrics of `lapse serve` that are Lapse's own, by name.
func measurements(t *testing.T) []measurement {
	t.Helper()
	database, err := pgx.ParseConfig("postgres://me@db/app")
	if err != nil {
		t.Fatal(err)
	}
	e, err := executor.New(executor.Config{Database: database, TagKey: make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	all := append(e.Metrics().Collectors(), audit.NewMetrics().Collectors()...)
	all = append(all, audit.NewDatabase(database).SlotLag("slot"), buildInfo())
	all = append(all, readyNow([]readiness{{part: "executor"}, {part: "audit"}})...)
	descriptions := make(chan *prometheus.Desc, 1000)
	for _, c := range all {
		c.Describe(descriptions)
	}
	close(descriptions)
	var found []measurement
	for d := range descriptions {
		is := describedAs.FindStringSubmatch(d.String())
		if is == nil {
			t.Fatalf("%s is not a metric of ours", d)
		}
		labels := is[4]
		if is[3] != "" { // their values are one process's
			labels = strings.Join(regexp.MustCompile(`\w+=`).FindAllString(is[3], -1), ",")
			labels = strings.ReplaceAll(labels, "=", "")
		}
		found = append(found, measurement{is[1], strings.ReplaceAll(is[2], `\"`, `"`), strings.ReplaceAll(labels, ",", ", ")})
	}
	slices.SortFunc(found, func(a, b measurement) int { return strings.Compare(a.name, b.name) })
	return slices.CompactFunc(found, func(a, b measurement) bool { return a.name == b.name })
}

const metricsHead = `# Metrics

For people who watch Lapse by Prometheus: each metric at ` + "`/metrics`" + `, its labels, and what it says. ` + "`deploy/prometheus/rules.yml`" + ` has the
alerts, [runbook.md](runbook.md) what to do about each, ` + "`deploy/grafana/lapse.json`" + ` a dashboard.

Series are bounded by the policies in force, and go when a policy is dropped. Counters of deleted rows begin with what the catalog has on
record, so a restart loses none. Beside these there are Go's and the process's own. ` + "`go test ./cmd/lapse -run Metrics -update`" + ` writes this page.

| metric | labels | what it says |
|---|---|---|
`

func TestTheMetricsAreDocumented(t *testing.T) {
	page := metricsHead
	for _, m := range measurements(t) {
		page += fmt.Sprintf("| `%s` | %s | %s |\n", m.name, m.labels, m.help)
	}
	fixture.WantFile(t, *update, "../../docs/metrics.md", page)
}

// lintMetrics holds what a busy process serves against Prometheus' conventions, and wants of it what only such a one has.
func lintMetrics(t *testing.T, text string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("metric %s: %s", p.Metric, p.Text)
	}
	for _, want := range []string{
		`lapse_stream_bytes_total [1-9]`, `lapse_ready{part="audit"} 1`, `lapse_ready{part="executor"} 1`, `lapse_row_keys_end_timestamp_seconds 1`,
		`lapse_sink_stalled_seconds [0-9]`, `lapse_schedule_lag_seconds{policy="tokens",table="example.tokens"} 0`, `lapse_build_info{.*} 1`,
	} {
		if !regexp.MustCompile(`(?m)^` + want).MatchString(text) {
			t.Errorf("/metrics does not have %s", want)
		}
	}
}
