package main

import (
	"bufio"
	_ "embed"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/planner/database"
)

var (
	//go:embed testdata/planted.sql
	plantedSQL string
	//go:embed testdata/plantedtypes.sql
	plantedTypesSQL string
)

// plantedSettings are what a database's owner may set for every session in it, each of them to what none of ours expects.
func plantedSettings() map[string]string {
	return map[string]string{
		"row_security":                  "on",
		"default_transaction_isolation": "serializable", "default_transaction_deferrable": "on",
		"constraint_exclusion": "on", "jit": "on", "jit_above_cost": "0",
		"client_encoding": "LATIN1", "timezone": "Australia/Lord_Howe", "timezone_abbreviations": "India",
		"datestyle": "German, DMY", "intervalstyle": "sql_standard", "extra_float_digits": "-15", "bytea_output": "escape",
		"quote_all_identifiers": "on", "standard_conforming_strings": "off", "backslash_quote": "on",
		"transform_null_equals": "on", "array_nulls": "off", "gin_fuzzy_search_limit": "1",
		"check_function_bodies": "off", "plpgsql.extra_errors": "all", "exit_on_error": "on", "client_min_messages": "debug1",
	}
}

// plain are the parameters of a connection string whose sessions have none of what matters of that, for the test itself.
const plain = "&search_path=pg_catalog&client_encoding=UTF8&default_transaction_isolation=read%20committed&exit_on_error=off" +
	"&standard_conforming_strings=on&quote_all_identifiers=off&client_min_messages=warning&plpgsql.extra_errors=none"

// planted is a database in which somebody has planted namesakes of all that is in pg_catalog.
type planted struct {
	t        *testing.T
	db       *pgtest.DB
	attacker string
	login    string // Lapse's
}

func newPlanted(t *testing.T, db *pgtest.DB, scripts ...string) *planted {
	t.Helper()
	p := &planted{t: t, db: db, attacker: db.NewRole(t, "attacker"), login: db.NewRole(t, "lapse", "replication")}
	p.exec("postgres",
		`create table public.sessions (id bigint primary key, last_seen timestamptz)`,
		`create index on public.sessions (last_seen, id)`,
		`create table public.tag (session bigint references public.sessions on delete cascade, tag text, primary key (session, tag))`,
		`insert into public.sessions select n, now() - n * interval '1 day' from generate_series(1, 60) n`,
		`insert into public.tag select n, 'x' from generate_series(1, 60) n`,
		`create table public.visits (id bigint, day date, primary key (id, day)) partition by range (day)`,
		`create table public.visits_old partition of public.visits for values from (minvalue) to ('2021-01-01')`,
		`insert into public.visits values (1, '2020-05-05'), (2, '2020-06-06')`,
		`grant create on schema public to `+p.attacker)
	for _, where := range []string{"database " + db.Name, "role postgres in database " + db.Name, "role " + p.login} {
		p.exec("postgres", "alter "+where+" set search_path = public, pg_catalog")
		for name, value := range plantedSettings() {
			p.exec("postgres", fmt.Sprintf("alter %s set %s = '%s'", where, name, value))
		}
	}
	for _, sql := range scripts {
		p.exec(p.attacker, strings.ReplaceAll(sql, "ATTACKER", p.attacker))
	}
	return p
}

// exec runs statements as role, in a session without what is planted.
func (p *planted) exec(role string, statements ...string) {
	p.t.Helper()
	conn := p.connect(role)
	defer database.Close(conn)
	for _, sql := range statements {
		if _, err := conn.PgConn().Exec(p.t.Context(), sql).ReadAll(); err != nil {
			p.t.Fatalf("%v\nin: %.300s", err, sql)
		}
	}
}

func (p *planted) connect(role string) *pgx.Conn {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), p.db.As(role)+plain)
	if err != nil {
		p.t.Fatal(err)
	}
	return conn
}

// asked is the answer to a question of one row and one column.
func asked[T any](p *planted, query string) (answer T) {
	p.t.Helper()
	conn := p.connect("postgres")
	defer database.Close(conn)
	if err := conn.QueryRow(p.t.Context(), query).Scan(&answer); err != nil {
		p.t.Fatal(err)
	}
	return answer
}

// called lists what was called of what is planted, and which role called it, each once.
func (p *planted) called() []string {
	p.t.Helper()
	file, err := os.Open(p.db.Server.LogFile())
	if err != nil {
		p.t.Fatal(err)
	}
	defer file.Close()
	note := regexp.MustCompile(`LOG:  00000: planted in ` + p.db.Name + `: (.*)`)
	var all []string
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		if found := note.FindStringSubmatch(lines.Text()); found != nil {
			all = append(all, found[1])
		}
	}
	if err := lines.Err(); err != nil {
		p.t.Fatal(err)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestNothingThatIsPlantedInSchemaPublicIsCalled(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) { newPlanted(t, db, plantedSQL).check() })
}

