package planner

import (
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/survey"
)

// What a run would stop for within seconds, its plan says: of a policy in force, and of one in a file.
//
//lapse:long
func TestDueTimesInTheAbsurdPastAreForetold(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create index on sessions (last_seen, id)`)
		w.fill("sessions", 1_400)
		w.armed(untilSessions + "\n    state: armed\n")
		b := &bare{w, w.app, nil}
		foretold := func(what, want string) {
			t.Helper()
			p := w.named("p")
			for _, atMost := range []int64{0, 10_000} {
				inForce, err := survey.Ask{AtMost: atMost}.InForce(t.Context(), w.exec, &p)
				must(t, err)
				for _, s := range []*survey.Survey{inForce, b.survey(untilSessions, survey.Ask{AtMost: atMost})} {
					if s.Breaker.WouldTrip != (want != "") || !strings.HasPrefix(s.Breaker.Why, want) || s.Trouble != "" || s.Due == 0 || time.Until(s.At) > 0 {
						t.Errorf("%s, version %d: %+v of %d rows", what, s.Version, s.Breaker, s.Due)
					}
				}
			}
		}
		foretold("none of them", "")
		w.do(`insert into sessions (id, last_seen) select 100000 + n, to_timestamp(0) from generate_series(1, 1300) n`)
		foretold("less than half", "")
		w.do(`insert into sessions (id, last_seen) select 200000 + n, to_timestamp(n) from generate_series(1, 200) n`)
		foretold("more than half", "most of the rows that are due expired by a time before 1971")
		must(t, runSQL(w.admin, `insert into lapse.breaker (policy_id, version, due, table_rows, cause, compared, accepted, accepted_at)
			select policy_id, version, 2900, 4300, 'absurd_past', 1500, 2900, clock_timestamp() from lapse.gate`))
		p := w.named("p")
		if s, err := surveyInForce(t.Context(), w.exec, &p, time.Time{}); err != nil || s.Breaker.WouldTrip {
			t.Errorf("where somebody said yes: %+v, %v", s, err)
		}
	})
}
