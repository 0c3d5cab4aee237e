package audit_test

import (
	"slices"
	"testing"

	"lapse/replication"
)

// What takes a partition out of the publication and puts it back between two heartbeats is in the log all the same.
func TestAPartitionThatWasAwayBetweenTwoHeartbeatsIsInTheLog(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		conn := r.db.Connect(t)
		r.db.Exec(t, `create table parts (id int primary key) partition by range (id)`, `create table parts_a partition of parts for values from (0) to (100) partition by range (id)`,
			`create table parts_aa partition of parts_a for values from (0) to (50)`, `create table parts_b partition of parts for values from (100) to (200)`,
			`insert into parts select n from generate_series(1, 150) n where n < 50 or n > 100`)
		r.joins(t, conn, "parts", replication.Join)
		r.db.Exec(t, beatNow)
		r.once(t)
		begun := len(r.changes(t))
		for _, c := range []struct {
			name string
			do   []string
			want []string
		}{
			{"nothing", []string{`vacuum full pg_inherits`, `vacuum freeze pg_inherits`, `delete from parts where id = 40`}, nil},
			{"detached, and attached again", []string{
				`alter table parts detach partition parts_b`, `delete from parts_b where id = 101`,
				`alter table parts attach partition parts_b for values from (100) to (200)`,
			}, []string{"ends public.parts_b", "begins public.parts_b"}},
			{"in one transaction", []string{`do $$ begin alter table parts detach partition parts_b; delete from parts_b where id = 102;
				alter table parts attach partition parts_b for values from (100) to (200); end $$`}, []string{"ends public.parts_b", "begins public.parts_b"}},
			{"the table above it", []string{
				`alter table parts detach partition parts_a`, `delete from parts_a where id = 1`,
				`alter table parts attach partition parts_a for values from (0) to (100)`,
			}, []string{"ends public.parts_aa", "begins public.parts_aa"}},
			{
				"unlogged, and logged again",
				[]string{`alter table parts_b set unlogged`, `delete from parts_b where id = 103`, `alter table parts_b set logged`},
				[]string{"rewritten public.parts_b"},
			},
			{"unlogged, logged again and renamed", []string{
				`alter table parts_aa set unlogged`, `delete from parts_aa where id = 2`, `alter table parts_aa set logged`,
				`alter table parts_aa rename to parts_ab`,
			}, []string{"renamed public.parts_ab", "rewritten public.parts_ab"}},
			{"in another's place", []string{
				`create table swapped (like parts_b including all)`, `insert into swapped select * from parts_b where id > 110`,
				`do $$ begin alter table parts detach partition parts_b; drop table parts_b; alter table swapped rename to parts_b;
				alter table parts attach partition parts_b for values from (100) to (200); end $$`,
			}, []string{"ends public.parts_b", "begins public.parts_b"}},
			{"concurrently", []string{
				`alter table parts detach partition parts_b concurrently`, `delete from parts_b where id = 111`,
				`alter table parts attach partition parts_b for values from (100) to (200)`,
			}, []string{"ends public.parts_b", "begins public.parts_b"}},
			{"rewritten", []string{`vacuum full parts_b`}, []string{"rewritten public.parts_b"}},
		} {
			r.db.Exec(t, c.do...)
			before := walEnd(t, conn)
			r.db.Exec(t, beatNow)
			r.once(t)
			var got []string
			changes := r.tableChanges(t)
			for _, change := range changes[begun:] {
				got = append(got, change.Change+" "+change.Table)
				if until := change.Until.LSN; (until == "") != (change.Change == "begins" || change.Change == "renamed") || until != "" && lsnOf(t, until) > before {
					t.Errorf("%s: %s until %q", c.name, change.Change, until)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
			begun = len(changes)
		}
	})
}
