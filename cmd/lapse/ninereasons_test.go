package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"lapse/internal/fixture"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// nineReasons are tables whose due rows stay, each for another reason: what is said in its policy, and what makes it so.
var nineReasons = []struct {
	reason  schemas.HeldBack
	says    string // in the policy, beside name, table and expire
	needs   bool   // a person
	prepare string // after the policy is armed and before anything is deleted
}{
	{"breaker", "max_fraction: 0.5", true, ""},
	{"held_back", "", true, ""},
	{"quarantine", "", true, "create table shop.refers (id bigint references shop.t_quarantine); insert into shop.refers values (1), (2), (3); create index on shop.refers (id)"},
	{"guard", "", true, "create function shop.spy() returns trigger language plpgsql as 'begin return old; end'; create trigger spy before delete on shop.t_guard for each row execute function shop.spy()"},
	{"clock", "", true, `insert into lapse.run (run, policy_id, version, cutoff, started_at, outcome)
		select gen_random_uuid(), policy_id, version, now() + interval '1 hour', now() - interval '2 hours', 'done' from lapse.gate where name = 'p_clock'`},
	{"lock", "latitude: 1 year", false, ""},
	{"limit", "max_rows_per_run: 10, latitude: 1 year", false, ""},
	{"window", "", false, ""},
	{"pause", "", false, ""},
}

// nineReasonsFile is the file of the nine policies.
func nineReasonsFile(t *testing.T, db *pgtest.DB, after map[schemas.HeldBack]string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("policies:\n")
	for _, r := range nineReasons {
		says := r.says
		if r.reason == "window" { // the hour that begins in five, by the server's clock
			var from, to string
			err := db.Connect(t).QueryRow(t.Context(), `select to_char(now() at time zone 'UTC' + interval '5 hours', 'HH24:00'), to_char(now() at time zone 'UTC' + interval '6 hours', 'HH24:00')`).Scan(&from, &to)
			if err != nil {
				t.Fatal(err)
			}
			says = fmt.Sprintf("window: %q", from+"-"+to+" UTC")
		}
		period := after[r.reason]
		if period == "" {
			period = "30 days"
		}
		fmt.Fprintf(&b, "  - { name: p_%s, table: shop.t_%s, expire: { column: at, after: %s }, every: 1 hour, state: armed", r.reason, r.reason, period)
		if says != "" {
			b.WriteString(", " + says)
		}
		b.WriteString(" }\n")
	}
	return b.String()
}

// answers runs a command and returns its exit code and its results.
func (m *machine) answers(args ...string) (code int, out string) {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), m.bin, args...)
	cmd.Dir, cmd.Env = m.dir, m.env
	text, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

// A policy that keeps due rows used to look healthy: ready, exit code 0, a backlog of 0. Each of the nine reasons is in status, its JSON,
// the page and the metrics, by the same word, with how many rows stay and since when.
func TestEachReasonForWhichDueRowsStayIsInStatusPageAndMetrics(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := context.WithTimeout(t.Context(), fixture.Patience) // nine policies, each with what keeps it
		defer cancel()
		m := newMachine(t, fmt.Sprintf("database: %q\nkeys: keys\naudit: off\n", db.URL))
		db.Exec(t, "create schema shop")
		for _, r := range nineReasons {
			db.Exec(t, fmt.Sprintf(`create table shop.t_%[1]s (id bigint primary key, at timestamptz); create index on shop.t_%[1]s (at, id);
				insert into shop.t_%[1]s select g, now() - interval '40 days' - g * interval '1 minute' from generate_series(1, 50) g; analyze shop.t_%[1]s`, r.reason))
		}
		m.lapse("init", "--keys", "keys")
		m.lapse("apply", "--yes", "-f", m.write("policies.yaml", nineReasonsFile(t, db, map[schemas.HeldBack]string{"held_back": "50 days"})))
		db.Exec(t, `select lapse.advance_arming(policy_id) from lapse.gate`, `select lapse.advance_arming(policy_id) from lapse.gate`)
		m.answers("apply", "--yes", "-f", m.write("policies.yaml", nineReasonsFile(t, db, nil)))
		db.Exec(t, `select lapse.advance_arming(policy_id) from lapse.gate`, `select lapse.advance_arming(policy_id) from lapse.gate`)
		m.lapse("policy", "pause", "p_pause")
		for _, r := range nineReasons {
			if r.prepare != "" {
				db.Exec(t, r.prepare)
			}
		}
		locker := db.Connect(t)
		if _, err := locker.Exec(ctx, "begin; select * from shop.t_lock where id <= 5 for update"); err != nil {
			t.Fatal(err)
		}
		served := m.serve()
		served.ready(http.StatusServiceUnavailable) // an error stops two policies
		n := nine{t: t, m: m, served: served}
		err := eventually(ctx, func() (bool, error) { return n.allSay(ctx), served.alive() })
		if err != nil {
			t.Fatalf("wait until each reason is said: %v: %s", err, n.missing)
		}
		n.show(ctx)
	})
}

