package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	kafkago "github.com/segmentio/kafka-go"

	"lapse/internal/kafkatest"
	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
)

// types runs a line as in an operator's page. An operator who is asked gives answer; "" is a machine that nobody sits at.
func (m *machine) types(code int, answer, line string) string {
	m.t.Helper()
	args := words(line)[1:]
	if answer == "" {
		return m.exits(code, args...)
	}
	env := map[string]string{}
	for _, pair := range m.env {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	var out, log bytes.Buffer
	a := &app{in: strings.NewReader(answer), out: &out, err: &log, asks: true, env: func(name string) (string, bool) {
		value, set := env[name]
		return value, set
	}}
	if got := execute(m.t.Context(), args, a); got != code {
		m.t.Fatalf("%s: exit code %d, want %d\n%s%s", line, got, code, out.String(), log.String())
	}
	m.t.Logf("$ %s\n%s", line, out.String())
	return out.String() + log.String()
}

// words splits a line at spaces; double quotes keep words together.
func words(line string) []string {
	var all []string
	quotedWord := false
	all = strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quotedWord = !quotedWord
		}
		return r == ' ' && !quotedWord
	})
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], `"`, "")
	}
	return all
}

// commandsOf are the lines of a page's console blocks that run lapse.
func commandsOf(page string) []string {
	var all []string
	inside := false
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			inside = line == "```console"
		}
		if command, is := strings.CutPrefix(line, "$ lapse "); inside && is {
			all = append(all, "lapse "+command)
		}
	}
	return all
}

func TestEachCommandOfThePageOnHistoriesIsRunByATest(t *testing.T) {
	page, err := os.ReadFile("../../docs/histories.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := commandsOf(string(page))
	if len(commands) < 10 {
		t.Fatalf("the page has no commands: %q", commands)
	}
	var tests []byte
	for _, pattern := range []string{"*_test.go", "testdata/*.txtar"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tests = append(tests, text...)
		}
	}
	for _, command := range commands {
		typed := bytes.Contains(tests, []byte("`"+command+"`"))
		scripted := bytes.Contains(tests, []byte(" "+strings.ReplaceAll(command, `"`, `'`)+"\n"))
		if !typed && !scripted {
			t.Errorf("no test runs: %s", command)
		}
	}
}

// What somebody else published otherwise is fixed by init, and the gap says since when it was not.
func TestPublicationsThatSomebodyChangedAreAGapAndInitPutsThemRight(t *testing.T) {
	t.Parallel()
	pgtest.On(t, heavyMajors(t), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), 0, 20, 1000)
		s.m.types(0, "", `lapse audit --once`)
		db.Exec(t, `alter publication lapse_deletes drop table public.sessions`)
		s.userDeletes(1, 5) // not sent
		s.m.types(0, "", `lapse init`)
		s.userDeletes(6, 7)
		s.m.types(0, "", `lapse audit --once`)
		says(t, s.m.types(0, "", `lapse events`), " gap from 1/1/", "(somebody changed the publications)")
		s.printed(ctx, 1, " gap from 1/1/")
		s.printed(ctx, 2, " user ")
	})
}

// A slot that is older than a publication cannot be read past it: init makes the publication, and says that the slot is next.
//
//lapse:long
func TestAPublicationThatWasDroppedNeedsANewSlot(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, heavyMajors(t), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), 50, 20, 1000)
		s.userDeletes(1, 2)
		s.m.lapse("audit", "--once")
		db.Exec(t, `drop publication lapse_deletes`)
		s.userDeletes(3, 4) // nobody will ever know
		says(t, s.m.exits(3, "history"), `refused: the audit cannot start: `, `publication "lapse_deletes"`)
		says(t, s.m.types(1, "", `lapse init`), "is older than lapse_deletes, which had been dropped and is made again, and cannot be read past that",
			"lapse init --new-slot makes another, and the log goes on in the same topics, with a gap")
		s.userDeletes(5, 6)
		const again = "is not on record: a publication had to be made again, past which it cannot be read"
		says(t, s.m.types(1, "", `lapse init`), again, "lapse init --new-slot makes another")
		says(t, s.m.exits(3, "history"), again, "lapse init --new-slot makes another")
		s.m.exits(0, "run", "--once")
		s.passed(ctx, "nothing was deleted", `select count(*) = 50 from public.sessions where id <= 50`)

		says(t, s.m.types(0, "", `lapse init --new-slot`), "was older than a publication, or not on record, and is dropped",
			"next: lapse audit or lapse serve: the log goes on in the same topics, with a gap from 1/1/")
		s.userDeletes(7, 9)
		s.m.lapse("audit", "--once")
		s.printed(ctx, 5, " user ")
		s.printed(ctx, 1, "(the slot was gone, and was made again)")
		says(t, s.m.exits(0, "history"), "straight: ")
		says(t, s.m.exits(0, "init", "--new-slot"), "nothing to do")
		s.m.lapse("audit", "--once")
		s.m.lapse("run", "--once")

		db.Exec(t, `drop publication lapse_changes`)
		says(t, s.m.types(0, "", `lapse init --new-slot`), "publications  lapse_changes", "is dropped", "with a gap from 1/1/")
		s.userDeletes(10, 11)
		s.m.lapse("audit", "--once")
		s.printed(ctx, 7, " user ")
		s.printed(ctx, 2, "(the slot was gone, and was made again)")
		says(t, s.m.exits(0, "history"), "straight: ")
	})
}

