//go:build long

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lapse/internal/child"
	"lapse/internal/fixture"
	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// A Prometheus scrapes a serve that deletes, loads the rules, and answers each question of the dashboard.
func TestPrometheusScrapesALiveServe(t *testing.T) {
	t.Parallel()
	promtool := promtool(t)
	db := pgtest.New(t, pgtest.Newest(t))
	s := newShop(t, db, kafkatest.Broker(t), 2000, 0, 100)
	ctx, cancel := patience(t)
	defer cancel()
	served := s.serves(ctx)

	check := exec.CommandContext(ctx, promtool, "check", "metrics")
	check.Stdin = strings.NewReader(served.metrics(ctx))
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}

	p := startPrometheus(ctx, t, served)
	var found struct{ Result []struct{ Value [2]any } }
	err := eventually(ctx, func() (bool, error) {
		err := p.asks(ctx, "/api/v1/query", url.Values{"query": {`lapse_rows_deleted_total{policy="sessions-30d"}`}}, &found)
		return err == nil && len(found.Result) == 1 && found.Result[0].Value[1] == "2000", served.alive()
	})
	if err != nil {
		t.Fatalf("wait for a scrape with 2000 deleted rows: %v: %v", err, found)
	}

	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	alerts := len(alertName.FindAllString(readDeployed(t, "prometheus/rules.yml"), -1))
	err = eventually(ctx, func() (bool, error) {
		err := p.asks(ctx, "/api/v1/rules", nil, &rules)
		healthy := 0
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				if r.Health == "ok" {
					healthy++
				}
			}
		}
		return err == nil && healthy == alerts, served.alive()
	})
	if err != nil {
		t.Errorf("of %d rules not all are healthy: %v: %v", alerts, err, rules)
	}

	values := strings.NewReplacer("$job", "app", "$policy", ".*", "$__rate_interval", "1m")
	for _, expression := range dashboardExpressions(t) {
		if err := p.asks(ctx, "/api/v1/query", url.Values{"query": {values.Replace(expression)}}, &found); err != nil {
			t.Errorf("the dashboard asks %s: %v", expression, err)
		}
	}
	served.stop()
}

// dashboardExpressions are what the dashboard's panels ask Prometheus.
func dashboardExpressions(t *testing.T) (all []string) {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(readDeployed(t, "grafana/lapse.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			all = append(all, target.Expr)
		}
	}
	if len(all) < 20 {
		t.Fatalf("the dashboard asks %d questions", len(all))
	}
	return all
}

// scraper is a running Prometheus.
type scraper struct{ address string }

// startPrometheus starts one that scrapes a process each second, with the rules.
func startPrometheus(ctx context.Context, t *testing.T, served *daemon) *scraper {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is missing: apt-get install prometheus")
	}
	target, err := served.address(ctx)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := filepath.Abs("../../deploy/prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	port, err := child.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	config := fmt.Sprintf("global: { scrape_interval: 1s, evaluation_interval: 1s }\nrule_files: [%q]\nscrape_configs: [{ job_name: app, static_configs: [{ targets: [%q] }] }]\n",
		rules, target)
	if err := os.WriteFile(filepath.Join(folder, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &scraper{fmt.Sprintf("127.0.0.1:%d", port)}
	cmd := exec.Command(program, "--config.file="+folder+"/prometheus.yml", "--storage.tsdb.path="+folder+"/data", "--web.listen-address="+p.address)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return p
}

// asks reads the data of an answer.
func (p *scraper) asks(ctx context.Context, path string, query url.Values, data any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(answer.Body).Decode(&said); err != nil {
		return err
	}
	if said.Status != "success" {
		return errors.New(said.Error)
	}
	return nil
}

// In the image there is the program, its configuration and nothing else: no shell, no libraries, no zones, no /tmp, nothing to write to.
func TestTheStaticProgramRunsInAnEmptyReadOnlyRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("chroot wants root")
	}
	db := pgtest.New(t, pgtest.Newest(t))
	s := newShop(t, db, kafkatest.Broker(t), 500, 0, 100)
	s.m.lapse("apply", "--yes", "-f", s.m.write("policies.yaml", fmt.Sprintf(policyText, 100)+"    window: \"00:00-23:59 Pacific/Chatham\"\n"))
	root := emptyRoot(t, s.m)
	file := func(name string) string { return filepath.Join(s.m.dir, name) }
	program := s.m.write("confined", fmt.Sprintf(`#!/bin/sh
exec unshare --mount --propagation private sh -c '
	mount --bind %[1]s %[1]s && mount -o remount,bind,ro %[1]s && cd / && exec chroot --userspec=65532:65532 --groups=65532 %[1]s /lapse "$@"' lapse "$@"
`, root))
	if err := os.Chmod(program, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), file("confined"), "version").CombinedOutput(); err != nil {
		t.Fatalf("lapse version in an empty root: %v\n%s", err, out)
	}
	s.m.bin, s.m.env = program, []string{"LAPSE_CONFIG=/etc/lapse/lapse.yaml", "PATH=" + os.Getenv("PATH"), allowSuperuser}
	if plan := s.m.lapse("plan"); !strings.Contains(plan, "sessions-30d") || !strings.Contains(plan, "500") {
		t.Errorf("the plan in an empty root:\n%s", plan)
	}
	ctx, cancel := patience(t)
	defer cancel()
	served := s.serves(ctx)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", served.cmd.Process.Pid))
	if err != nil || !strings.Contains(string(status), "\nUid:\t65532\t65532\t65532\t65532\n") || !strings.Contains(string(status), "\nCapEff:\t0000000000000000\n") {
		t.Errorf("it runs as somebody: %v\n%s", err, status)
	}
	served.stop()
	s.runsApart(program, root)
}

