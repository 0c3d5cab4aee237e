package main

import (
	"fmt"
	"testing"
	"time"

	"lapse/audit/report"
)

// keepLateness has the tables' own history say how long after its due time each row of sessions went, by the interval that was applied last.
func (o *office) keepLateness() {
	o.db.Exec(o.t,
		`create table shadow.applied (at timestamptz default clock_timestamp(), after interval)`,
		`create table shadow.late (id bigint, who text, late interval)`,
		`create function shadow.note_late() returns trigger language plpgsql security definer set search_path = pg_catalog as $$ begin
		   insert into shadow.late select old.id, session_user, clock_timestamp() - (old.last_seen + a.after) from shadow.applied a order by a.at desc limit 1;
		   return null;
		 end $$`,
		`create trigger late after delete on public.sessions for each row execute function shadow.note_late()`)
}

// compareLateness holds what the report says of lateness against the tables' own history: its bounds have the true numbers between them.
func (o *office) compareLateness(t *testing.T, got *report.Timeliness) {
	t.Helper()
	const rows = ` from shadow.late where who = 'lapse_executor'`
	if n := o.number(`select count(*)` + rows); got.Rows != n || got.Other != 0 || n == 0 {
		t.Errorf("the report says of %d rows how late they went, and of %d not; %d went", got.Rows, got.Other, n)
	}
	for percent, l := range map[int]report.Lateness{50: got.P50, 95: got.P95, 100: got.Worst} {
		late := o.number(fmt.Sprintf(`select ceil(extract(epoch from percentile_disc(%d / 100.0) within group (order by late)))::bigint`, percent) + rows)
		if l.NotAssessed != "" || l.Over != nil && late <= *l.Over || l.UpTo != nil && late > *l.UpTo || l == (report.Lateness{}) {
			t.Errorf("%d of 100 went after %s at most; the report has %+v", percent, time.Duration(late)*time.Second, l)
		}
	}
	if past := o.number(`select count(*)` + rows + ` and late > '1 day'`); !got.PastDeadline.Is(past) || past == 0 {
		t.Errorf("%d rows went after their deadline; the report has %s", past, shown(got.PastDeadline))
	}
}

// compareDeclared wants what lapse.yaml declares, once, however often the auditor was started.
func compareDeclared(t *testing.T, got *report.Residue) {
	t.Helper()
	all := got.Declared.Items
	if len(all) != 1 || all[0].WALArchive != "14 days" || all[0].Backups != "35 days, then überschrieben" {
		t.Errorf("declared: %+v", all)
	}
}
