package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/audit/report"
	"lapse/executor/batch"
	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/planner/survey"
)

// office is a database whose tables keep their own history, in a shadow table that triggers write. What the report says is compared with that.
type office struct {
	t  *testing.T
	db *pgtest.DB
	m  *machine
}

const officePolicies = `
policies:
  - name: sessions
    table: public.sessions
    expire: { column: last_seen, after: %s }
    evidence: due
    triggers: trusted
    latitude: 1 day
    every: 1 second
    pace: unlimited
    batch: 20
    state: armed
    owner: "web team"
  - name: carts
    table: public.carts
    expire: { column: at, after: %s }
    triggers: trusted
    latitude: 10 years
    every: 1 second
    pace: unlimited
    state: armed
  - name: parts
    table: public.parts
    expire: { column: at, after: 30 days }
    action: drop_partition
    every: 1 second
    pace: unlimited
    state: armed
`

func newOffice(t *testing.T, broker *kafkaserver.Server) *office {
	t.Helper()
	db, name := pgtest.New(t, pgtest.Newest(t)), kafkatest.Name()
	app := db.NewRole(t, "app")
	db.Exec(t,
		`create schema shadow`,
		`create table shadow.change (relation text, op text, id bigint, who text, xid xid8 default pg_current_xact_id(), snapshot int)`,
		`create function shadow.note() returns trigger language plpgsql security definer set search_path = pg_catalog as $$ begin
		   insert into shadow.change (relation, op, id, who) values (tg_table_name, tg_op, case tg_op when 'INSERT' then new.id else old.id end, session_user);
		   return null;
		 end $$`,
		`create table public.sessions (id bigint primary key, last_seen timestamptz not null)`,
		`create unique index sessions_identity on public.sessions (id, last_seen)`, `alter table public.sessions replica identity using index sessions_identity`,
		`create index on public.sessions (last_seen, id)`,
		`create table public.notes (id bigint primary key, session bigint not null references public.sessions on delete cascade)`, `create index on public.notes (session)`,
		`create table public.carts (id bigint primary key, at timestamptz not null)`, `create index on public.carts (at, id)`,
		`create table public.orders (id bigint primary key, cart bigint references public.carts)`,
		`create table public.parts (id bigint, at timestamptz not null, primary key (id, at)) partition by range (at)`,
		`do $$ begin
		   execute format('create table public.parts_1 partition of public.parts for values from (%L) to (%L)', now() - interval '300 days', now() - interval '100 days');
		   execute format('create table public.parts_2 partition of public.parts for values from (%L) to (%L)', now() - interval '100 days', now() + interval '1 day');
		 end $$`)
	for _, table := range []string{"sessions", "notes", "carts"} {
		db.Exec(t, `create trigger shadow after insert or delete on public.`+table+` for each row execute function shadow.note()`)
	}
	db.Exec(t, `create trigger shadow after insert on public.parts for each row execute function shadow.note()`,
		`insert into public.sessions select n, now() - interval '100 days' from generate_series(1, 50) n`,
		`insert into public.sessions select n, now() - interval '45 days' from generate_series(51, 80) n`,
		`insert into public.sessions select n, now() from generate_series(81, 120) n`,
		`insert into public.notes select n, 1 + n % 10 from generate_series(1, 25) n`,
		`insert into public.carts select n, now() - interval '100 days' from generate_series(1, 12) n`,
		`insert into public.orders values (1, 3)`,
		`insert into public.parts select n, now() - (150 + n) * interval '1 day' from generate_series(1, 40) n`,
		`insert into public.parts select n, now() - n * interval '1 day' from generate_series(1, 20) n`,
		`grant select, delete on public.sessions, public.carts to `+app)
	for _, part := range []string{"parts", "parts_1", "parts_2"} {
		db.Exec(t, `alter table public.`+part+` owner to `+app) // a superuser's is not dropped
	}
	o := &office{t: t, db: db}
	o.keepLateness()
	o.m = newMachine(t, fmt.Sprintf(`
database: { owner: %q, executor: %q, auditor: %q }
keys: keys
kafka: { brokers: %q }
topics: { system: %[5]s.system, user: %[5]s.user, log: %[5]s.log, partitions: 3 }
declared: { wal_archive: 14 days, backups: "35 days, then überschrieben" }
`, db.URL, db.As("lapse_executor"), db.As("lapse_auditor"), broker.Addr(), name))
	o.m.lapse("init", "--keys", "keys")
	o.apply("60 days", "90 days")
	o.m.lapse("audit", "--once")
	o.m.lapse("audit", "--once")
	return o
}