// runsApart has executor and auditors run as the chart starts them: each with its own login in the environment, an executor with one key of the
// four, and a second auditor, which is ready while the first one reads the slot.
func (s *shop) runsApart(program, root string) {
	s.t.Helper()
	part := func(command, role, keys string) *daemon {
		m := *s.m
		m.bin, m.env = program, []string{
			"LAPSE_CONFIG=/etc/lapse/apart.yaml", "LAPSE_KEYS=" + keys, "LAPSE_DATABASE_URL=" + s.db.As(role), "PATH=" + os.Getenv("PATH"), allowSuperuser,
		}
		return m.start(command, "--http", "127.0.0.1:0", "--log-format", "json")
	}
	text, err := os.ReadFile(filepath.Join(root, "etc/lapse/lapse.yaml"))
	tag, unread := os.ReadFile(filepath.Join(root, "etc/lapse/keys/tag"))
	only := filepath.Join(root, "etc/lapse/one")
	err = errors.Join(err, unread, os.Mkdir(only, 0o755), os.WriteFile(filepath.Join(only, "tag"), tag, 0o440), os.Chown(filepath.Join(only, "tag"), 0, 65532),
		os.WriteFile(filepath.Join(root, "etc/lapse/apart.yaml"), regexp.MustCompile(`(?m)^(database|keys):.*\n`).ReplaceAll(text, nil), 0o644))
	if err != nil {
		s.t.Fatal(err)
	}
	executor := part("run", "lapse_executor", "/etc/lapse/one")
	auditor := part("audit", "lapse_auditor", "/etc/lapse/keys")
	auditor.ready(http.StatusOK)
	executor.ready(http.StatusOK)
	second := part("audit", "lapse_auditor", "/etc/lapse/keys")
	second.ready(http.StatusOK)
	if metrics := second.metrics(s.t.Context()); !strings.Contains(metrics, "\nlapse_standing_by 1\n") || !strings.Contains(metrics, "\nlapse_ready{part=\"audit\"} 1\n") {
		s.t.Errorf("the second auditor does not stand by:\n%s", metrics)
	}
	for _, d := range []*daemon{executor, auditor, second} {
		d.stop()
	}
}

// emptyRoot is the root of an image as deploy/Dockerfile makes it, with a machine's settings mounted as Kubernetes would: keys that root owns,
// for the process's group to read.
func emptyRoot(t *testing.T, m *machine) string {
	t.Helper()
	root := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join(root, "lapse"), ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.MkdirAll(filepath.Join(root, "etc/lapse/keys"), 0o755); err != nil {
		t.Fatal(err)
	}
	copied := func(name string, mode os.FileMode) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(m.dir, name))
		to := filepath.Join(root, "etc/lapse", name)
		if err = errors.Join(err, os.WriteFile(to, text, mode), os.Chmod(to, mode), os.Chown(to, 0, 65532)); err != nil {
			t.Fatal(err)
		}
	}
	copied("lapse.yaml", 0o444)
	for _, key := range []string{"tag", "log", "rows", "hash"} {
		copied("keys/"+key, 0o440)
	}
	for at := root; at != os.TempDir() && at != "/"; at = filepath.Dir(at) { // go test's folders are the user's own
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// What docker-compose.yml has Lapse do, with its files, as the login that it has there.
func TestWhatTheComposeFileStartsDeletes(t *testing.T) {
	t.Parallel()
	compose, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	db := pgtest.New(t, pgtest.Newest(t))
	m := newMachine(t, "")
	m.env = append(m.env[1:], "LAPSE_DATABASE_URL="+db.URL, "LAPSE_KAFKA_BROKERS="+kafkatest.Solo(t, kafkaserver.Options{}).Addr(), "LAPSE_KEYS="+filepath.Join(m.dir, "keys"))
	command := func(service string) []string {
		t.Helper()
		found := regexp.MustCompile(`(?s)\n  ` + service + `:.*?\n    command: \[(.*?)\]`).FindSubmatch(compose)
		if found == nil {
			t.Fatalf("%s has no command", service)
		}
		text := strings.NewReplacer("/app/", "../../deploy/compose/", "/var/lib/lapse", m.dir, "0.0.0.0:7432", "127.0.0.1:0", `"`, "").Replace(string(found[1]))
		args := strings.Split(text, ", ")
		for i, arg := range args {
			if strings.HasSuffix(arg, ".yaml") {
				if args[i], err = filepath.Abs(arg); err != nil {
					t.Fatal(err)
				}
			}
		}
		return args
	}
	db.Exec(t, readDeployed(t, "compose/schema.sql"))
	m.lapse(command("init")...)
	m.lapse(command("apply")...)
	life, _, _ := strings.Cut(readDeployed(t, "compose/life.sql"), `\watch`)
	for range 5 {
		db.Exec(t, life)
	}
	db.Exec(t, `update public.sessions set last_seen = now() - interval '2 minutes' where id % 2 = 0`)
	due := fixture.One[int](t, db.Connect(t), `select count(*)::int from public.sessions where last_seen < now() - interval '1 minute'`)
	served := m.start(append(command("lapse"), "--log-format", "json")...)
	ctx, cancel := patience(t)
	defer cancel()
	conn := db.Connect(t)
	err = eventually(ctx, func() (gone bool, err error) {
		err = conn.QueryRow(ctx, `select count(*) = 0 from public.sessions where last_seen < now() - interval '90 seconds'`).Scan(&gone)
		return gone, errors.Join(err, served.alive())
	})
	if err != nil || due < 40 {
		t.Errorf("of %d due rows some stay: %v", due, err)
	}
	served.stop()
}
