package importer

import (
	"context"
	"flag"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/fixture"
	"lapse/internal/pgtest"
	"lapse/planner/expiry"
	"lapse/schemas"
)

// worlds is how often a property is tried here, each time on a server: more with -rapid.checks.
const worlds = 25

func TestMain(m *testing.M) {
	flag.Parse()
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set(strconv.Itoa(worlds))
	}
	pgtest.Main(m)
}

var must = fixture.Must

// site is a database with an application's tables, and a session of ours in it.
type site struct {
	t    testing.TB
	db   *pgtest.DB
	conn *pgx.Conn
	*Server
}

func newSite(t testing.TB, db *pgtest.DB, login, ddl string) *site {
	t.Helper()
	admin := db.Connect(t)
	if _, err := admin.PgConn().Exec(t.Context(), ddl).ReadAll(); err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, db: db}
	config, err := pgx.ParseConfig(db.As(login))
	must(t, err)
	schemas.PinSession(config.RuntimeParams, schemas.SessionSettings())
	s.conn, err = pgx.ConnectConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(func() { _ = s.conn.Close(context.Background()) })
	s.Server, err = NewServer(t.Context(), s.conn)
	must(t, err)
	return s
}

// newReader is a site for a login that may read the tables, and is no superuser.
func newReader(t testing.TB) *site {
	t.Helper()
	db := pgtest.New(t, pgtest.Newest(t))
	login := db.NewRole(t, "reader")
	return newSite(t, db, login, logs+"; grant usage on schema app to "+login+"; grant select on all tables in schema app to "+login+"; grant temporary on database "+db.Name+" to public")
}

// read reads a statement of a job of the superuser's.
func (s *site) read(text, zone string) *Item {
	s.t.Helper()
	r := &reader{server: s.Server, settings: settings{Role: "postgres", SearchPath: "app, public", Zone: zone, DateStyle: "ISO, MDY", IntervalStyle: "postgres"}}
	i, err := r.statement(s.t.Context(), text)
	must(s.t, err)
	return i
}

// policy is what is imported of an item, on one line.
func policyLine(i *Item) string {
	if i.Policy == nil {
		return strings.Join(i.Lost, "; ")
	}
	p := *i.Policy
	p.Name = "p"
	return strings.Join(strings.Fields(strings.TrimPrefix(p.Entry(), "  - name: 'p'\n")), " ")
}

const logs = `
	create schema app;
	create table app.logs (
	  id bigint primary key, created_at timestamptz, closed_at timestamptz, ts timestamp, d date, e bigint, ms bigint, ed double precision, n numeric, status text,
	  k int, ttl int, keep interval, parent bigint, j jsonb, "Odd ""Name" timestamptz);
	create table app.other (id bigint primary key, created_at timestamptz);
	create table app."Sess Ions" (id bigint primary key, last_seen timestamptz, "order" int);
	create table app.parted (id bigint, at timestamptz, primary key (id, at)) partition by range (at);
	create table app.part partition of app.parted for values from ('2020-01-01') to ('2030-01-01');
	create view app.recent as select * from app.logs;
	create function app.old(t timestamptz) returns boolean language sql as 'select true';
	create procedure app.clean() language sql as 'delete from app.logs'`

// job is a statement as people write it, and the policy that it becomes.
type job struct {
	text string
	want string // of the policy, table and name aside
	late string // "": the policy deletes what the job does; or why some rows go later
	zone string // of the job's sessions, UTC if there is none
}

