package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

func TestUnderOtherKeysNothingIsDeletedAndNothingPublished(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		s := newShop(t, db, kafkatest.Broker(t), 50, 10, 100)
		s.m.lapse("audit", "--once") // the policy is armed, and the topics are there
		other := filepath.Join(s.m.dir, "other")
		if err := os.MkdirAll(other, 0o700); err != nil {
			t.Fatal(err)
		}
		const key = "2222222222222222222222222222222222222222222222222222222222222222"
		for _, name := range []string{"tag", "log", "rows", "hash"} {
			s.m.write(filepath.Join("other", name), key)
		}
		slot := s.position()
		for _, args := range [][]string{{"run", "--once"}, {"run"}, {"audit", "--once"}, {"audit"}, {"serve", "--http", "127.0.0.1:0"}, {"init"}} {
			d := s.m.start(append(args, "--keys", other)...)
			if code := d.ended(); code != exitInvalid {
				t.Errorf("lapse %s: exit code %d, want %d", strings.Join(args, " "), code, exitInvalid)
			}
			text, err := os.ReadFile(d.log)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), "has fingerprint") || strings.Contains(string(text), key) {
				t.Errorf("lapse %s says: %s", strings.Join(args, " "), text)
			}
		}
		// Only the executor's key is another: the audit's other keys do not matter to it.
		for _, name := range []string{"log", "rows", "hash"} {
			text, err := os.ReadFile(filepath.Join(s.m.dir, "keys", name))
			if err != nil {
				t.Fatal(err)
			}
			s.m.write(filepath.Join("other", name), string(text))
		}
		if code := s.m.start("run", "--once", "--keys", other).ended(); code != exitInvalid {
			t.Errorf("another tag key alone: exit code %d, want %d", code, exitInvalid)
		}
		var left int
		if err := db.Connect(t).QueryRow(t.Context(), `select count(*) from public.sessions`).Scan(&left); err != nil || left != 80 {
			t.Errorf("%d rows are left, %v, want 80", left, err)
		}
		if found := s.read(); len(found) > 0 {
			t.Errorf("events of nothing: %v", found)
		}
		if at := s.position(); at != slot {
			t.Errorf("the slot moved from %s to %s", slot, at)
		}
		s.m.lapse("run", "--once")
		s.m.lapse("audit", "--once")
		if found := s.read(); len(found["system"]) != 50 {
			t.Errorf("with the right keys %d system events, want 50", len(found["system"]))
		}
	})
}

// A log goes on with another hash key, format and number of partitions. The key that the database was installed with must be beside.
func TestALogGoesOnByAnotherRoute(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		s := newShop(t, db, kafkatest.Broker(t), 50, 10, 100)
		s.m.lapse("audit", "--once") // the policy is armed
		s.m.lapse("run", "--once")
		s.m.lapse("audit", "--once")
		path := filepath.Join(s.m.dir, "keys", "hash")
		former, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s.m.write("keys/hash", strings.Repeat("22", 32))
		for _, args := range [][]string{{"audit", "--once"}, {"init"}} {
			d := s.m.start(args...)
			if code := d.ended(); code != exitInvalid {
				t.Errorf("lapse %v without the key that was there before: exit code %d, want %d", args, code, exitInvalid)
			}
			if text, err := os.ReadFile(d.log); err != nil || !strings.Contains(string(text), "begins with hash-") {
				t.Errorf("lapse %v says: %s (%v)", args, text, err)
			}
		}
		s.m.write("keys/hash-former", string(former))
		config, err := os.ReadFile(filepath.Join(s.m.dir, "lapse.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		s.m.write("lapse.yaml", strings.Replace(string(config), "partitions: 3", "partitions: 2", 1)+"format: cloudevents\n")
		s.m.lapse("init")
		db.Exec(t, `delete from public.sessions where id in (select id from public.sessions order by id desc limit 7)`)
		s.m.lapse("audit", "--once")
		out := s.m.lapse("events", "--json")
		if all, after := strings.Count(out, "\n"), strings.Count(out, `"specversion"`); all != 57 || after != 7 {
			t.Errorf("%d events, %d of them in the other format, want 57 and 7:\n%.2000s", all, after, out)
		}
	})
}

// position is where the audit has come to.
func (s *shop) position() (at string) {
	s.t.Helper()
	err := s.db.Connect(s.t).QueryRow(s.t.Context(),
		`select confirmed_flush_lsn::text from pg_replication_slots where slot_name = $1`, "lapse_"+s.db.Name).Scan(&at)
	if err != nil {
		s.t.Fatal(err)
	}
	return at
}
