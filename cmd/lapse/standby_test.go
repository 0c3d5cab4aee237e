package main

import (
	"path/filepath"
	"strings"
	"testing"

	"lapse/internal/pgtest"
)

// Where no standby answers to the setting, what init commits would wait forever.
func TestInitRefusesAServerThatWouldWaitForTheAuditor(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		conn := db.Connect(t)
		set := func(names string) {
			t.Helper()
			db.Exec(t, `alter system set synchronous_standby_names = '`+names+`'`, `select pg_reload_conf()`)
			for is := "?"; is != names; {
				if err := conn.QueryRow(t.Context(), `show synchronous_standby_names`).Scan(&is); err != nil {
					t.Fatal(err)
				}
			}
		}
		keys := filepath.Join(t.TempDir(), "keys")
		d := &desk{t: t, env: map[string]string{"LAPSE_DATABASE_URL": db.URL, "LAPSE_KAFKA_BROKERS": "127.0.0.1:1", "LAPSE_KEYS": keys}}
		for _, names := range []string{`*`, `ANY 1 (other, Lapse)`} {
			set(names)
			code, _, log := d.lapse("init", "--keys", keys)
			if code == exitDone || !strings.Contains(log, "alter system set synchronous_standby_names") {
				t.Errorf("%s: %d, %s", names, code, log)
			}
		}
		set("")
		if code, _, log := d.lapse("init", "--keys", keys); code != exitDone {
			t.Errorf("fixed: %d, %s", code, log)
		}
	})
}
