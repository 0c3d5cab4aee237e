package planner

import (
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/survey"
)

// A schema's owner may drop what is in it, and put a view in a table's place. While the owner holds the lock for that, a survey
// waits; it does not read the view, whose functions would run with the rights of the table's owner.
func TestATableThatBecomesAViewWhileASurveyWaitsIsNotRead(t *testing.T) {
	t.Parallel()
	const gone = "shop.sessions is gone, renamed or another table"
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 5)
		w.do(`create function spy(at timestamptz) returns timestamptz language plpgsql as $$ begin perform pg_notify('spy', current_user); return at; end $$`)
		w.apply(untilSessions)
		p := w.inForce()[0]
		b := &bare{w, "postgres", nil}
		resolved := b.proposals(untilSessions)[0].Resolved
		swapper := db.Connect(t)
		for name, ask := range map[string]func() (*survey.Survey, error){
			"in force": func() (*survey.Survey, error) { return surveyInForce(t.Context(), w.exec, &p, time.Time{}) },
			"a draft": func() (*survey.Survey, error) {
				return change.SurveyDraft(t.Context(), b.draft(nil), survey.Ask{}, resolved)
			},
		} {
			tx, err := swapper.Begin(t.Context())
			must(t, err)
			_, err = tx.Exec(t.Context(), `lock table shop.sessions`)
			must(t, err)
			var s *survey.Survey
			done := inBackground(func() (err error) { s, err = ask(); return err })
			w.waitForLock()
			_, err = tx.Exec(t.Context(), `alter table shop.sessions rename to real`)
			must(t, err)
			_, err = tx.Exec(t.Context(), `create view shop.sessions as select id, shop.spy(last_seen) as last_seen from shop.real; grant select on shop.sessions to public`)
			must(t, err)
			must(t, tx.Commit(t.Context()))
			must(t, <-done)
			if s.Trouble != gone || s.Due != 0 {
				t.Errorf("%s: got %+v", name, s)
			}
			must(t, runSQL(w.admin, `drop view shop.sessions; alter table shop.real rename to sessions`))
		}
	})
}

// What a policy's author wrote is counted as it will be deleted, though it looks like a call of the catalog's: else the prompt of
// apply would say that nothing falls due.
func TestTextsThatLookLikeCallsAreCountedAsTheyStand(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		b := newBare(t, db, "postgres", sessions, `create table "lapse.pin(" (id bigint primary key, "lapse.inspect(" timestamptz)`)
		b.fill("sessions", 5)
		b.do(`insert into "lapse.pin(" select id, last_seen from sessions`)
		for _, file := range []string{
			policyText("shop.sessions", "last_seen", "30 days", `    where: "'lapse.pin(' = 'lapse' || '.pin(' and 'lapse.cascade_statement(' <> 'pg_temp.cascade_statement('"`),
			policyText(`'shop."lapse.pin("'`, `"lapse.inspect("`, "30 days"),
		} {
			if s := b.survey(file, survey.Ask{}); s.Due != 5 || s.Trouble != "" {
				t.Errorf("%s\n%+v", file, s)
			}
		}
	})
}

// The scripts of a draft are run as they are, maybe by a superuser: no name ends a comment of them.
func TestADraftIsNotWrittenOfANameThatEndsAComment(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"shop.\"x\nalter role app superuser;--\"", `shop."$lapse$"`} {
		d := functions.Definition{Name: "p", Table: name, Expire: &expiry.Age{}}
		if text, err := d.DraftSurvey(1, false); err == nil {
			t.Errorf("%q: %s", name, text)
		}
	}
}
