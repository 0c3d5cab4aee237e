package planner

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/schemas"
)

func TestRestatingWritesEveryPolicyAgainAndTakesTheArmedOnesBackToArming(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create table others (id bigint primary key, last_seen timestamptz)`)
		w.walks(step{both("30 days", isArmed), "p 1 armed; q 1 observing"})
		var armed []schemas.PolicyID
		must(t, pgx.BeginFunc(t.Context(), w.admin, func(tx pgx.Tx) error {
			must(t, change.LockGates(t.Context(), tx, testRoles))
			var err error
			armed, err = change.RestateAll(t.Context(), tx, "restated: history 2 accepted")
			return err
		}))
		p := w.named("p")
		if len(armed) != 1 || armed[0] != p.ID || p.State != schemas.Arming || w.named("q").State != schemas.Observing {
			t.Errorf("armed were %v; p is %s, q is %s", armed, p.State, w.named("q").State)
		}
		got := valueOn[string](t, w.admin, `
			select string_agg(s.policy_id || ' ' || s.state, ', ' order by s.policy_id) from lapse.policy_state s
			 where s.reason = 'restated: history 2 accepted'`)
		if want := "1 arming, 2 observing"; got != want {
			t.Errorf("written again are %s, want %s", got, want)
		}
		w.arm(p.ID)
		if p := w.named("p"); p.State != schemas.Armed {
			t.Errorf("once the auditor has passed p is %s", p.State)
		}
	})
}