var jobs = []job{
	{text: `DELETE FROM app.logs WHERE created_at < now() - interval '30 days'`, want: `{ column: 'created_at', after: 30 days }`},
	{text: `delete from logs where created_at < NOW() - INTERVAL '30 day' returning id`, want: `{ column: 'created_at', after: 30 days }`},
	{text: `delete from logs l where l.created_at <= current_timestamp - '2 weeks'::interval`, want: `{ column: 'created_at', after: 14 days }`},
	{text: `delete from logs where now() - interval '1 day' > created_at`, want: `{ column: 'created_at', after: 1 day }`},
	{text: `delete from logs where created_at < now() - '36:00'::interval`, want: `{ column: 'created_at', after: '1 day 12:00:00' }`},
	{text: `delete from logs where created_at < now() + interval '-30 days'`, want: `{ column: 'created_at', after: 30 days }`},
	{text: `delete from logs where created_at < statement_timestamp() - make_interval(days => 30, hours => 1)`, want: `{ column: 'created_at', after: '30 days 01:00:00' }`},
	{text: `delete from logs where created_at < transaction_timestamp() - 30 * interval '1 day'`, want: `{ column: 'created_at', after: 30 days }`},
	{text: `delete from logs where created_at < clock_timestamp() - interval '1 hour' * 24`, want: `{ column: 'created_at', after: 1 day }`},
	{text: `delete from logs where created_at < now() - (30 || ' days')::interval`, want: `{ column: 'created_at', after: 30 days }`},
	{text: `delete from logs where created_at + interval '30 days' < now()`, want: `{ column: 'created_at', after: 30 days }`},
	{text: `delete from logs where created_at + interval '1 month' <= now()`, want: `{ column: 'created_at', after: 1 mon }`},
	{text: `delete from logs where created_at + interval '1 mon 2 days' < now() - interval '3 days'`, want: `{ column: 'created_at', after: '1 mon 5 days' }`},
	{text: `delete from logs where not created_at > now() - interval '30 days'`, want: `{ column: 'created_at', after: 30 days }`},
	{text: `delete from logs where created_at < now()`, want: `{ column: 'created_at' }`},
	{text: `delete from logs where "Odd ""Name" < now() - interval '5 min'`, want: `{ column: 'Odd "Name', after: '00:05:00' }`},
	{text: `delete from logs where created_at < now() - interval '1 month'`, want: `{ column: 'created_at', after: 31 days }`, late: "counts from the row on"},
	{text: `delete from logs where created_at < now() - interval '1 year 2 mons 3 days'`, want: `{ column: 'created_at', after: 431 days }`, late: "counts from the row on"},
	{text: `delete from logs where created_at < date_trunc('day', now()) - interval '7 days'`, want: `{ column: 'created_at', after: 8 days }`, late: "beginning of the day"},
	{text: `delete from logs where created_at < date_trunc('month', now() - interval '3 months')`, want: `{ column: 'created_at', after: 123 days }`, late: "beginning of the month"},
	{text: `delete from logs where created_at < current_date - 30`, want: `{ column: 'created_at', after: 31 days }`, late: "beginning of the day"},
	{text: `delete from logs where created_at < now()::date - interval '1 day'`, want: `{ column: 'created_at', after: 2 days }`, late: "beginning of the day"},
	{text: `delete from logs where created_at::date < current_date - 7`, want: `{ column: 'created_at', after: 8 days }`, late: "cuts the row's time off"},
	{text: `delete from logs where created_at::date <= current_date - interval '7 days'`, want: `{ column: 'created_at', after: 7 days }`, late: "cuts the row's time off"},
	{text: `delete from logs where date_trunc('hour', created_at) < now() - interval '7 days'`, want: `{ column: 'created_at', after: 7 days }`, late: "cuts the row's time off"},
	{text: `delete from logs where d < current_date - 30`, want: `{ column: 'd', after: 31 days }`},
	{text: `delete from logs where d <= current_date - 30`, want: `{ column: 'd', after: 30 days }`},
	{text: `delete from logs where d < current_date - interval '30 days'`, want: `{ column: 'd', after: 31 days }`},
	{text: `delete from logs where d + 30 < current_date`, want: `{ column: 'd', after: 31 days }`},
	{text: `delete from logs where d + interval '1 month' < current_date`, want: `{ column: 'd', after: '1 mon 1 day' }`},
	{text: `delete from logs where current_date - d > 30`, want: `{ column: 'd', after: 31 days }`},
	{text: `delete from logs where current_date - d >= 30`, want: `{ column: 'd', after: 30 days }`},
	{text: `delete from logs where d < now() - interval '30 days'`, want: `{ column: 'd', after: 30 days }`},
	{text: `delete from logs where d < (now() - interval '30 days')::date`, want: `{ column: 'd', after: 31 days }`},
	{text: `delete from logs where d < current_date - interval '1 month'`, want: `{ column: 'd', after: 32 days }`, late: "counts from the row on"},
	{text: `delete from logs where ts < localtimestamp - interval '90 days'`, want: `{ column: 'ts', after: 90 days }`},
	{text: `delete from logs where ts < (now() at time zone 'utc') - interval '90 days'`, want: `{ column: 'ts', after: 90 days }`},
	{text: `delete from logs where ts < timezone('utc', now()) - interval '90 days'`, want: `{ column: 'ts', after: 90 days }`},
	{text: `delete from logs where ts < now() - interval '90 days'`, want: `{ column: 'ts', after: 90 days }`},
	{text: `delete from logs where ts at time zone 'Europe/Berlin' < now() - interval '20 hours'`, want: `{ column: 'ts', after: '20:00:00', zone: 'Europe/Berlin' }`},
	{text: `delete from logs where created_at < (now() at time zone 'utc') - interval '90 days'`, want: `{ column: 'created_at', after: 90 days }`},
	{text: `delete from logs where created_at at time zone 'utc' < (now() at time zone 'utc') - interval '90 days'`, want: `{ column: 'created_at', after: 90 days }`},
	{text: `delete from logs where now() - created_at > interval '30 days'`, want: `{ column: 'created_at', after: 30 days }`},
	{text: `delete from logs where (now() - created_at) >= '1 month'`, want: `{ column: 'created_at', after: 30 days }`},
	{text: `delete from logs where localtimestamp - ts > '30 days'`, want: `{ column: 'ts', after: 30 days }`},
	{text: `delete from logs where now() - ts > '30 days'`, want: `{ column: 'ts', after: 30 days }`},
	{text: `delete from logs where extract(epoch from now() - created_at) > 86400`, want: `{ column: 'created_at', after: 1 day }`},
	{text: `delete from logs where date_part('epoch', now() - created_at) > 24 * 3600`, want: `{ column: 'created_at', after: 1 day }`},
	{text: `delete from logs where extract(day from now() - created_at) > 30`, want: `{ column: 'created_at', after: 31 days }`},
	{text: `delete from logs where date_part('day', now() - created_at) >= 30`, want: `{ column: 'created_at', after: 30 days }`},
	{text: `delete from logs where age(created_at) > interval '30 days'`, want: `{ column: 'created_at', after: 32 days }`, late: "age() counts in months"},
	{text: `delete from logs where age(now(), created_at) > interval '3 months'`, want: `{ column: 'created_at', after: 92 days }`, late: "age() counts in months"},
	{text: `delete from logs where age(ts) >= interval '45 days 6 hours'`, want: `{ column: 'ts', after: '47 days 06:00:00' }`, late: "age() counts in months"},
	{text: `delete from logs where age(d) > '1 year'`, want: `{ column: 'd', after: 367 days }`, late: "age() counts in months"},
	{text: `delete from logs where to_timestamp(e) < now() - interval '30 days'`, want: `{ column: 'e', after: 30 days, epoch: 's' }`},
	{text: `delete from logs where to_timestamp(ms / 1000) < now() - interval '30 days'`, want: `{ column: 'ms', after: 30 days, epoch: 'ms' }`},
	{text: `delete from logs where e < extract(epoch from now() - interval '30 days')`, want: `{ column: 'e', after: 30 days, epoch: 's' }`},
	{text: `delete from logs where e < extract(epoch from now())::bigint - 30 * 86400`, want: `{ column: 'e', after: 30 days, epoch: 's' }`},
	{text: `delete from logs where e < extract(epoch from (now() - interval '30 days'))::int`, want: `{ column: 'e', after: 30 days, epoch: 's' }`},
	{text: `delete from logs where ms < extract(epoch from now() - interval '30 days') * 1000`, want: `{ column: 'ms', after: 30 days, epoch: 'ms' }`},
	{text: `delete from logs where ms < (extract(epoch from now()) * 1000)::bigint - 86400000`, want: `{ column: 'ms', after: 1 day, epoch: 'ms' }`},
	{text: `delete from logs where extract(epoch from now()) - e > 3600`, want: `{ column: 'e', after: '01:00:00', epoch: 's' }`},
	{text: `delete from logs where ed < date_part('epoch', now() - interval '7 days')`, want: `{ column: 'ed', after: 7 days, epoch: 's' }`},
	{text: `delete from logs where n < extract(epoch from now() - interval '7 days')`, want: `{ column: 'n', after: 7 days, epoch: 's' }`},
	{text: `delete from logs where created_at + ttl * interval '1 second' < now()`, want: `{ column: 'created_at', ttl_column: 'ttl' }`},
	{text: `delete from logs where created_at + make_interval(secs => ttl) < now()`, want: `{ column: 'created_at', ttl_column: 'ttl' }`},
	{text: `delete from logs where created_at + keep < now()`, want: `{ column: 'created_at', ttl_column: 'keep' }`},
	{
		text: `delete from logs where coalesce(closed_at, created_at) < now() - interval '30 days'`,
		want: `{ expression: '(COALESCE(closed_at, created_at) + ''30 days''::interval)' }`,
	},
	{
		text: `delete from logs where now() - interval '30 days' > greatest(created_at, closed_at)`,
		want: `{ expression: '(GREATEST(created_at, closed_at) + ''30 days''::interval)' }`,
	},
	{text: `delete from logs where coalesce(ts, d) < now()`, want: `{ expression: '(COALESCE(ts, (d)::timestamp without time zone) AT TIME ZONE ''UTC''::text)' }`},
	{
		text: `delete from logs where (ts + interval '1 day') at time zone 'Europe/Berlin' < now()`,
		want: `{ expression: '((ts + ''1 day''::interval) AT TIME ZONE ''Europe/Berlin''::text)' }`,
	},
	// With further conditions.
	{
		text: `delete from logs where created_at < now() - interval '30 days' and status = 'done'`,
		want: `{ column: 'created_at', after: 30 days } where: '(status = ''done''::text)'`,
	},
	{
		text: `delete from logs where status in ('a', 'b') and (k > 3 or k is null) and created_at < now() - interval '30 days' and closed_at is not null`,
		want: `{ column: 'created_at', after: 30 days } where: '((status = ANY (ARRAY[''a''::text, ''b''::text])) AND ((k > 3) OR (k IS NULL)) AND (closed_at IS NOT NULL))'`,
	},
	{
		text: `delete from logs where created_at is not null and created_at < now() - interval '30 days' and created_at > '2020-01-01'`,
		want: `{ column: 'created_at', after: 30 days } where: '(created_at > ''2020-01-01 00:00:00+00''::timestamp with time zone)'`,
	},
	{
		text: `delete from only logs where created_at < now() - interval '1 day' and not (status = 'it''s; -- kept' or k = 1)`,
		want: `{ column: 'created_at', after: 1 day } where: '(NOT ((status = ''it''''s; -- kept''::text) OR (k = 1)))'`,
	},
	// In batches.
	{
		text: `delete from logs where ctid in (select ctid from logs where created_at < now() - interval '1 day' order by created_at limit 1000 for update skip locked)`,
		want: `{ column: 'created_at', after: 1 day } max_rows_per_run: 1000`,
	},
	{
		text: `delete from logs where ctid = any (array(select ctid from logs where created_at < now() - interval '1 day' limit 1000))`,
		want: `{ column: 'created_at', after: 1 day } max_rows_per_run: 1000`,
	},
	{
		text: `delete from logs where id in (select l.id from logs l where l.created_at < now() - interval '1 day' and l.status = 'x' limit 500)`,
		want: `{ column: 'created_at', after: 1 day } where: '(status = ''x''::text)' max_rows_per_run: 500`,
	},
	{
		text: `with doomed as (select id from logs where created_at < now() - interval '1 day' limit 500) delete from logs using doomed where logs.id = doomed.id`,
		want: `{ column: 'created_at', after: 1 day } max_rows_per_run: 500`,
	},
	{
		text: `with doomed as materialized (select ctid from logs where created_at < now() - interval '1 day' limit 500) delete from logs l using doomed d where d.ctid = l.ctid and k = 1`,
		want: `{ column: 'created_at', after: 1 day } where: '(k = 1)' max_rows_per_run: 500`,
	},
	{
		text: `with doomed as (select id from logs where created_at < now() - interval '1 day' limit 500) delete from logs where id in (select id from doomed)`,
		want: `{ column: 'created_at', after: 1 day } max_rows_per_run: 500`,
	},
	{
		text: `with gone as (delete from logs where created_at < now() - interval '1 day' returning *) select count(*) from gone`,
		want: `{ column: 'created_at', after: 1 day }`,
	},
	{
		text: `delete from logs where closed_at in (select closed_at from logs where created_at < now() - interval '1 day')`,
		want: `{ column: 'created_at', after: 1 day } where: '(closed_at IS NOT NULL)'`,
	},
	{
		text: `with doomed as (select closed_at from logs where closed_at < now() - interval '1 day') delete from logs using doomed where logs.closed_at = doomed.closed_at`,
		want: `{ column: 'closed_at', after: 1 day }`,
	},
	// In zones.
	{text: `delete from logs where created_at < now() - interval '30 days'`, zone: "Europe/Berlin", want: `{ column: 'created_at', after: '30 days 01:00:00' }`, late: "counts days in Europe/Berlin"},
	{text: `delete from logs where created_at < now() - interval '12 hours'`, zone: "America/New_York", want: `{ column: 'created_at', after: '12:00:00' }`},
	{text: `delete from logs where ts < now() - interval '1 day'`, zone: "Europe/Berlin", want: `{ column: 'ts', after: '1 day 01:00:00', zone: 'Europe/Berlin' }`, late: "counts days in Europe/Berlin"},
	{text: `delete from logs where ts < localtimestamp - interval '1 day'`, zone: "America/New_York", want: `{ column: 'ts', after: '1 day 01:00:00', zone: 'America/New_York' }`, late: "counts days"},
	{text: `delete from logs where ts < (now() at time zone 'utc') - interval '90 days'`, zone: "Europe/Berlin", want: `{ column: 'ts', after: 90 days }`},
	{text: `delete from logs where d < current_date - 30`, zone: "America/New_York", want: `{ column: 'd', after: '31 days 01:00:00', zone: 'America/New_York' }`, late: "counts days"},
	{text: `delete from logs where created_at < current_date - 30`, zone: "Europe/Berlin", want: `{ column: 'created_at', after: '31 days 01:00:00' }`, late: "counts days"},
	{text: `delete from logs where current_date - created_at::date > 30`, zone: "Asia/Tokyo", want: `{ column: 'created_at', after: '31 days 01:00:00' }`, late: "counts days"},
	{text: `delete from logs where created_at + interval '1 mon 2 days' < now()`, zone: "Asia/Kolkata", want: `{ column: 'created_at', after: '33 days 01:00:00' }`, late: "counts days"},
	{text: `delete from logs where created_at + ttl * interval '1 second' < now()`, zone: "Europe/Berlin", want: `{ column: 'created_at', ttl_column: 'ttl' }`},
	{
		text: `delete from logs where created_at at time zone 'Europe/Berlin' < now() at time zone 'Europe/Berlin'`,
		want: `{ column: 'created_at', after: '01:00:00' }`, late: "counts days in Europe/Berlin",
	},
	{text: `delete from logs where created_at::timestamp <= localtimestamp`, zone: "Europe/Berlin", want: `{ column: 'created_at', after: '01:00:00' }`, late: "counts days"},
	{text: `delete from logs where age(created_at) > '1 mon'`, zone: "Europe/Berlin", want: `{ column: 'created_at', after: '32 days 01:00:00' }`, late: "age() counts"},
}

