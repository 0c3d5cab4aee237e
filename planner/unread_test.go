package planner

import (
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/planner/survey"
)

// What is there and is no time is counted, by a policy that is applied and by one that is not, and shown without what is in it.
func TestAValueThatIsNoTimeIsCountedAndNotShown(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db,
			`create table texts (id int primary key, v text)`,
			`create table numbers (id int primary key, v numeric)`,
			`create table documents (id int primary key, v jsonb)`,
			`insert into texts values (1, '2019-05-27 21:20:00.5+00'), (2, null), (3, 'May 27, 2019'), (4, 'June 12, 2020'), (5, 'anna@example.org'), (6, '2019-05-27T21:20:00 Ä'),
			   (7, repeat('secret ', 500)), (8, ''), (9, '2019-02-29'), (10, '2019-02-31')`,
			`insert into numbers values (1, 1550165973), (2, null), (3, 'NaN'), (4, 1e30), (5, 1550165973000000)`,
			`insert into documents values (1, '{"at": "2019-05-27T21:20:00Z"}'), (2, '{"at": 1550165973}'), (3, '{"at": 1550165973123}'), (4, '{"at": null}'), (5, '{}'), (6, null),
			   (7, '{"at": true}'), (8, '{"at": {"a": "b"}}'), (9, '{"at": "1550165973"}')`)
		file := `policies:
  - {name: texts, table: shop.texts, expire: {column: v, iso8601: true}}
  - {name: numbers, table: shop.numbers, expire: {column: v, epoch: s}}
  - {name: documents, table: shop.documents, expire: {column: v, instant: true, path: at}}
`
		want := map[string]string{
			"texts":     `8 of the 10 rows looked through have a value that is no time here, and never expire: they are like "9999-99-99", "", "9999-99-99a99:99:99 a"`,
			"numbers":   `3 of the 5 rows looked through have a value that is no time here, and never expire: they are like 9999999999999999, 9999999999999999999999999999999, aaa`,
			"documents": `4 of the 9 rows looked through have a value that is no time here, and never expire: they are like "9999999999", 9999999999999, boolean`,
		}
		check := func(s *survey.Survey, due int64) {
			if s.Trouble != "" || s.Due != due || s.Unread == nil || s.Unread.Arrays != 0 || s.Unread.String() != want[string(s.Policy)] {
				t.Errorf("%s: %+v, %+v", s.Policy, s, s.Unread)
			}
		}
		due := map[string]int64{"texts": 1, "numbers": 1, "documents": 2}
		w.apply(file)
		for _, p := range w.inForce() {
			for _, ask := range []survey.Ask{{}, {AtMost: 1000}} {
				s, err := ask.InForce(t.Context(), w.exec, &p)
				must(t, err)
				check(s, due[string(p.Name)])
			}
		}
		b := &bare{world: w, login: "postgres"}
		for _, p := range b.proposals(file) {
			s, err := change.SurveyDraft(t.Context(), b.draft(nil), survey.Ask{AtMost: 1000}, p.Resolved)
			must(t, err)
			check(s, due[string(p.Policy.Name)])
		}
		// An array has no one time: a file that names one is refused, with what to write.
		w.do(`insert into documents values (10, '{"at": ["2019-05-27", "2030-05-27"]}')`)
		p := b.proposals(file)[2]
		s, err := change.SurveyDraft(t.Context(), b.draft(nil), survey.Ask{AtMost: 1000}, p.Resolved)
		must(t, err)
		if err := survey.RowsFit(p.Resolved, s); err == nil || !strings.Contains(err.Error(), "have an array at path at") || !strings.Contains(err.Error(), "path: at.0") {
			t.Errorf("got %v", err)
		}
	})
}