// nine checks the nine policies.
type nine struct {
	t       *testing.T
	m       *machine
	served  *daemon
	missing string
}

// allSay reports whether each policy's due rows stay for its reason, by status and metrics.
func (n *nine) allSay(ctx context.Context) bool {
	code, out := n.m.answers("status", "--json")
	var said struct {
		Result struct {
			Policies []struct {
				Policy  string
				Overdue *struct {
					Due     int64
					Seconds float64
				}
				Stays []struct {
					Reason      schemas.HeldBack
					NeedsPerson bool `json:"needs_person"`
				} `json:"held_back_by"`
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &said); err != nil {
		n.t.Fatalf("%v in %s", err, out)
	}
	metrics := n.served.metrics(ctx)
	n.missing = ""
	if code != exitPerson {
		n.missing += fmt.Sprintf("status ends with %d; ", code)
	}
	for _, p := range said.Result.Policies {
		for _, r := range nineReasons {
			if p.Policy != "p_"+string(r.reason) {
				continue
			}
			if len(p.Stays) != 1 || p.Stays[0].Reason != r.reason || p.Stays[0].NeedsPerson != r.needs {
				n.missing += fmt.Sprintf("status of %s says %+v; ", p.Policy, p.Stays)
			}
			// What is due under the version that is held back nobody counts, nor what a stranger's trigger would see.
			if r.reason != "held_back" && r.reason != "guard" && (p.Overdue == nil || p.Overdue.Due == 0 || p.Overdue.Seconds < 10*24*3600) {
				n.missing += fmt.Sprintf("of %s is overdue %+v; ", p.Policy, p.Overdue)
			}
			for _, reason := range schemas.HeldBackReasons {
				is := 0
				if reason == r.reason {
					is = 1
				}
				if line := fmt.Sprintf("\nlapse_held_back{policy=%q,reason=%q,table=%q} %d\n", p.Policy, reason, "shop.t_"+string(r.reason), is); !strings.Contains(metrics, line) {
					n.missing += "no " + strings.TrimSpace(line) + "; "
				}
			}
		}
	}
	n.pageSays(ctx)
	return n.missing == "" && len(said.Result.Policies) == len(nineReasons)
}

// pageSays wants each line of `lapse status` about a policy on the page, word for word, with commands as code.
func (n *nine) pageSays(ctx context.Context) {
	page := html.UnescapeString(strings.NewReplacer("<code>", "`", "</code>", "`").Replace(n.served.get(ctx, "/")))
	_, out := n.m.answers("status")
	notes := 0
	for line := range strings.Lines(out) {
		name, note, is := strings.Cut(strings.TrimSpace(line), ": ")
		if !is || !strings.HasPrefix(name, "p_") {
			continue
		}
		notes++
		if !strings.Contains(page, note) {
			n.missing += fmt.Sprintf("the page does not say of %s %q; ", name, note)
		}
	}
	if notes < len(nineReasons) {
		n.missing += fmt.Sprintf("status has %d notes; ", notes)
	}
}

// show logs what a person sees, and wants the doctor to fail by those that need one.
func (n *nine) show(ctx context.Context) {
	code, out := n.m.answers("status")
	n.t.Logf("lapse status, exit code %d:\n%s", code, out)
	var lines []string
	for line := range strings.Lines(n.served.metrics(ctx)) {
		if strings.HasPrefix(line, "lapse_held_back{") && strings.HasSuffix(line, " 1\n") ||
			strings.HasPrefix(line, "lapse_oldest_expired_age_seconds{") || strings.HasPrefix(line, "lapse_expired_backlog_rows{") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	n.t.Logf("/metrics:\n%s", strings.Join(lines, ""))
	code, doctor := n.m.answers("doctor")
	for _, r := range nineReasons {
		if named := strings.Contains(doctor, fmt.Sprintf("policy p_%s, %s: ", r.reason, r.reason)); named != r.needs || code != exitPerson {
			n.t.Errorf("the doctor ends with %d, and names %s: %v\n%s", code, r.reason, named, doctor)
		}
	}
}
