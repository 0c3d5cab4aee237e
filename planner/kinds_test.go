package planner

import (
	"slices"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/expiry"
	"lapse/schemas"
)

// Kinds that the product does not have, to show what the templates take: a further relation, and no bound.

// registry is a kind by which a table of its own, with the same key, says when a row is due.
type registry struct{ *expiry.Age }

func (registry) Columns() []expiry.Column { return nil }
func (registry) Instant() string          { return `r."expires"` }
func (registry) Index() expiry.Index      { return expiry.Index{} }
func (registry) Order() expiry.Order {
	return expiry.Order{SQL: `r."expires"`, Cast: "timestamp with time zone"}
}

func (registry) Joins() []expiry.Join {
	return []expiry.Join{{Relation: "shop.registry", Alias: "r", On: `r."id" = t."id"`}}
}

func (registry) Bound(cutoff string) expiry.Bound {
	return expiry.Bound{Column: `r."expires"`, Type: "timestamp with time zone", Value: cutoff}
}

func (registry) Due(cutoff, bound string) string {
	return `case when r."expires" between '4713-01-01 BC' and ` + bound + ` then r."expires" <= ` + cutoff + ` else false end`
}

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
	named := &expiry.Age{Moment: expiry.Moment{Column: "expires", Type: expiry.Timestamptz}}
	return map[string]otherKind{
		"registry": {registry{named}, []string{
			`create table carts (id int primary key, note text)`,
			`create table registry (id int primary key, expires timestamptz)`,
			`create index on registry (expires)`,
			`insert into carts select n, 'x' from generate_series(1, 7) n`,
			`insert into registry values (1, now() - interval '3 days'), (2, now() - interval '2 days'), (3, now() - interval '1 second'),
			   (4, now() + interval '1 hour'), (5, null), (6, 'infinity'), (8, now() - interval '1 day')`,
		}, "shop.carts"},
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
	for name, k := range otherKinds() {
		d := k.definition()
		wantGolden(t, name, &d)
	}
}

// What the condition reads of another relation is locked by the pick: nobody can extend a row's time while the row goes, and
// a row whose time somebody is extending is left alone.
func TestTheRegistrysRowIsLockedWithTheRow(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		p := inForceBy(w, otherKinds()["registry"])
		extending, err := w.owner.Begin(t.Context())
		must(t, err)
		_, err = extending.Exec(t.Context(), `update registry set expires = now() + interval '1 day' where id = 2`)
		must(t, err)

		b := w.lease(p, w.open(&p))
		b.Limit = 1
		batch, err := w.exec.Begin(t.Context())
		must(t, err)
		got, err := w.callIn(batch, b, nil)
		must(t, err)
		if got.Picked != 1 || got.Deleted != 1 {
			t.Errorf("the batch picked and deleted %+v, want row 1", got)
		}
		other := db.ConnectAs(t, w.app)
		wantState(t, run(other, `select from shop.registry where id = 1 for update nowait`), schemas.SQLStateLockNotAvailable)
		must(t, run(other, `select from shop.registry where id in (3, 4, 5, 6) for update nowait`))
		must(t, batch.Commit(t.Context()))

		b.Limit = 100
		got, err = w.call(b, nil) // the rest of the first pass: row 3; row 2 is somebody's
		must(t, err)
		if got.Deleted != 1 || got.Finished {
			t.Errorf("the second batch deleted %+v, want row 3", got)
		}
		must(t, extending.Commit(t.Context()))
		got, err = w.call(b, nil)
		must(t, err)
		if got.Deleted != 0 || !got.Finished || got.LeftBehind {
			t.Errorf("the residual pass deleted %+v, want nothing", got)
		}
		if got := value[[]int32](w, `select array_agg(id order by id) from carts`); !slices.Equal(got, []int32{2, 4, 5, 6, 7}) {
			t.Errorf("rows %v are left", got)
		}
	})
}
