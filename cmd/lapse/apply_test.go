package main

import (
	"bytes"
	"os"
	"testing"

	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

const secondPolicy = `
policies:
  - name: sessions-30d
    table: public.sessions
    expire: { column: last_seen, after: 30 days }
  - name: visits
    table: public.visits
    expire: { column: at, after: 1 day }
`

// A wait that ends well is nobody's to fix: the log says it while it lasts, and it is no warning.
func TestApplyWaitsForAWriterAndLetsOthersWriteMeanwhile(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	s := newShop(t, db, kafkatest.Broker(t), 0, 10, 1000)
	db.Exec(t, `create table public.visits (id int primary key, at timestamptz)`)

	writer := db.Connect(t)
	if _, err := writer.Exec(t.Context(), `begin; insert into public.visits values (1, now())`); err != nil {
		t.Fatal(err)
	}
	apply := s.m.start("apply", "--yes", "--json", "-f", s.m.write("second.yaml", secondPolicy))
	apply.wrote("a table is in use; trying again")
	// The lock that apply waits for blocks writers. It must let go.
	db.Exec(t, `set statement_timeout = '10s'; insert into public.visits values (2, now())`)
	if _, err := writer.Exec(t.Context(), `commit`); err != nil {
		t.Fatal(err)
	}
	if code := apply.ended(); code != exitDone {
		t.Errorf("exit code %d", code)
	}
	if text, err := os.ReadFile(apply.log); err != nil || !bytes.Contains(text, []byte("\n  \"warnings\": [],\n")) {
		t.Errorf("want no warning in %s, %v", text, err)
	}
	var published bool
	err := writer.QueryRow(t.Context(), `select exists (select from pg_publication_tables where pubname = 'lapse_deletes' and tablename = 'visits')`).Scan(&published)
	if err != nil || !published {
		t.Errorf("the table is published: %v, %v", published, err)
	}
}

func TestAnInterruptedApplyLeavesWholePoliciesAndGoesOn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	s := newShop(t, db, kafkatest.Broker(t), 0, 10, 1000)
	db.Exec(t, `create table public.visits (id int primary key, at timestamptz)`,
		`create table public.zebras (id int primary key, at timestamptz)`)
	file := s.m.write("third.yaml", secondPolicy+`
  - name: zebras
    table: public.zebras
    expire: { column: at, after: 1 day }
`)
	writer := db.Connect(t)
	if _, err := writer.Exec(t.Context(), `begin; insert into public.zebras values (1, now())`); err != nil {
		t.Fatal(err)
	}
	apply := s.m.start("apply", "--yes", "-f", file)
	apply.wrote("a table is in use; trying again")
	apply.kill()
	count := func(want string, query string) {
		t.Helper()
		var got string
		if err := db.Connect(t).QueryRow(t.Context(), query).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %q, want %q, %v", query, got, want, err)
		}
	}
	const inForce = `select string_agg(g.name, ' ' order by g.name) from lapse.gate g
		where to_regproc(format('lapse.delete_%s_%s', g.policy_id, g.version)) is not null`
	const published = `select string_agg(c.relname, ' ' order by c.relname) from pg_publication_rel r join pg_class c on c.oid = r.prrelid
		where c.relnamespace = 'public'::regnamespace`
	count("sessions-30d visits", inForce)
	count("sessions visits", published)
	if _, err := writer.Exec(t.Context(), `commit`); err != nil {
		t.Fatal(err)
	}
	s.m.lapse("apply", "--yes", "-f", file)
	count("sessions-30d visits zebras", inForce)
	count("sessions visits zebras", published)
}