// What the auditor's login lacks is said with where it comes from, and no text says "audit" twice.
func TestAnAuditorWithoutItsRightsSaysWhatToGrant(t *testing.T) {
	pgtest.On(t, heavyMajors(t), func(t *testing.T, db *pgtest.DB) {
		s := newShop(t, db, kafkatest.Broker(t), 0, 20, 1000)
		db.Exec(t, `revoke select on lapse.history from lapse_auditor`)
		refused := s.m.exits(1, "audit", "--once")
		says(t, refused, "permission denied for table history", "lacks the rights of role lapse_auditor: grant it that role")
		db.Exec(t, `grant select on lapse.history to lapse_auditor`, `select pg_drop_replication_slot('lapse_`+db.Name+`')`)
		refused += s.m.exits(1, "audit", "--once")
		if strings.Contains(refused, "audit: audit") {
			t.Errorf("a text says audit twice:\n%s", refused)
		}
	})
}

// A clone that is to live beside the original begins a log of its own; production's is untouched.
func TestACloneBeginsALogOfItsOwn(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, heavyMajors(t), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), 0, 20, 1000)
		s.userDeletes(1, 5)
		s.m.lapse("audit", "--once")
		clone := *s
		clone.db = db.Clone(t, db.Snapshot(t, pgserver.Frozen))
		s.userDeletes(6, 10)
		s.m.lapse("audit", "--once")

		clone.m = s.m.beside(t, &clone, s.name)
		bent := clone.m.types(3, "", `lapse history`)
		says(t, bent, "bent: ", "5 user events", "if it is a copy that runs next to the original: give it topics of its own")
		clone.m = s.m.beside(t, &clone, s.name+"-clone")
		clone.db.Exec(t, `select pg_drop_replication_slot('lapse_`+db.Name+`')`)
		clone.m.types(0, "", `lapse init --new-slot`)
		says(t, clone.m.types(0, "", `lapse history`), "new: there is no log yet")
		clone.userDeletes(6, 8)
		clone.m.lapse("audit", "--once")
		clone.printed(ctx, 3, " user ")
		s.printed(ctx, 10, " user ")
		says(t, s.m.exits(0, "history"), "straight: ")
	})
}

// A clone by TEMPLATE has the catalog, and shares the cluster's slots with the original.
func TestACloneByTemplateIsInstalledAnew(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, heavyMajors(t), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), 0, 20, 1000)
		s.m.lapse("audit", "--once")
		clone := *s
		clone.db = &pgtest.DB{Server: db.Server, Major: db.Major, Name: "clone", URL: db.Server.URL("postgres", "clone")}
		admin := &pgtest.DB{Server: db.Server, Major: db.Major, Name: "postgres", URL: db.Server.URL("postgres", "postgres")}
		admin.Exec(t, `create database clone template `+db.Name)
		clone.m = s.m.beside(t, &clone, s.name+"-clone")
		says(t, clone.m.exits(2, "audit", "--once"), "set slot: lapse_"+db.Name+" in lapse.yaml")

		clone.db.Exec(t, `drop schema lapse cascade`)
		clone.m.write("policies.yaml", fmt.Sprintf(policyText, 1000))
		clone.m.types(0, "", `lapse init`)
		clone.m.types(0, "", `lapse apply --yes -f policies.yaml`)
		clone.db.Exec(t, `delete from public.sessions where id <= 3`)
		clone.m.lapse("audit", "--once")
		clone.printed(ctx, 3, " user ")
		s.m.lapse("audit", "--once")
		s.printed(ctx, 0, " user ")
	})
}

// beside is this machine for another server, with topics of a name.
func (m *machine) beside(t *testing.T, s *shop, topics string) *machine {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.dir, "lapse.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	yaml := string(text)
	from := yaml[strings.Index(yaml, "database:"):strings.Index(yaml, "keys:")]
	yaml = strings.Replace(yaml, from, `database: { owner: "`+s.db.URL+`", executor: "`+s.db.As("lapse_executor")+`", auditor: "`+
		s.db.As("lapse_auditor")+"\" }\n", 1)
	yaml = strings.ReplaceAll(yaml, s.name+".", topics+".")
	yaml = strings.Replace(yaml, "keys: keys", "keys: "+filepath.Join(m.dir, "keys"), 1)
	return newMachine(t, yaml)
}

