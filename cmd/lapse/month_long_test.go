//go:build long

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/audit/report"
	"lapse/internal/pgserver"
)

// october is a month of a small shop, in which happens what may happen. Its tables keep their own history in a shadow table that triggers
// write; the test keeps it too, since a restore takes it back.
type october struct {
	*office
	calendar *calendar
	session  *pgx.Conn // nil: the server was started anew

	changes  []rowChange
	last     int64 // number of the last one that was read
	branch   int
	parts    map[string]bool
	unseen   [2]time.Time // in between nobody reads the write-ahead log
	restored time.Time
	windows  []window
	terms    map[string][]policyTerm
	stuck    [2]time.Time // an order keeps a cart from going, until it is no longer due
}

// window is when the test gave a command.
type window struct {
	what          string
	before, after time.Time
}

// policyTerm is what a policy says from a time on.
type policyTerm struct {
	from    time.Time
	version int64
	after   time.Duration
}

const day = 24 * time.Hour

// on is noon of a day of October 2026; 0 is the last of September.
func on(n int) time.Time { return time.Date(2026, 10, n, 12, 0, 0, 0, time.UTC) }

const octoberPolicies = `
policies:
  - name: sessions
    table: public.sessions
    expire: { column: last_seen, after: %d days }
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
    expire: { column: at, after: %d days }
    triggers: trusted
    latitude: 1 day
    every: 1 second
    pace: unlimited
    state: armed
  - name: mails
    table: public.mails
    expire: { column: at, after: 40 days }
    action: { soft: { column: erased_at } }
    triggers: trusted
    every: 1 second
    pace: unlimited
    state: armed
  - name: readings
    table: public.readings
    expire: { column: at, after: 30 days }
    action: drop_partition
    triggers: trusted
    every: 1 second
    pace: unlimited
    state: armed
`

func newOctober(t *testing.T) *october {
	t.Helper()
	c := newCalendar(t, on(-2))
	db := c.db
	o := &october{calendar: c, parts: map[string]bool{}, terms: map[string][]policyTerm{}, stuck: [2]time.Time{on(3), on(10).Add(-time.Hour)}}
	app := db.NewRole(t, "app")
	db.Exec(t,
		`create schema shadow`,
		`create table shadow.change (n bigint generated always as identity, relation text, op text, id bigint, value timestamptz, who text, xid xid8 default pg_current_xact_id(), at timestamptz default clock_timestamp())`,
		`create function shadow.note() returns trigger language plpgsql security definer set search_path = pg_catalog as $$
		 declare
		   is_row jsonb := case when tg_op in ('INSERT', 'UPDATE') then to_jsonb(new) else to_jsonb(old) end;
		   what text := tg_op;
		 begin
		   if tg_op = 'UPDATE' and is_row ->> 'erased_at' is not null and to_jsonb(old) ->> 'erased_at' is null then what := 'SOFT'; end if;
		   insert into shadow.change (relation, op, id, value, who)
		   values (tg_table_name, what, (is_row ->> 'id')::bigint, coalesce(is_row ->> 'last_seen', is_row ->> 'at', 'epoch')::timestamptz, session_user);
		   return null;
		 end $$`,
		`create table public.sessions (id bigint primary key, last_seen timestamptz not null)`,
		`create unique index sessions_identity on public.sessions (id, last_seen)`, `alter table public.sessions replica identity using index sessions_identity`,
		`create index on public.sessions (last_seen, id)`,
		`create table public.notes (id bigint primary key, session bigint not null references public.sessions on delete cascade)`, `create index on public.notes (session)`,
		`create table public.carts (id bigint primary key, at timestamptz not null)`, `create index on public.carts (at, id)`,
		`create table public.orders (id bigint primary key, cart bigint references public.carts)`,
		`create table public.mails (id bigint primary key, at timestamptz not null, erased_at timestamptz)`, `create index on public.mails (at, id)`,
		`create table public.readings (id bigint, at timestamptz not null, primary key (id, at)) partition by range (at)`)
	for _, table := range []string{"sessions", "notes", "carts", "mails"} {
		db.Exec(t, `create trigger shadow after insert or update or delete on public.`+table+` for each row execute function shadow.note()`)
	}
	db.Exec(t, `create trigger shadow after insert or delete on public.readings for each row execute function shadow.note()`)
	// A partition holds five days; the first ones are a month old in the second week.
	for from := on(-30); from.Before(on(40)); from = from.Add(5 * day) {
		name := "readings_" + from.Format("0102")
		db.Exec(t, fmt.Sprintf(`create table public.%s partition of public.readings for values from ('%s') to ('%s')`, name, from.Format(time.RFC3339), from.Add(5*day).Format(time.RFC3339)))
		o.parts[name] = true
		db.Exec(t, `alter table public.`+name+` owner to `+app) // a superuser's is not dropped
	}
	db.Exec(t, `alter table public.readings owner to `+app,
		// On each day another number of rows falls due: none, a few, many.
		fmt.Sprintf(`insert into public.sessions select 1000 + d * 20 + k, timestamptz '%s' - (90 - d) * interval '1 day' - interval '1 hour'
		   from generate_series(28, 100) d, generate_series(1, 7 * d %% 13) k`, on(0).Format(time.RFC3339)),
		`insert into public.notes select n, 1000 + 40 * 20 + n % 3 + 1 from generate_series(1, 11) n where exists (select from public.sessions where id = 1801 + n % 3)`,
		`insert into public.notes select 100 + id, id from public.sessions where id % 7 = 0`,
		fmt.Sprintf(`insert into public.carts select 10 * d + k, timestamptz '%s' - (90 - d) * interval '1 day' - interval '1 hour' from generate_series(-2, 60) d, generate_series(1, 5 * (d + 2) %% 7) k`,
			on(0).Format(time.RFC3339)),
		`insert into public.orders select 1, min(id) from public.carts where at > now() - interval '86 days'`,
		fmt.Sprintf(`insert into public.mails select 10 * d + k, timestamptz '%s' - (40 - d) * interval '1 day' - interval '1 hour' from generate_series(-2, 60) d, generate_series(1, 3 * (d + 2) %% 8) k`,
			on(0).Format(time.RFC3339)),
		fmt.Sprintf(`insert into public.readings select n, timestamptz '%s' - interval '30 days' + n * interval '3 hours' from generate_series(1, 400) n`, on(0).Format(time.RFC3339)),
		`grant select, insert, update, delete on public.sessions, public.carts, public.mails to `+app)
	m := c.newMachine(fmt.Sprintf("database: { owner: %q, executor: %q, auditor: %q }\nkeys: keys\nsink: dir:sink\n", db.URL, db.As("lapse_executor"), db.As("lapse_auditor")))
	o.office = &office{t: t, db: db, m: m}
	m.lapse("init", "--keys", "keys")
	o.policies(60, 90)
	for _, name := range []string{"mails", "readings"} {
		o.terms[name] = []policyTerm{{version: 1, after: map[string]time.Duration{"mails": 40 * day, "readings": 30 * day}[name]}}
	}
	m.lapse("audit", "--once")
	return o
}

