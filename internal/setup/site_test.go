package setup_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/fixture"
	"lapse/internal/pgtest"
	"lapse/internal/setup/access"
	"lapse/internal/setup/apply"
	"lapse/internal/setup/install"
	"lapse/internal/setup/site"
	"lapse/planner/policyfile"
	"lapse/schemas"
)

// quiet logs nothing.
var quiet = slog.New(slog.DiscardHandler)

var deleterName = regexp.MustCompile(`deleter_[0-9]+`)

// database is one with roles of its own, since roles belong to the cluster.
type database struct {
	t     *testing.T
	db    *pgtest.DB
	roles schemas.Roles
	admin *pgx.Conn
	// trace, if it is set, is told of each statement of the sessions that are opened from then on.
	trace pgx.QueryTracer
}

func newSite(t *testing.T, db *pgtest.DB) *database {
	t.Helper()
	return &database{t: t, db: db, roles: schemas.RolesFor(db.Name + "_"), admin: db.Connect(t)}
}

// installed is a site with an installation, made by a superuser.
func newInstalled(t *testing.T, db *pgtest.DB) *database {
	t.Helper()
	p := newSite(t, db)
	if _, err := p.installer().Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *database) must(err error) {
	p.t.Helper()
	fixture.Must(p.t, err)
}

// installer is what a superuser's `lapse init` is made of.
func (p *database) installer() install.Installer {
	logins := access.OneLogin("postgres")
	return install.Installer{
		Roles: p.roles, Slot: "lapse_" + p.db.Name, AuditRequired: true, Logins: logins, Others: logins, StreamName: "lapse",
		Connect: p.connect, Log: quiet,
		Keys: func(*site.Installation) (map[string]string, string, error) {
			return map[string]string{"tag": "f00"}, "", nil
		},
	}
}

// connect opens a session as a command would.
func (p *database) connect(ctx context.Context, as install.Player) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(p.db.URL)
	if err != nil {
		return nil, err
	}
	schemas.PinSession(config.RuntimeParams, schemas.SessionSettings())
	if as == install.PlayOwner {
		schemas.PinSession(config.RuntimeParams, map[string]string{"role": p.roles.Owner})
	}
	config.Tracer = p.trace
	return pgx.ConnectConfig(ctx, config)
}

// session is a session of the catalog's owner, which ends with the test.
func (p *database) session() site.Session {
	p.t.Helper()
	conn, err := p.connect(p.t.Context(), install.PlayOwner)
	p.must(err)
	p.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return site.Session{Conn: conn, Roles: p.roles, Log: quiet}
}

// applier applies over a session of its own, and drops what is not in the file.
func (p *database) applier() *apply.Applier {
	p.t.Helper()
	return &apply.Applier{Session: p.session(), AuditRequired: true, Prune: true, Reason: "a test"}
}

// table makes a table of a role of its own, in a schema of its own, and returns its name.
func (p *database) table(owner string, more ...string) string {
	p.t.Helper()
	role := p.db.NewRole(p.t, owner)
	p.db.Exec(p.t, fmt.Sprintf(`create schema %[1]s authorization %[1]s; set role %[1]s;
		create table %[1]s.t (id int primary key, at timestamptz not null);
		create index on %[1]s.t (at, id);
		insert into %[1]s.t select n, now() - n * interval '1 day' from generate_series(1, 60) n; %[2]s`,
		role, strings.ReplaceAll(strings.Join(more, ";"), "{}", role)))
	return role + ".t"
}

