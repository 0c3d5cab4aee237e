package planner

import (
	"reflect"
	"testing"

	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/schemas"
)

// A list that is loaded with what is remembered of the one before is the list that the catalog has, whatever became of a policy meanwhile: also
// where somebody wrote another text under the same number, as a restore may.
func TestARememberedVersionIsTheOneInTheCatalog(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create table people (id int primary key, at timestamptz)`)
		var remembered record.Versions
		same := func(after string) (p, q *record.InForce) {
			t.Helper()
			for range 2 {
				list, err := remembered.LoadInForce(t.Context(), w.exec)
				must(t, err)
				fresh := w.inForce()
				for i := range min(len(list), len(fresh)) { // not since when: of what is written by hand that is now
					list[i].Since, list[i].ArmedAt = fresh[i].Since, fresh[i].ArmedAt
				}
				if !reflect.DeepEqual(list, fresh) {
					t.Errorf("%s the list is\n%+v\nand what is remembered makes it\n%+v", after, fresh, list)
				}
				for i := range list {
					if list[i].Name == "p" {
						p = &list[i]
					} else {
						q = &list[i]
					}
				}
			}
			return p, q
		}
		file := func(p, q string) string {
			return "policies:\n" +
				"  - {name: p, table: shop.sessions, expire: {column: last_seen, after: " + p + "}, state: armed}\n" +
				"  - {name: q, table: shop.people, expire: {column: at, after: " + q + "}, state: armed}\n"
		}
		same("before the first policy")
		w.apply(file("30 days", "30 days"))
		p, _ := same("after apply")
		w.arm(p.ID)
		if p, _ := same("once it is armed"); p.State != schemas.Armed {
			t.Errorf("p is %s", p.State)
		}
		must(t, runSQL(w.admin, "update lapse.gate set state = 'paused' where name = 'p'"))
		if p, _ := same("once it is paused"); p.State != schemas.Paused {
			t.Errorf("p is %s", p.State)
		}
		w.apply(file("30 days", "60 days"))
		if _, q := same("after a change"); q.Version != 2 {
			t.Errorf("q has version %d", q.Version)
		}
		w.apply(file("30 days", "20 days")) // more falls due
		same("while a version is held back")

		must(t, runSQL(w.admin, "set session_replication_role = replica"))
		must(t, runSQL(w.admin, `update lapse.policy set spec = spec || '{"batch": 77}'`))
		if p, q := same("after an edit by hand"); p.Batch != 77 || q.Batch != 77 {
			t.Errorf("batches are of %d and %d rows", p.Batch, q.Batch)
		}
		must(t, runSQL(w.admin, "update lapse.policy set table_name = 'shop.sessions', table_oid = 'shop.sessions'::regclass where name = 'q'"))
		if _, q := same("with another table"); q.TableName != "shop.sessions" {
			t.Errorf("q is of %s", q.TableName)
		}
		must(t, runSQL(w.admin, "update lapse.policy set table_name = 'shop.people', table_oid = 'shop.people'::regclass where name = 'q'"))
		must(t, runSQL(w.admin, "reset session_replication_role"))

		must(t, runSQL(w.admin, "update lapse.gate set state = 'dropped' where name = 'q'"))
		if _, q := same("once it is dropped"); q != nil {
			t.Error("q is there")
		}
		w.apply(file("30 days", "30 days"))
		if _, q := same("once it is made again"); q == nil || q.Batch == 77 {
			t.Errorf("q is %+v", q)
		}
		must(t, runSQL(w.admin, "set session_replication_role = replica"))
		must(t, runSQL(w.admin, `update lapse.policy set spec = spec || '{"unheard_of": 1}' where name = 'p'`))
		if _, err := remembered.LoadInForce(t.Context(), w.exec); err == nil {
			t.Error("a version that this program cannot read is loaded")
		}
	})
}
