package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	metricName = regexp.MustCompile(`\blapse_[a-z_]+\b`)
	alertName  = regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)
)

// Rules and dashboard ask for what Lapse measures, and nothing else.
func TestEveryMetricOfRulesAndDashboardIsThere(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	for _, m := range measurements(t) {
		there[m.name] = true
	}
	for _, file := range []string{"prometheus/rules.yml", "prometheus/rules_test.yml", "grafana/lapse.json"} {
		names := metricName.FindAllString(readDeployed(t, file), -1)
		if len(names) < 15 {
			t.Errorf("%s has %d metrics", file, len(names))
		}
		for _, name := range names {
			if whole := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, ""); !there[name] && !there[whole] {
				t.Errorf("%s asks for %s, which is not measured", file, name)
			}
		}
	}
}

// Each alert has its section in the runbook, which has no other, and is seen to fire and not to fire.
func TestEveryAlertHasItsRunbookAndItsTest(t *testing.T) {
	t.Parallel()
	rules, tests, runbook := readDeployed(t, "prometheus/rules.yml"), readDeployed(t, "prometheus/rules_test.yml"), documentation(t)["docs/runbook.md"]
	var alerts []string
	for _, found := range alertName.FindAllStringSubmatch(rules, -1) {
		name := found[1]
		alerts = append(alerts, name)
		if !strings.Contains(rules, "runbook: docs/runbook.md#"+strings.ToLower(name)+"\n") {
			t.Errorf("%s does not name its section of the runbook", name)
		}
		if !strings.Contains(tests, "alertname: "+name+", exp_alerts: [] }") || !strings.Contains(tests, "alertname: "+name+"\n        exp_alerts:\n") {
			t.Errorf("rules_test.yml does not show when %s fires, and when it does not", name)
		}
	}
	if n := strings.Count(rules, "severity: critical") + strings.Count(rules, "severity: warning"); n != len(alerts) {
		t.Errorf("%d alerts have %d severities", len(alerts), n)
	}
	var sections []string
	for part := range strings.SplitSeq(runbook, "\n## ") {
		name, text, _ := strings.Cut(part, "\n")
		if strings.HasPrefix(name, "# ") {
			continue
		}
		sections = append(sections, name)
		if !regexp.MustCompile(`\*\*Wake (somebody|nobody)`).MatchString(text) {
			t.Errorf("the section %s does not say when to wake somebody", name)
		}
	}
	if !slices.Equal(sections, alerts) {
		t.Errorf("the runbook has the sections\n%s\nand the rules the alerts\n%s", sections, alerts)
	}
}

//lapse:long
func TestPromtoolAcceptsTheRules(t *testing.T) {
	t.Parallel()
	promtool := promtool(t)
	for _, args := range [][]string{
		{"check", "rules", "../../deploy/prometheus/rules.yml"},
		{"test", "rules", "../../deploy/prometheus/rules_test.yml"},
	} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// promtool is Prometheus' own program, of Debian's package prometheus.
func promtool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is missing: apt-get install prometheus")
	}
	return path
}

func readDeployed(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
