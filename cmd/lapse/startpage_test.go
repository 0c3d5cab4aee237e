package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lapse/internal/pgtest"
)

var startBlock = regexp.MustCompile("(?s)```(yaml|console)\n(.*?)```")

// follow does what a page says, in its order: it writes the files and types the lines, but for those that skip begins. place puts the
// test's own names in place of the page's. It returns how many lines were typed.
func (s *story) follow(page string, place func(string) string, skip *regexp.Regexp) (typed int) {
	s.t.Helper()
	var serve *daemon
	for _, block := range startBlock.FindAllStringSubmatch(page, -1) {
		if block[1] == "yaml" {
			name, _, _ := strings.Cut(strings.TrimPrefix(block[2], "# "), "\n")
			s.m.write(name, place(block[2]))
			continue
		}
		for _, line := range commandLines(block[2]) {
			if skip != nil && skip.MatchString(line) {
				continue
			}
			line = place(line)
			typed++
			if line == "lapse serve" {
				serve = s.m.serve()
				serve.ready(200)
				continue
			}
			if serve != nil && (strings.HasPrefix(line, "lapse verify") || strings.HasPrefix(line, "lapse report")) { // of all that there is
				serve.stop()
				serve = nil
				s.m.lapse("audit", "--once")
				s.m.lapse("audit", "--once")
			}
			if code, out := s.types(line, strings.Contains(line, "--follow")); code != exitDone {
				s.t.Fatalf("$ %s\nends with %d\n%s", line, code, out)
			}
		}
	}
	return typed
}

// What docs/start.md has people write and type is written and typed, in its order.
func TestTheFirstDatabaseIsAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	app, me := db.NewRole(t, "app"), db.NewRole(t, "me")
	db.Exec(t, "create table public.django_session (session_key varchar(40) primary key, session_data text not null, expire_date timestamptz not null)",
		"create index on public.django_session (expire_date)", "alter table public.django_session owner to "+app, "grant select on public.django_session to "+me,
		"insert into public.django_session select n::text, '', now() - n * interval '1 minute' from generate_series(-10, 30) n")
	s := newVisitor(t, db, "")
	place := func(text string) string {
		text = exampleURL.ReplaceAllStringFunc(text, func(url string) string {
			return strings.Replace(db.As(exampleURL.FindStringSubmatch(url)[1]), "//me@", "//"+me+"@", 1)
		})
		return strings.NewReplacer("dir:/var/lib/lapse/sink", "dir:sink", "/tmp/export", "export", "bin/lapse", "lapse").Replace(text)
	}
	if typed := s.follow(documentation(t)["docs/start.md"], place, nil); typed < 15 {
		t.Errorf("docs/start.md has %d lines to type", typed)
	}
}

// newVisitor is somebody whose login is no superuser's.
func newVisitor(t *testing.T, db *pgtest.DB, settings string) *story {
	t.Helper()
	m := newMachine(t, settings)
	m.env = append(m.env[:len(m.env)-1], "PATH="+filepath.Dir(m.bin)+":/usr/bin:/bin", "LAPSE_HTTP=127.0.0.1:0")
	return &story{t: t, m: m, db: db}
}

// README.md's two ways to install Lapse are gone, each on a server of its own, with a folder in place of Kafka. Up to 15 only a superuser gives
// REPLICATION.
func TestTheInstallationIsAsTheReadmeSays(t *testing.T) {
	t.Parallel()
	_, install, _ := strings.Cut(documentation(t)["README.md"], "\n## Try it\n")
	with, without, found := strings.Cut(install, "and without a superuser,")
	if !found {
		t.Fatal("README.md does not say how to go without a superuser")
	}
	// The demonstration is a step of .ci/run; \password asks at a terminal, and these logins need none.
	skip := regexp.MustCompile(`^make demo$|\\password`)
	for name, page := range map[string]string{"with a superuser": with, "without": without} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Solo(t, 18)
			db.Exec(t, "create role app", "create role me login", "create role dba login createrole replication", "grant app to dba with admin option",
				"create table public.sessions (id bigint primary key, last_seen timestamptz not null)", "grant select on public.sessions to me",
				"insert into public.sessions select n, now() - interval '40 days' from generate_series(1, 30) n",
				"create index on public.sessions (last_seen)", "alter table public.sessions owner to app", "grant all on schema public to app",
				"grant create on database "+db.Name+" to dba with grant option")
			s := newVisitor(t, db, "sink: dir:sink\n")
			s.m.env = append(s.m.env, "LAPSE_DATABASE_URL="+db.As("lapse"))
			s.m.write("policies.yaml", startBlock.FindStringSubmatch(documentation(t)["README.md"])[2])
			place := func(text string) string {
				text = exampleURL.ReplaceAllStringFunc(text, func(url string) string { return db.As(exampleURL.FindStringSubmatch(url)[1]) })
				return strings.NewReplacer("make build && ", "", "bin/lapse", "lapse", "LAPSE_KAFKA_BROKERS=kafka:9092", "",
					"psql -h db -U dba -d app", "psql -X '"+db.As("dba")+"'").Replace(text)
			}
			if typed := s.follow(page, place, skip); typed < 4 {
				t.Errorf("README.md has %d lines to type", typed)
			}
		})
	}
}