// instants are those at which a job and its policy are compared: ends of months, leap days, days on which clocks change.
var instants = []string{
	"2025-03-31 12:00:00.5+00", "2024-03-01 00:30:00.25+00", "2025-03-30 05:00:00.75+00", "2025-10-26 03:30:00.125+00",
	"2026-02-28 23:59:59.5+00", "2025-10-26 01:20:00.625+00",
}

// fill makes rows of all ages up to some 16 months, each in another place of its minute.
const fill = `
	insert into app.logs
	select i, at, case when i % 3 = 0 then at + interval '5 days' end, at at time zone 'utc', (at at time zone 'utc')::date, extract(epoch from at)::bigint, (extract(epoch from at) * 1000)::bigint,
	       extract(epoch from at), extract(epoch from at), (array['a', 'done', 'x', 'it''s; -- kept'])[i % 4 + 1], i % 7, i * 100 % 9000000, interval '1 day' * (i % 70), 0, null, at
	  from (select i, $1::timestamptz - case when i <= 1150 then i * interval '9 hours 11 min 13.123457 s' else (i - 1150) * interval '13 min 3.123 s' end as at
	          from generate_series(1, 1300) i) g`

// atNow is a job's statement, asking for its rows at an instant $1 in place of now.
func atNow(text string) string {
	for _, r := range []struct{ from, to string }{
		{`(?i)\b(now|transaction_timestamp|statement_timestamp|clock_timestamp)\(\)`, `$$1::timestamptz`},
		{`(?i)\bcurrent_timestamp\b`, `$$1::timestamptz`},
		{`(?i)\blocaltimestamp\b`, `($$1::timestamptz)::timestamp`},
		{`(?i)\bage\(([a-z_]+)\)`, `age(current_date::timestamptz, $1)`},
		{`(?i)age\(current_date::timestamptz, (ts)\)`, `age(current_date::timestamp, $1)`},
		{`(?i)\bcurrent_date\b`, `($$1::timestamptz)::date`},
		{`(?i)\blimit [0-9]+`, ``},
		{`(?i)for update skip locked`, ``},
	} {
		text = regexp.MustCompile(r.from).ReplaceAllString(text, r.to)
	}
	return text
}

