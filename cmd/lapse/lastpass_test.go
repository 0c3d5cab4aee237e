package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"lapse/internal/pgtest"
)

// A pass that was stopped is gone when somebody asks: why its policy's rows stay was said by its exit code alone, and status ended with 0.
func TestWhyAPassWasStoppedIsOnRecordWhenItsProcessIsGone(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		m := newMachine(t, fmt.Sprintf("database: %q\nkeys: keys\naudit: off\n", db.URL))
		for _, table := range []string{"p", "q"} {
			db.Exec(t, fmt.Sprintf("create table public.%[1]s (id bigint primary key, at timestamptz); create index on public.%[1]s (at, id)", table),
				fmt.Sprintf("insert into public.%s select g, now() - interval '9 days' from generate_series(1, 20) g", table))
		}
		m.lapse("init", "--keys", "keys")
		m.lapse("apply", "--yes", "-f", m.write("policies.yaml", `policies:
  - { name: p, table: public.p, expire: { column: at, after: 1 day }, every: 1 day, state: armed }
  - { name: q, table: public.q, expire: { column: at, after: 1 day }, every: 1 day, state: armed }
`))
		database := func(change string) {
			t.Helper()
			db.Exec(t, "do $$begin execute format('alter database %I "+change+"', current_database()); end$$")
		}
		says := func(when string, needs ...string) {
			t.Helper()
			want := exitDone
			if len(needs) > 0 {
				want = exitPerson
			}
			code, text := m.answers("status", "--json")
			_, doctor := m.answers("doctor")
			if code != want {
				t.Errorf("%s: status ends with %d, want %d:\n%s", when, code, want, text)
			}
			for _, policy := range []string{"p", "q"} {
				needed := strings.Contains(strings.Join(needs, " "), policy)
				if named := strings.Contains(doctor, "policy "+policy+", guard: the last pass"); named != needed {
					t.Errorf("%s: the doctor names %s: %v\n%s", when, policy, named, doctor)
				}
			}
			if len(needs) > 0 && !strings.Contains(text, "session_replication_role") {
				t.Errorf("%s: status does not say why:\n%s", when, text)
			}
		}
		database("set session_replication_role = replica")
		if code, out := m.answers("run", "--now", "p"); code == exitDone {
			t.Fatalf("a pass under replica ends with 0: %s", out)
		}
		says("one policy's pass was stopped", "p")
		if code, _ := m.answers("run", "--once"); code == exitDone {
			t.Fatal("a pass under replica ends with 0")
		}
		says("both policies' pass was stopped", "p", "q")
		served := m.serve()
		served.ready(http.StatusServiceUnavailable)
		ctx, cancel := patience(t)
		defer cancel()
		err := eventually(ctx, func() (bool, error) {
			metrics, both := served.metrics(ctx), true
			for _, policy := range []string{"p", "q"} {
				both = both && strings.Contains(metrics, fmt.Sprintf("lapse_held_back{policy=%q,reason=\"guard\",table=\"public.%s\"} 1\n", policy, policy))
			}
			return both, served.alive()
		})
		if err != nil {
			t.Errorf("the metrics do not say why: %v", err)
		}
		served.stop()
		database("reset session_replication_role")
		m.lapse("run", "--now", "p")
		says("one policy had its pass", "q")
		m.lapse("run", "--once")
		says("each had its pass")
	})
}