// policies applies policies of sessions and carts.
func (o *october) policies(sessions, carts int) {
	o.t.Helper()
	o.does("apply", "apply", "--yes", "--arm", "-f", o.m.write("policies.yaml", fmt.Sprintf(octoberPolicies, sessions, carts)))
	for name, days := range map[string]int{"sessions": sessions, "carts": carts} {
		all, after := o.terms[name], time.Duration(days)*day
		if len(all) == 0 || all[len(all)-1].after != after {
			o.terms[name] = append(all, policyTerm{from: o.windows[len(o.windows)-1].before, version: int64(len(all) + 1), after: after})
		}
	}
}

// scan runs a query of one value.
func (o *october) scan(query string, into any) {
	o.t.Helper()
	if o.session == nil {
		o.session = o.db.Connect(o.t)
	}
	if err := o.session.QueryRow(o.t.Context(), query).Scan(into); err != nil {
		o.t.Fatalf("%s: %v", query, err)
	}
}

func (o *october) now() (at time.Time) {
	o.t.Helper()
	o.scan(`select clock_timestamp()`, &at)
	return at.UTC()
}

func (o *october) number(query string) (n int64) {
	o.t.Helper()
	o.scan(query, &n)
	return n
}

// does gives a command, and notes when.
func (o *october) does(what string, args ...string) {
	o.t.Helper()
	w := window{what: what, before: o.now()}
	o.m.lapse(args...)
	w.after = o.now()
	o.windows = append(o.windows, w)
}

// today lives through a day: others change rows, the policies delete.
func (o *october) today(n int) {
	o.t.Helper()
	o.calendar.set(on(n).Add(time.Duration(n+2) * 2 * time.Minute)) // more than a day after the day before: what is due is counted once a day
	o.others(n)
	o.deletes()
}

func (o *october) others(n int) {
	o.t.Helper()
	as := `set role ` + o.db.Name + `_app; `
	o.db.Exec(o.t, as+fmt.Sprintf(`insert into public.sessions select %d + k, now() - interval '20 days' from generate_series(1, 4) k`, 100_000+100*n))
	o.db.Exec(o.t, as+`update public.sessions set last_seen = now() where id in (select id from public.sessions where last_seen > now() - interval '59 days' order by last_seen limit 2)`)
	if n%3 == 0 {
		o.db.Exec(o.t, as+fmt.Sprintf(`delete from public.sessions where id in (select id from public.sessions where id < 100000 order by last_seen desc limit %d)`, n%4+1))
	}
	if n%3 == 1 {
		o.db.Exec(o.t, as+`delete from public.sessions where id in (select id from public.sessions where id not in (1861, 1862) order by last_seen limit 2)`)
	}
	if n%10 == 4 {
		o.db.Exec(o.t, as+`delete from public.carts where id in (select id from public.carts order by at desc limit 6)`)
	}
}

func (o *october) deletes() {
	o.t.Helper()
	o.m.lapse("audit", "--once")
	w := window{what: "run", before: o.now()}
	if code, out := o.m.answers("run", "--once"); code != 0 && code != exitPerson {
		o.t.Fatalf("lapse run: exit code %d\n%s", code, out)
	}
	w.after = o.now()
	o.windows = append(o.windows, w)
	o.collect()
}