func (o *office) apply(sessions, carts string) {
	o.t.Helper()
	o.db.Exec(o.t, `insert into shadow.applied (after) values ('`+sessions+`')`)
	o.m.lapse("apply", "--yes", "--arm", "-f", o.m.write("policies.yaml", fmt.Sprintf(officePolicies, sessions, carts)))
}

// work deletes what is due, and audits it. Each time an auditor starts anew.
func (o *office) work(code int) {
	o.t.Helper()
	o.m.lapse("audit", "--once")
	o.m.exits(code, "run", "--once")
	o.m.lapse("audit", "--once")
}

func (o *office) userDeletes(table string, first, last int) {
	o.t.Helper()
	o.db.Exec(o.t, fmt.Sprintf(`set role %s_app; delete from public.%s where id between %d and %d`, o.db.Name, table, first, last))
}

// snapshot counts what is due under each policy, as the executor does once a day. What was deleted until then gets the snapshot's number.
func (o *office) snapshot(number int) {
	o.t.Helper()
	ctx := o.t.Context()
	o.db.Exec(o.t, `do $$ begin
		perform set_config('session_replication_role', 'replica', true);
		update lapse.snapshot set at = at - interval '1 hour';
	end $$`) // they are a minute apart at least
	config, err := pgx.ParseConfig(o.db.As("lapse_executor"))
	if err != nil {
		o.t.Fatal(err)
	}
	session, err := batch.Connect(ctx, config, "test", time.Minute, time.Minute)
	if err != nil {
		o.t.Fatal(err)
	}
	defer session.Close()
	policies, err := record.LoadInForce(ctx, session.Control)
	if err != nil {
		o.t.Fatal(err)
	}
	for i := range policies {
		if taken, err := survey.Snapshot(ctx, session.Batches, session.Control, &policies[i], 0, time.Minute); err != nil || !taken {
			o.t.Fatalf("count what is due under %s: %v", policies[i].Name, err)
		}
	}
	o.db.Exec(o.t, fmt.Sprintf(`update shadow.change set snapshot = %d where snapshot is null`, number))
}

// now is the time of the database's clock.
func (o *office) now() time.Time {
	o.t.Helper()
	var at time.Time
	if err := o.db.Connect(o.t).QueryRow(o.t.Context(), `select clock_timestamp()`).Scan(&at); err != nil {
		o.t.Fatal(err)
	}
	return at.UTC()
}

