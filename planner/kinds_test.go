package planner

import (
	"slices"
	"testing"
	"time"

	"lapse/internal/fixture/definitions"
	"lapse/internal/pgtest"
	"lapse/planner/functions"
	"lapse/planner/record"
)

// inForceBy makes the table of a kind, and puts a policy by it into force.
func inForceBy(w *world, k definitions.Other) record.InForce {
	w.t.Helper()
	for _, sql := range append(k.DDL, sessions) {
		w.do(sql)
	}
	p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
	d := k.Definition()
	d.TableOwner = p.Definition.TableOwner
	create, give, err := functions.SQL(&d, testRoles)
	must(w.t, err)
	return inForceWith(w, &d, create+give)
}

// Rows are really picked, deleted and counted by kinds that are quite different, and only those that are due.
func TestTheTemplatesTakeOtherKinds(t *testing.T) {
	t.Parallel()
	for name, k := range definitions.Others() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
				w := newWorld(t, db)
				p := inForceBy(w, k)
				survey, err := surveyInForce(t.Context(), w.exec, &p, time.Time{})
				must(t, err)
				if survey.Due != 3 || survey.Trouble != "" || survey.Statement == "" || survey.Explain == "" {
					t.Errorf("the survey says %+v", survey)
				}
				if total := w.deleteAll(p, w.open(&p), 2); total.Picked != 3 || total.Deleted != 3 {
					t.Errorf("picked and deleted %+v, want 3", total)
				}
				if got := value[[]int32](w, `select array_agg(id order by id) from `+k.Table); !slices.Equal(got, []int32{4, 5, 6, 7}) {
					t.Errorf("rows %v are left", got)
				}
			})
		})
	}
}