// live lives through October, and a bit of November.
func (o *october) live() {
	t, m := o.t, o.m
	for n := -1; n <= 33; n++ {
		switch n {
		case 4:
			o.calendar.set(on(n).Add(-time.Hour))
			o.does("hold", "hold", "place", "--table", "public.sessions", "--column", "id", "--keys", "1861,1862", "--matter", "LIT-1", "--reason", "claim of Miller")
		case 6:
			o.calendar.set(on(n).Add(-time.Hour))
			o.db.Exec(t, forgedBatch+`delete from public.sessions where id in (select id from public.sessions where id > 100000 order by id limit 2); commit`)
		case 8:
			o.calendar.set(on(n).Add(-time.Hour))
			o.does("pause carts", "policy", "pause", "carts", "--reason", "migration")
		case 10:
			o.calendar.set(on(n).Add(-time.Hour))
			o.does("resume carts", "policy", "resume", "carts", "--reason", "migration done")
			o.policies(30, 120)
		case 12:
			o.calendar.set(on(n).Add(-time.Hour))
			o.session = nil
			if err := o.db.Server.Stop(t.Context(), pgserver.Fast); err != nil {
				t.Fatal(err)
			}
			if err := o.db.Server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		case 14:
			o.calendar.set(on(n).Add(-time.Hour))
			o.does("halt", "pause", "--all", "--reason", "nightly backup 7")
			o.does("go on", "resume", "--all", "--reason", "nightly backup 7 done")
		case 15:
			o.calendar.set(on(n).Add(-time.Hour))
			o.does("release", "hold", "release", "1", "--reason", "settled")
		case 17:
			o.calendar.set(on(n).Add(-time.Hour))
			o.policies(30, 90)
			o.db.Exec(t, `delete from public.orders`)
			m.lapse("quarantine", "retry", "carts", "--all")
		case 20:
			o.restore(n)
			continue
		case 23:
			o.gap(n)
		case 26:
			o.calendar.set(on(n).Add(-time.Hour))
			m.lapse("audit", "--once")
			o.calendar.set(on(n).Add(-time.Hour - 10*time.Minute))
			m.lapse("audit", "--once")
		}
		o.today(n)
	}
	m.lapse("audit", "--once")
}

// restore puts the database back by a day.
func (o *october) restore(n int) {
	t := o.t
	before := len(o.changes)
	backup := o.db.Snapshot(t, pgserver.Frozen)
	last, parts := o.last, maps.Clone(o.parts)
	o.today(n)
	o.m.lapse("audit", "--once")
	o.calendar.set(on(n).Add(6 * time.Hour))
	o.session = nil
	o.db.Restore(t, backup)
	o.restored = o.now()
	for i := before; i < len(o.changes); i++ {
		o.changes[i].undone = true
	}
	o.last, o.branch, o.parts = last, o.branch+1, parts
	o.m.exits(1, "audit", "--once")
	o.does("accept", "history", "accept", "--yes", "--reason", "put back", "--unwatched")
	o.others(n + 100)
	o.deletes()
}

// gap loses the slot: of what others delete meanwhile nobody knows.
func (o *october) gap(n int) {
	o.calendar.set(on(n).Add(-2 * time.Hour))
	o.m.lapse("audit", "--once")
	o.db.Exec(o.t, `select pg_drop_replication_slot('lapse_`+o.db.Name+`')`)
	o.unseen[0] = o.now()
	o.db.Exec(o.t, `set role `+o.db.Name+`_app; delete from public.sessions where id in (select id from public.sessions order by last_seen desc limit 3)`)
	o.does("new slot", "init", "--new-slot")
	o.unseen[1] = o.now()
}

// A month on a real server, and each number of its reports beside what the tables' own history has.
func TestEveryNumberOfAMonthIsWhatTheTablesOwnHistoryHas(t *testing.T) {
	t.Parallel()
	o := newOctober(t)
	o.live()
	midnight := func(n int) time.Time { return on(n).Add(-12 * time.Hour) }
	for _, p := range []struct {
		name     string
		from, to time.Time
	}{
		{"until the restore", midnight(1), midnight(20)},
		{"the restore", midnight(20), midnight(22)},
		{"the gap and the clock", midnight(22), midnight(32)},
		{"the clock", midnight(25), midnight(32)},
		{"the whole month", midnight(1), midnight(32)},
	} {
		file := filepath.Join(t.TempDir(), "report.json")
		if code, out := o.m.answers("report", "--from", p.from.Format(time.RFC3339), "--to", p.to.Format(time.RFC3339), "-o", file); code != 0 && code != exitPerson {
			t.Fatalf("lapse report: exit code %d\n%s", code, out)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := report.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(p.name, func(t *testing.T) {
			count := &recount{october: o, from: p.from, to: p.to, want: map[string]int64{}}
			count.hold(t, r, text)
		})
		if p.name == "the whole month" {
			t.Run("redacted", func(t *testing.T) { o.redacted(t, r, text) })
		}
	}
}