// file has one policy for each table, each with more.
func file(t *testing.T, more string, tables ...string) *policyfile.File {
	t.Helper()
	text := "policies: []\n"
	if len(tables) > 0 {
		text = "policies:\n"
	}
	for _, table := range tables {
		text += fmt.Sprintf("  - { name: %s, table: %s, expire: { column: at, after: 30 days }%s }\n", strings.ReplaceAll(table, ".", "-"), table, more)
	}
	parsed, err := policyfile.Parse("policies.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// applies makes the policies equal a file.
func (p *database) applies(f *policyfile.File) apply.Changes {
	p.t.Helper()
	a := p.applier()
	changes, err := a.Difference(p.t.Context(), f)
	p.must(err)
	p.must(a.Apply(p.t.Context(), changes))
	return changes
}

// state is all that an installation consists of, in lines, without what differs from one to the next: oids, times, positions,
// and the database's name, which is in the names of its roles.
func (p *database) state() []string {
	p.t.Helper()
	rows, err := p.admin.Query(p.t.Context(), `
		select replace(s.line, current_database(), 'DB') from (
		  select 'role ' || r.rolname || r.rolsuper || r.rolcanlogin || r.rolreplication as line from pg_roles r where r.rolname like current_database() || '\_%'
		  union all
		  select 'member ' || u.rolname || ' of ' || g.rolname || coalesce(to_jsonb(m) ->> 'inherit_option', '') || coalesce(to_jsonb(m) ->> 'set_option', '')
		    from pg_auth_members m join pg_roles g on g.oid = m.roleid join pg_roles u on u.oid = m.member
		   where g.rolname like current_database() || '\_%' or u.rolname like current_database() || '\_%'
		  union all
		  select 'schema ' || n.nspname || ' ' || coalesce(n.nspacl::text, '') from pg_namespace n where n.nspname = 'lapse'
		  union all
		  select 'relation ' || c.relname || ' ' || pg_get_userbyid(c.relowner) || coalesce(c.relacl::text, '') from pg_class c where c.relnamespace = to_regnamespace('lapse')
		  union all
		  select 'function ' || f.proname || ' ' || pg_get_userbyid(f.proowner) || coalesce(f.proacl::text, '') || md5(replace(f.prosrc, current_database(), ''))
		    from pg_proc f where f.pronamespace = to_regnamespace('lapse')
		  union all
		  select 'publication ' || p.pubname || ' ' || pg_get_userbyid(p.pubowner) || p.pubinsert || p.pubdelete from pg_publication p
		  union all
		  select 'member ' || r.prrelid::regclass || ' of ' || p.pubname from pg_publication_rel r join pg_publication p on p.oid = r.prpubid
		  union all
		  select 'slot ' || s.slot_name || s.plugin from pg_replication_slots s where s.database = current_database()
		) s`)
	p.must(err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	p.must(err)
	for i, line := range lines { // deleters are named by oids
		lines[i] = deleterName.ReplaceAllString(line, "deleter_N")
	}
	slices.Sort(lines)
	if ask[bool](p, `select to_regclass('lapse.installation') is not null`) {
		lines = append(lines, ask[string](p, `
			select format('installation %s %s %s %s; slot on record: %s; fault: %s; published: %s; deleters: %s', i.schema_version, i.audit_required, i.keys,
			              replace(i.slot::text, current_database(), 'DB'),
			              i.slot_start = (select s.confirmed_flush_lsn from pg_replication_slots s where s.slot_name = i.slot),
			              lapse.publications_fault(), (select count(*) from lapse.published), (select count(*) from lapse.deleter))
			  from lapse.installation i`))
		lines = append(lines, ask[[]string](p, `
			select array(select replace(format('policy %s %s %s', g.name, g.version, g.state), current_database(), 'DB') from lapse.gate g order by g.name)`)...)
	}
	return lines
}

// one asks for a value as the superuser.
func ask[T any](p *database, query string, args ...any) T {
	p.t.Helper()
	return fixture.One[T](p.t, p.admin, query, args...)
}

// same fails the test where two states differ.
func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("%s: there is, and should not be: %s", what, line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("%s: missing is: %s", what, line)
		}
	}
}

// statements records the statements of the sessions that it is the tracer of, and can cut a connection at one of them.
type statements struct {
	all     []string
	cut     int  // the number of the statement at which the connection is cut, from 1; 0 for none
	applied bool // the statement is carried out before; otherwise the server never sees it
}

// TraceQueryStart implements pgx.QueryTracer.
func (s *statements) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	s.all = append(s.all, data.SQL)
	if len(s.all) == s.cut && !s.applied {
		_ = conn.PgConn().Conn().Close()
	}
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (s *statements) TraceQueryEnd(_ context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	if len(s.all) >= s.cut && s.cut > 0 && s.applied {
		_ = conn.PgConn().Conn().Close()
	}
}

// with counts the statements that begin so.
func (s *statements) with(beginning string) (n int) {
	for _, sql := range s.all {
		if strings.HasPrefix(strings.TrimSpace(sql), beginning) {
			n++
		}
	}
	return n
}

// untilWhole repeats work until it succeeds undisturbed, with the connection cut at one statement after the other, stride of
// them apart, from one of the first on. Each second time the statement at which it is cut was carried out. Where stride is more than
// one, another run cuts at other statements.
func (p *database) untilWhole(stride int, work func(s *statements) error) {
	p.t.Helper()
	first := rand.IntN(2 * stride)
	for n, attempt := 1+first/2, 1; ; n, attempt = n+stride, attempt+1 {
		s := &statements{cut: n, applied: (attempt+first)%2 == 0}
		p.trace = s
		err := work(s)
		p.trace = nil
		switch {
		case err == nil && len(s.all) < n:
			p.t.Logf("%d attempts", attempt)
			return
		case err == nil && s.all[n-1] != s.last():
			p.t.Errorf("the connection was cut at %q, and that is not an error", s.all[n-1])
		case attempt > 1000:
			p.t.Fatalf("it never ends: %v", err)
		}
	}
}

func (s *statements) last() string { return s.all[len(s.all)-1] }
