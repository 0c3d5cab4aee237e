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
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
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