// number is one that the shadow table says.
func (o *office) number(query string) (n int64) {
	o.t.Helper()
	if err := o.db.Connect(o.t).QueryRow(o.t.Context(), query).Scan(&n); err != nil {
		o.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// report makes one of a period.
func (o *office) report(code int, from, to time.Time, args ...string) (*report.Report, []byte) {
	o.t.Helper()
	file := filepath.Join(o.t.TempDir(), "report.json")
	args = append([]string{"report", "--from", from.Format(time.RFC3339Nano), "--to", to.Format(time.RFC3339Nano), "-o", file}, args...)
	o.m.exits(code, args...)
	text, err := os.ReadFile(file)
	if err != nil {
		o.t.Fatal(err)
	}
	r, err := report.Parse(text)
	if err != nil {
		o.t.Fatal(err)
	}
	return r, text
}

// reportedOf is one policy of a report.
func reportedOf(t *testing.T, r *report.Report, name string) *report.Policy {
	t.Helper()
	for i := range r.Policies {
		if r.Policies[i].Name == name {
			return &r.Policies[i]
		}
	}
	t.Fatalf("the report has no policy %s", name)
	return nil
}

func shown(f report.Figure) string {
	switch {
	case f.Value != nil:
		return fmt.Sprint(*f.Value)
	case f.AtLeast != nil:
		return fmt.Sprintf("%s, at least %d", f.NotAssessed, *f.AtLeast)
	}
	return string(f.NotAssessed)
}

const (
	byPolicy = ` and who = 'lapse_executor'`
	byOthers = ` and who <> 'lapse_executor'`
)

// A month in a few seconds: every number of the report is one that the tables' own history has.
//
//lapse:long
func TestTheReportSaysWhatTheTablesOwnHistoryHas(t *testing.T) {
	t.Parallel()
	o := newOffice(t, kafkatest.Broker(t))
	open := o.db.Connect(t)
	if _, err := open.Exec(t.Context(), `begin; delete from public.sessions where id = 90`); err != nil {
		t.Fatal(err)
	}
	o.snapshot(1)
	if _, err := open.Exec(t.Context(), `commit`); err != nil { // its commit is before the count's rows or after them: the count did not see it
		t.Fatal(err)
	}
	o.m.lapse("audit", "--once")
	from := o.now()
	before := o.number(`select count(*) from shadow.change where op = 'DELETE' and relation = 'sessions'`)
	o.work(exitPerson) // sessions beyond 60 days with their notes, carts but one, a partition
	o.userDeletes("sessions", 100, 104)
	o.db.Exec(t, forgedBatch+`delete from public.sessions where id in (106, 107); commit`)
	o.m.lapse("hold", "place", "--table", "public.sessions", "--column", "id", "--keys", "51,52", "--matter", "LIT-1", "--reason", "a claim")
	o.apply("30 days", "120 days") // shorter, and longer
	o.work(exitPerson)
	if n := o.number(`select count(*) from public.sessions where id in (51, 52)`); n != 2 {
		t.Fatalf("%d of 2 held rows are there", n)
	}
	o.m.lapse("hold", "release", "1", "--reason", "settled")
	o.m.lapse("pause", "--all", "--reason", "backup")
	o.m.lapse("resume", "--all", "--reason", "backup done")
	o.m.lapse("policy", "pause", "carts", "--reason", "migration")
	o.m.lapse("policy", "resume", "carts", "--reason", "migration done")
	o.apply("30 days", "90 days")
	o.db.Exec(t, `delete from public.orders`)
	o.m.lapse("quarantine", "retry", "carts", "--all")
	o.work(0)
	o.snapshot(2)
	o.m.lapse("audit", "--once")
	to := o.now()
	o.m.lapse("audit", "--once")

	r, text := o.report(exitPerson, from, to)
	defer func() {
		if t.Failed() {
			t.Logf("%s", text)
		}
	}()
	o.compare(r, before)
	if _, again := o.report(exitPerson, from, to); string(again) != string(text) {
		t.Error("made a second time the report has other bytes")
	}
	o.m.lapse("events", "--export", "out")
	if _, exported := o.report(exitPerson, from, to, "--dir", "out"); string(exported) != string(text) {
		t.Error("from the export the report has other bytes")
	}
	o.refused(from, to)
	o.gap(to)
}

// refused asks for what the log does not have.
func (o *office) refused(from, to time.Time) {
	o.t.Helper()
	for _, c := range []struct{ from, to, want string }{
		{"2020-01-01", "2020-02-01", "the log began at "},
		{"2020-01-01", to.Format(time.RFC3339Nano), "Ask from "},
		{from.Format(time.RFC3339Nano), to.Add(time.Hour).Format(time.RFC3339Nano), "it is not over"},
	} {
		says(o.t, o.m.exits(exitInvalid, "report", "--from", c.from, "--to", c.to, "-o", "never.json"), c.want)
	}
	says(o.t, o.m.exits(exitInvalid, "report", "--from", from.Format(time.RFC3339Nano), "--to", to.Format(time.RFC3339Nano), "--policy", "nobody"), `no policy "nobody" in the period`)
	says(o.t, o.m.exits(exitInvalid, "report", "--month", "2026-13"), "want a month such as 2026-10")
	says(o.t, o.m.exits(exitInvalid, "report", "--last", "1h", "-o", "report.pdf"), ".json, .html or .csv")
	manifest := manifestOf(o.t, filepath.Join(o.m.dir, "out"))
	log := filepath.Join(o.m.dir, "out", manifest.Files[0].Name)
	content, err := os.ReadFile(log)
	if err != nil {
		o.t.Fatal(err)
	}
	at := bytes.Index(content, []byte(`"policy"`))
	content[at+1] ^= 1
	if err := os.WriteFile(log, content, 0o600); err != nil {
		o.t.Fatal(err)
	}
	says(o.t, o.m.exits(exitPerson, "report", "--dir", "out", "--last", "1s", "-o", "never.json"), "does not verify: ", "no report was made")
	if _, err := os.Stat(filepath.Join(o.m.dir, "never.json")); err == nil {
		o.t.Error("a report was written all the same")
	}
}

// gap loses the slot: in the next period nobody knows what was deleted meanwhile.
func (o *office) gap(from time.Time) {
	o.t.Helper()
	o.db.Exec(o.t, `select pg_drop_replication_slot('lapse_`+o.db.Name+`')`)
	o.userDeletes("sessions", 110, 112)
	o.m.types(0, "", `lapse init --new-slot`)
	o.m.lapse("audit", "--once")
	to := o.now()
	o.m.lapse("audit", "--once")
	r, _ := o.report(0, from, to)
	p := reportedOf(o.t, r, "sessions")
	if r.Coverage.Gaps.Len() != 1 || p.Verdict != report.Unknown || p.Users.Deleted.NotAssessed != report.InGap || p.Zero[0].Figure.NotAssessed != report.InGap {
		o.t.Errorf("over a gap it says %s of %s: %d gaps, %s rows by users", p.Verdict, p.Name, r.Coverage.Gaps.Len(), shown(p.Users.Deleted))
	}
}

// forgedBatch is a row of the ledger that no key verifies.
const forgedBatch = `begin; insert into lapse.batch
	select gen_random_uuid(), g.policy_id, g.name, g.version, gen_random_uuid(), now(), g.hold_version, g.table_oid, '{}', decode(repeat('00', 32), 'hex'),
	       (select (case when c.system_identifier < 0 then c.system_identifier::numeric + 18446744073709551616 else c.system_identifier::numeric end)::text
	          from pg_control_system() c),
	       (select d.oid from pg_database d where d.datname = current_database()), (select max(n.number) from lapse.history n), lapse.timeline(), pg_current_xact_id(), now(),
	       decode(repeat('00', 32), 'hex')
	  from lapse.gate g where g.name = 'sessions'; `

// compare holds a report against the shadow table.
func (o *office) compare(r *report.Report, before int64) {
	t := o.t
	t.Helper()
	sessions, carts, parts := reportedOf(t, r, "sessions"), reportedOf(t, r, "carts"), reportedOf(t, r, "parts")
	o.compareLateness(t, &sessions.Timeliness)
	compareDeclared(t, &r.Residue)
	deleted := func(relation, who string) int64 {
		return o.number(`select count(*) from shadow.change where op = 'DELETE' and relation = '` + relation + `'` + who)
	}
	dropped := o.number(`select count(*) from shadow.change c where relation = 'parts_1' and op = 'INSERT' and to_regclass('public.parts_1') is null`)
	if dropped == 0 || deleted("notes", "") == 0 || deleted("carts", byPolicy) != 12 {
		t.Fatalf("the month is not what it was meant to be: %d rows of a partition, %d notes, %d carts", dropped, deleted("notes", ""), deleted("carts", byPolicy))
	}
	between := func(relation, who string) int64 {
		return o.number(`select count(*) from shadow.change where snapshot = 2 and op = 'DELETE' and relation = '` + relation + `'` + who)
	}
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"sessions", sessions.Deleted.Rows, deleted("sessions", byPolicy)},
		{"sessions by row", sessions.Deleted.ByRow, deleted("sessions", byPolicy)},
		{"notes", sessions.Deleted.Cascaded, deleted("notes", "")},
		{"carts", carts.Deleted.Rows, deleted("carts", byPolicy)},
		{"parts", parts.Deleted.ByDrop, dropped},
		{"parts by row", parts.Deleted.ByRow, 0},
		{"batches of sessions", sessions.Deleted.Batches, o.number(`select count(distinct xid) from shadow.change where op = 'DELETE' and relation = 'sessions'` + byPolicy)},
	} {
		if c.got != c.want {
			t.Errorf("%s: the report has %d, the tables' own history %d", c.what, c.got, c.want)
		}
	}
	for _, c := range []struct {
		what string
		got  report.Figure
		want int64
	}{
		{"sessions by users", sessions.Users.Deleted, deleted("sessions", byOthers) - before},
		{"unverified", sessions.Zero[4].Figure, 2},
		{"rolled forward: sessions by the policy", sessions.RollForward.ByPolicy, between("sessions", byPolicy)},
		{"rolled forward: sessions by users", sessions.RollForward.ByUsers, between("sessions", byOthers)},
		{"rolled forward: carts", carts.RollForward.ByPolicy, between("carts", byPolicy)},
		{"rolled forward: parts", parts.RollForward.ByPolicy, dropped},
		{"quarantine", carts.Quarantine.AtEnd, 0},
	} {
		if !c.got.Is(c.want) {
			t.Errorf("%s: the report has %s, the tables' own history %d", c.what, shown(c.got), c.want)
		}
	}
}