func TestNoTypeThatIsPlantedInSchemaPublicIsUsed(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) { newPlanted(t, db, plantedSQL, plantedTypesSQL).check() })
}

// check lets Lapse work, and looks what was called.
func (p *planted) check() {
	p.t.Helper()
	if made := asked[int](p, `select count(*) from public.planted_object where refusal is null`); made < 7000 {
		p.t.Errorf("only %d objects are planted", made)
	}
	// What is refused takes or gives what only C can: everything else is planted.
	gaps := asked[string](p, `select coalesce(string_agg(statement || ': ' || refusal, E'\n'), '') from public.planted_object
		where refusal !~ 'PL/pgSQL functions cannot|pseudo-type|cannot determine|already exists'`)
	if gaps != "" {
		p.t.Errorf("not planted:\n%s", gaps)
	}
	// Somebody who pins nothing does call it.
	other := p.db.NewRole(p.t, "other")
	if _, err := p.db.ConnectAs(p.t, other).Exec(p.t.Context(), `select format('%s', 'x', 'y') from pg_class limit 1`); err != nil {
		p.t.Fatal(err)
	}
	others := p.called()
	if len(others) < 2 {
		p.t.Fatalf("a session that pins nothing called only %q", others)
	}
	defer func() {
		called := slices.DeleteFunc(p.called(), func(call string) bool { return slices.Contains(others, call) })
		if len(called) > 0 {
			p.t.Errorf("planted code was called:\n%s", strings.Join(called, "\n"))
		}
		if asked[bool](p, `select rolsuper from pg_roles where rolname = '`+p.attacker+`'`) {
			p.t.Error("the role that planted it is a superuser")
		}
	}()
	p.work()
}

// work is all that Lapse does, by the built program: as a superuser what is a superuser's, and the rest with a login of
// its own.
func (p *planted) work() {
	p.t.Helper()
	name := kafkatest.Name()
	configured := func(owner string) string {
		return fmt.Sprintf(`
database: { owner: %q, executor: %q, auditor: %q }
keys: keys
kafka: { brokers: %q }
topics: { system: %[5]s.system, user: %[5]s.user, log: %[5]s.log, partitions: 3 }
`, owner, p.db.As(p.login), p.db.As(p.login), kafkatest.Broker(p.t).Addr(), name)
	}
	m := newMachine(p.t, configured(p.db.As(p.login)))
	m.env = slices.DeleteFunc(m.env, func(variable string) bool { return variable == allowSuperuser })
	policies := m.write("policies.yaml", `
policies:
  - { name: sessions-30d, table: public.sessions, expire: { column: last_seen, after: 30 days }, every: 1 second, state: armed }
  - { name: visits-1y, table: public.visits, expire: { column: day, after: 1 year, zone: Europe/Berlin }, every: 1 second, state: armed }
`)
	admin := m.write("admin.yaml", configured(p.db.URL))
	m.lapse("init", "--config", admin, "--keys", "keys")
	p.exec("postgres", "grant lapse_owner to "+p.login)
	m.lapse("apply", "--config", admin, "--yes", "-f", policies)
	m.lapse("init", "--config", admin)
	// pin sets what its caller has; a finding function is called by its owner's deletion function alone, and has its settings.
	unpinned := asked[string](p, `select coalesce(string_agg(oid::regprocedure::text, ', '), '') from pg_proc
		where pronamespace = 'lapse'::regnamespace and proname !~ '^(pin|find_[0-9]+_[0-9]+)$' and not coalesce(proconfig, '{}') @> '{"search_path=pg_catalog, pg_temp"}'`)
	if unpinned != "" {
		p.t.Errorf("functions that look names up where their caller says: %s", unpinned)
	}
	if list := m.lapse("policy", "list"); strings.Count(list, "public.") != 2 {
		p.t.Errorf("policy list: %s", list)
	}
	if plan := m.lapse("plan", "--sql"); !strings.Contains(plan, "due        31 rows") {
		p.t.Errorf("plan: %s", plan)
	}
	m.lapse("audit", "--once")
	m.lapse("run", "--once")
	m.lapse("audit", "--once")
	if events := strings.Count(m.lapse("events", "--cause", "system", "--json"), "\n"); events != 31+31+2 {
		p.t.Errorf("%d system events, want 64", events)
	}
	if left := asked[int](p, `select (select count(*) from public.sessions) + (select count(*) from public.visits)`); left != 29 {
		p.t.Errorf("%d rows are left, want 29", left)
	}
}
