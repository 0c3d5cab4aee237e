package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"lapse/internal/pgtest"
)

var startBlock = regexp.MustCompile("(?s)```(yaml|console)\n(.*?)```")

// What docs/start.md has people write and type is written and typed, in its order.
func TestTheFirstDatabaseIsAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	app, me := db.NewRole(t, "app"), db.NewRole(t, "me")
	db.Exec(t, "create table public.django_session (session_key varchar(40) primary key, session_data text not null, expire_date timestamptz not null)",
		"create index on public.django_session (expire_date)", "alter table public.django_session owner to "+app, "grant select on public.django_session to "+me,
		"insert into public.django_session select n::text, '', now() - n * interval '1 minute' from generate_series(-10, 30) n")
	m := newMachine(t, "")
	m.env = append(m.env[:len(m.env)-1], "PATH="+filepath.Dir(m.bin)+":/usr/bin:/bin", "LAPSE_HTTP=127.0.0.1:0") // the login is no superuser's
	s := &story{t: t, m: m, db: db}
	place := func(text string) string {
		text = exampleURL.ReplaceAllStringFunc(text, func(url string) string {
			return strings.Replace(db.As(exampleURL.FindStringSubmatch(url)[1]), "//me@", "//"+me+"@", 1)
		})
		return strings.NewReplacer("dir:/var/lib/lapse", "dir:sink", "/tmp/export", "export", "bin/lapse", "lapse").Replace(text)
	}
	var serve *daemon
	typed := 0
	for _, block := range startBlock.FindAllStringSubmatch(documentation(t)["docs/start.md"], -1) {
		if block[1] == "yaml" {
			name, _, _ := strings.Cut(strings.TrimPrefix(block[2], "# "), "\n")
			m.write(name, place(block[2]))
			continue
		}
		for line := range strings.Lines(block[2]) {
			line, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "$ "), "  #")
			line = place(strings.TrimSpace(line))
			typed++
			switch {
			case line == "lapse serve":
				serve = m.serve()
				serve.ready(200)
				continue
			case line == "lapse verify": // of all that there is
				serve.stop()
				m.lapse("audit", "--once")
				m.lapse("audit", "--once")
			}
			if code, out := s.types(line, strings.Contains(line, "--follow")); code != exitDone {
				t.Fatalf("$ %s\nends with %d\n%s", line, code, out)
			}
		}
	}
	if typed < 15 {
		t.Errorf("docs/start.md has %d lines to type", typed)
	}
}
