package planner

import (
	"slices"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/expiry"
)

// A kind that the product does not have, to show what the templates take: no bound.

// boundless is a kind of which no column limits what is due.
type boundless struct{ *expiry.TTL }

func (boundless) Order() expiry.Order       { return expiry.Order{} }
func (boundless) Bound(string) expiry.Bound { return expiry.Bound{} }
func (boundless) Due(cutoff, _ string) string {
	return `coalesce(t."at" + t."ttl" * interval '1 second' <= ` + cutoff + `, false)`
}

// otherKind is a kind with a table of seven rows of which 1, 2 and 3 are due.
type otherKind struct {
	kind  expiry.Kind
	ddl   []string
	table string
}

func otherKinds() map[string]otherKind {
	return map[string]otherKind{
		"boundless": {boundless{&expiry.TTL{Moment: expiry.Moment{Column: "at", Number: 2, Type: expiry.Timestamptz}, TTLColumn: "ttl", TTLNumber: 3, TTLType: "integer"}}, []string{
			`create table visits (id int primary key, at timestamptz, ttl int)`,
			`insert into visits values (1, now() - interval '3 days', 60), (2, now() - interval '2 days', 60), (3, now() + interval '1 hour', -7200),
			   (4, now() - interval '1 hour', 7200), (5, now() - interval '1 day', null), (6, null, 60), (7, now(), 60)`,
		}, "shop.visits"},
		"epoch": {&expiry.Epoch{Kind: "epoch", Value: expiry.Value{Column: "at", Number: 2, Type: "integer"}, Unit: "s"}, []string{
			`create table logins (id int primary key, at int)`,
			`create index on logins (at, id)`,
			`insert into logins values (1, -2147483648), (2, 0), (3, extract(epoch from now())::int - 1), (4, extract(epoch from now())::int + 3600),
			   (5, 2147483647), (6, null), (7, extract(epoch from now())::int + 60)`,
		}, "shop.logins"},
	}
}

func (k *otherKind) definition() Definition {
	return Definition{
		ID: 1, Version: 2, Name: "p", Table: k.table, Expire: k.kind, Batch: 100, Key: []KeyColumn{{Name: "id", Number: 1, Type: "integer", Plain: true}},
	}
}

// inForceBy makes the table of a kind, and puts a policy by it into force.
func inForceBy(w *world, k otherKind) InForce {
	w.t.Helper()
	for _, sql := range append(k.ddl, sessions) {
		w.do(sql)
	}
	p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
	d := k.definition()
	d.TableOwner = p.Definition.TableOwner
	create, give, err := FunctionsSQL(&d, testRoles)
	must(w.t, err)
	return inForceWith(w, &d, create+give)
}

// Rows are really picked, deleted and counted by kinds that are quite different, and only those that are due.
func TestTheTemplatesTakeOtherKinds(t *testing.T) {
	t.Parallel()
	for name, k := range otherKinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
				w := newWorld(t, db)
				p := inForceBy(w, k)
				survey, err := SurveyInForce(t.Context(), w.exec, &p, time.Time{})
				must(t, err)
				if survey.Due != 3 || survey.Trouble != "" || survey.Statement == "" || survey.Explain == "" {
					t.Errorf("the survey says %+v", survey)
				}
				if total := w.deleteAll(p, w.open(&p), 2); total.Picked != 3 || total.Deleted != 3 {
					t.Errorf("picked and deleted %+v, want 3", total)
				}
				if got := value[[]int32](w, `select array_agg(id order by id) from `+k.table); !slices.Equal(got, []int32{4, 5, 6, 7}) {
					t.Errorf("rows %v are left", got)
				}
			})
		})
	}
}

func TestTheTextsForOtherKindsAreWhatTheTestsRun(t *testing.T) {
	t.Parallel()
	for name := range otherKinds() {
		wantGolden(t, name)
	}
}
