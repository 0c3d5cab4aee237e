package executor

import (
	"maps"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

func TestASessionHasItsSettingsFromItsStartAndAfterResetAll(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		want := schemas.SessionSettings()
		maps.Copy(want, sessionSettings())
		login := db.NewRole(t, "login")
		for name, other := range map[string]string{
			"application_name": "x", "enable_seqscan": "on", "lock_timeout": "1h", "statement_timeout": "1h",
			"idle_in_transaction_session_timeout": "1h", "jit": "on", "row_security": "on",
		} {
			db.Exec(t, "alter role "+login+" set "+name+" = '"+other+"'", "alter database "+db.Name+" set "+name+" = '"+other+"'")
		}
		config, err := pgx.ParseConfig(db.As(login) + "&Search_Path=public&application_name=y")
		if err != nil {
			t.Fatal(err)
		}
		given := maps.Clone(config.RuntimeParams)
		s, err := connect(t.Context(), config, "holder")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.close)
		if !maps.Equal(given, config.RuntimeParams) {
			t.Error("the caller's configuration was changed")
		}
		for _, when := range []string{"at its start", "after reset all"} {
			for name, value := range want {
				var got string
				if err := s.conn.QueryRow(t.Context(), "select current_setting($1)", name).Scan(&got); err != nil {
					t.Fatal(err)
				}
				if got != value {
					t.Errorf("%s: %s is %q, want %q", when, name, got, value)
				}
			}
			if _, err := s.conn.Exec(t.Context(), "set search_path = public; set jit = on; set lock_timeout = 0; reset all"); err != nil {
				t.Fatal(err)
			}
		}
	})
}