// Of each job as people write them: the policy deletes the rows that the job does at the same instant; and where it cannot be the same, fewer.
func TestAPolicyHasDueWhatItsJobDeletesAndNoMore(t *testing.T) {
	t.Parallel()
	s := newReader(t)
	admin := s.db.Connect(t)
	runs, conditions := make([]*Item, len(jobs)), make([]expiry.Condition, len(jobs))
	for n, j := range jobs {
		runs[n] = s.read(j.text, zoneOr(j.zone))
		got := policyLine(runs[n])
		if got != "table: 'app.logs' expire: "+j.want {
			t.Errorf("%s\n got %s\nwant %s", j.text, got, j.want)
		}
		if runs[n].Policy == nil {
			continue
		}
		if lost := strings.Join(runs[n].Lost, "; "); (lost == "") != (j.late == "") || !strings.Contains(lost, j.late) {
			t.Errorf("%s: %q (%q), want %q", j.text, lost, runs[n].Notes, j.late)
		}
		conditions[n] = s.condition(runs[n].Policy)
	}
	for _, at := range instants {
		must(t, exec(admin, "truncate app.logs"))
		must(t, exec(admin, fill, at))
		must(t, exec(admin, "insert into app.logs (id, status, k) values (0, 'done', 1)"))
		for n, j := range jobs {
			if runs[n].Policy == nil {
				continue
			}
			deleted := s.deleted(admin, j, at)
			due := s.due(conditions[n], runs[n].Policy.Table, at)
			gone := map[int64]bool{}
			for _, id := range deleted {
				gone[id] = true
			}
			for _, id := range due {
				if !gone[id] {
					t.Errorf("%s at %s in %q: row %d is due, and the job does not delete it", j.text, at, j.zone, id)
					break
				}
			}
			if j.late == "" && len(due) != len(deleted) {
				t.Errorf("%s at %s in %q: %d rows are due, and the job deletes %d", j.text, at, j.zone, len(due), len(deleted))
			}
			if len(due) == 0 {
				t.Errorf("%s at %s: nothing is due", j.text, at)
			}
		}
	}
}

func zoneOr(zone string) string {
	if zone == "" {
		return utc
	}
	return zone
}

func exec(conn *pgx.Conn, sql string, args ...any) error {
	_, err := conn.Exec(context.Background(), sql, args...)
	return err
}
