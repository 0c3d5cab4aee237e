package audit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lapse/audit/evidence"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/replication"
)

// asksForDue writes a version of a policy whose deletions the auditor judges, as apply does; without due it is one of evidence: claimed.
func (r *rig) asksForDue(t *testing.T, policy, version int, table, due, more string) {
	t.Helper()
	r.db.Exec(t, fmt.Sprintf(`insert into lapse.policy (id, version, name, table_oid, table_name, columns, spec)
			select %[1]d, %[2]d, 'p%[1]d', '%[3]s'::regclass, '%[3]s', '[]', jsonb_strip_nulls(jsonb_build_object('due', nullif('%[4]s', '')::jsonb)) || '{%[5]s}'`,
		policy, version, table, due, more),
		fmt.Sprintf(`insert into lapse.gate (policy_id, name, table_oid, version, state) values (%[1]d, 'p%[1]d', '%[3]s'::regclass, %[2]d, 'observing')
			on conflict (policy_id) do update set version = excluded.version`, policy, version, table))
}

// judged says what the log has of users' deletions: table, due, not due, unknown; "?" where it says nothing.
func (r *rig) judged(t *testing.T) (all []string) {
	t.Helper()
	for _, record := range r.read(t, r.settings.Log) {
		entry, err := evidence.ParseLogRecord(record.Value)
		if err != nil {
			t.Fatal(err)
		}
		c, is := entry.Content.(*evidence.TransactionContent)
		if !is {
			continue
		}
		var lines []string
		for i := range c.Observed {
			tally := &c.Observed[i]
			text := strings.TrimPrefix(tally.Table, "public.") + " ?"
			if tally.Judged > 0 {
				text = fmt.Sprintf("%s %d/%d/%d", strings.TrimPrefix(tally.Table, "public."), tally.Due, tally.NotDue, tally.Judged-tally.Due-tally.NotDue)
			}
			lines = append(lines, tally.Op.String()+" "+text)
		}
		all = append(all, strings.Join(lines, ", "))
	}
	return all
}

const afterThirtyDays = `{"column": "at", "as": "timestamptz", "after": [{"days": 30}]}`

// Users' deletions are judged by the version in force, and each reader judges alike: one that is started again after each step, and one that
// reads everything at once.
func TestUsersDeletionsAreJudgedAlikeByEveryReader(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.New(t, pgtest.Newest(t)), kafkatest.Broker(t))
	conn := r.db.Connect(t)
	twin := *r
	name := kafkatest.Name()
	twin.settings.Slot, twin.settings.System, twin.settings.User, twin.settings.Log = r.settings.Slot+"_twin", name+".system", name+".user", name+".log"
	r.db.Exec(t, fmt.Sprintf(`select pg_copy_logical_replication_slot('%s', '%s')`, r.settings.Slot, twin.settings.Slot),
		`alter table lapse.gate set (autovacuum_enabled = off)`, // it would keep a heartbeat from its lock
		`create table plain (id int, at timestamptz, primary key (id, at))`,
		`insert into plain select n, now() - n % 2 * interval '40 days' from generate_series(1, 100) n`,
		`create table parts (id int, at timestamptz, day int, primary key (id, at, day)) partition by range (day)`,
		`create table parts_1 partition of parts for values from (0) to (10)`, `create table parts_2 partition of parts for values from (10) to (20)`,
		`insert into parts select n, now() - n % 2 * interval '40 days', 1 from generate_series(1, 100) n`)
	r.joins(t, conn, "plain", replication.Join)
	r.joins(t, conn, "parts", replication.JoinChanges)
	var want []string
	id := 1
	// Two rows of each table go: one is 40 days old.
	deletes := func(plain, parts string) {
		t.Helper()
		r.db.Exec(t, fmt.Sprintf(`delete from plain where id in (%[1]d, %[1]d + 1); delete from parts where id in (%[1]d, %[1]d + 1)`, id))
		id += 2
		want = append(want, "delete plain "+plain+", delete parts_1 "+parts)
		if id%4 == 1 {
			r.once(t)
		}
	}
	beat := func() { r.db.Exec(t, beatNow) }

	beat()
	deletes("?", "?")
	r.asksForDue(t, 1, 1, "plain", afterThirtyDays, "")
	r.asksForDue(t, 2, 1, "parts", strings.ReplaceAll(afterThirtyDays, "30", "50"), `"moves": "detect"`)
	deletes("?", "?") // no heartbeat has found it
	beat()
	r.once(t)
	deletes("1/1/0", "0/2/0")
	r.asksForDue(t, 1, 2, "plain", strings.ReplaceAll(afterThirtyDays, "30", "50"), "")
	deletes("0/0/2", "0/0/2") // a policy has changed, and it is not said which
	deletes("0/0/2", "0/0/2") // after a start
	beat()
	deletes("0/2/0", "0/2/0")
	r.asksForDue(t, 1, 3, "plain", afterThirtyDays, `"where": "id > 0"`)
	beat()
	deletes("0/1/1", "0/2/0")
	changing := r.db.Connect(t)
	if _, err := changing.Exec(t.Context(), `begin; lock table lapse.gate in exclusive mode; update lapse.gate set version = 1 where policy_id = 1`); err != nil {
		t.Fatal(err)
	}
	beat() // waits for nobody
	deletes("0/1/1", "0/2/0")
	if _, err := changing.Exec(t.Context(), `commit`); err != nil {
		t.Fatal(err)
	}
	deletes("0/0/2", "0/0/2")
	beat()
	deletes("1/1/0", "0/2/0")
	r.db.Exec(t, fmt.Sprintf(`begin; delete from plain where id in (%[1]d, %[1]d + 1); update lapse.gate set version = 2 where policy_id = 1; commit`, id))
	id, want = id+2, append(want, "delete plain 0/0/2") // one that chooses the rule that he is judged by
	beat()
	r.db.Exec(t, fmt.Sprintf(`update parts set day = 11 where id in (%[1]d, %[1]d + 1); delete from parts where id = %[1]d + 2; update parts set day = 1 where id = %[1]d`, id))
	want = append(want, "delete parts_1 0/1/0, move parts_2 ?, move parts_1 ?")
	r.db.Exec(t, fmt.Sprintf(`begin; update plain set at = now() - interval '1 year' where id in (%[1]d, %[1]d + 1); delete from plain where id in (%[1]d, %[1]d + 1); commit`, id),
		`truncate plain`)
	id, want = id+3, append(want, "delete plain 2/0/0", "truncate plain ?") // the value that it had when it went
	r.db.Exec(t, `insert into plain values (1000, now()), (1001, 'infinity')`, `delete from plain where id >= 1000`, `update lapse.gate set state = 'dropped' where policy_id = 1`)
	want = append(want, "delete plain 0/2/0")
	beat()
	r.db.Exec(t, `insert into plain values (1000, now())`, `delete from plain where id >= 1000`)
	want = append(want, "delete plain ?")
	r.once(t)
	twin.once(t)
	if got := r.judged(t); !slices.Equal(got, want) {
		t.Errorf("the log says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if read := twin.judged(t); !slices.Equal(read, want) {
		t.Errorf("read at once the log says\n%s\nwant\n%s", strings.Join(read, "\n"), strings.Join(want, "\n"))
	}
}