// A promotion that loses little goes on by itself, and one that loses what must not be lost waits for a person's word.
func TestAPromotionThatLostSomethingIsShownAndAccepted(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, heavyMajors(t), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), 0, 20, 1000)
		s.m.lapse("audit", "--once")
		standby := db.Standby(t)
		s.userDeletes(1, 5)
		s.m.lapse("audit", "--once")
		standby.CatchUp(t, db)
		standby.Detach(t)
		s.userDeletes(6, 10)
		s.m.lapse("audit", "--once")
		standby.Promote(t)

		promoted := *s
		promoted.db = standby.DB
		promoted.m = s.m.beside(t, &promoted, s.name)
		promoted.m.losesNothing(t)
		promoted.m.types(0, "", `lapse init --new-slot`) // the standby has no slot
		promoted.m.types(3, "", `lapse history`)
		promoted.m.exits(1, "audit", "--once")
		promoted.m.exits(0, "history", "accept", "--yes", "--unwatched", "--reason", "promoted, ticket 4714")
		says(t, promoted.m.types(0, "", `lapse history`), "accepted: history 2 was accepted: the audit writes a rewind to ")
		promoted.userDeletes(6, 8)
		promoted.m.lapse("audit", "--once")
		promoted.printed(ctx, 1, " rewind above ")
		promoted.printed(ctx, 13, " user ")
	})
}

// A position that the server has not reached would hide every delete up to it from then on: the start refuses it by name.
func TestAForgedEventIsRefusedUntilAPersonGoesOnAboveIt(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, heavyMajors(t), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), 0, 20, 1000)
		s.userDeletes(1, 5)
		s.m.lapse("audit", "--once")
		s.forge(ctx)
		says(t, s.m.exits(1, "audit", "--once"), "an event in a topic is not of this database's past")
		bent := s.m.types(3, "", `lapse history`)
		says(t, bent, "bent: ", "an event in a topic is not of this database's past", s.name+".user/",
			"next: find out who can write to the topics, and stop that; then, to go on above the event with a new history: "+
				"lapse history accept --reason TEXT\n")
		if n := strings.Count(bent, "next: "); n != 1 {
			t.Errorf("%d lines say what to type, want 1\n%s", n, bent)
		}
		says(t, s.m.types(1, "n\n", `lapse history accept --reason "forged event in lapse.deletes.user/3, ticket 4712"`), "nothing was accepted")
		says(t, s.m.types(0, "y\n", `lapse history accept --reason "forged event in lapse.deletes.user/3, ticket 4712" --unwatched`),
			"accepted: history 2")
		s.userDeletes(6, 8)
		s.m.lapse("audit", "--once")
		s.printed(ctx, 1, " rewind above 1/1/")
		s.printed(ctx, 9, " user ") // the forged one too: it is above the fork, in a history that is over
	})
}

// forge writes an event with a position far above the server's after a real one.
func (s *shop) forge(ctx context.Context) {
	s.t.Helper()
	real := kafkatest.ReadAll(s.t, s.name+".user")
	s.forgeAs(ctx, &real[slices.IndexFunc(real, func(r kafkatest.Record) bool { return r.Header("lapse-op") == "delete" })], "lapse-lsn", "000000FF00000000")
}

// forgeAs writes an event that is there once more, with another value of a header.
func (s *shop) forgeAs(ctx context.Context, last *kafkatest.Record, header, other string) {
	s.t.Helper()
	record := kafkago.Record{Key: kafkago.NewBytes(last.Key), Value: kafkago.NewBytes(last.Value)}
	for _, h := range last.Headers {
		value := h.Value
		if h.Name == header {
			value = []byte(other)
		}
		record.Headers = append(record.Headers, kafkago.Header{Key: h.Name, Value: value})
	}
	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafkago.Client{Addr: kafkago.TCP(s.broker.Addr()), Transport: transport}
	answer, err := client.Produce(ctx, &kafkago.ProduceRequest{
		Topic: s.name + ".user", Partition: int(last.Partition), RequiredAcks: kafkago.RequireAll, Records: kafkago.NewRecordReader(record),
	})
	if err := errors.Join(err, answer.Error); err != nil {
		s.t.Fatal(err)
	}
}

// losesNothing sets failover_tolerance: 0.
func (m *machine) losesNothing(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.dir, "lapse.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	m.write("lapse.yaml", string(text)+"failover_tolerance: 0\n")
}
