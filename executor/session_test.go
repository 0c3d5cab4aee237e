package executor

import (
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

func TestASessionHasItsSettingsFromItsStartAndAfterResetAll(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		wanted := func(own map[string]string) map[string]string {
			want := schemas.SessionSettings()
			maps.Copy(want, own)
			return want
		}
		login := db.NewRole(t, "login")
		for name, other := range map[string]string{
			"application_name": "x", "enable_seqscan": "on", "lock_timeout": "1h", "statement_timeout": "1h",
			"idle_in_transaction_session_timeout": "1h", "jit": "on", "row_security": "on",
		} {
			db.Exec(t, "alter role "+login+" set "+name+" = '"+other+"'", "alter database "+db.Name+" set "+name+" = '"+other+"'")
		}
		db.Exec(t, "alter database "+db.Name+" set deadlock_timeout = '800ms'")
		config, err := pgx.ParseConfig(db.As(login) + "&Search_Path=public&application_name=y")
		if err != nil {
			t.Fatal(err)
		}
		given := maps.Clone(config.RuntimeParams)
		s, err := connect(t.Context(), config, "holder", Limits{BatchTime: 150 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.close)
		if !maps.Equal(given, config.RuntimeParams) {
			t.Error("the caller's configuration was changed")
		}
		for conn, want := range map[*pgx.Conn]map[string]string{
			s.control: wanted(controlSettings()),
			s.batches: wanted(batchSettings(200*time.Millisecond, 1500*time.Millisecond, db.Major*10000)),
		} {
			for _, when := range []string{"at its start", "after reset all"} {
				for name, value := range want {
					var got string
					if err := conn.QueryRow(t.Context(), "select current_setting($1)", name).Scan(&got); err != nil {
						t.Fatal(err)
					}
					if got != value {
						t.Errorf("%s: %s is %q, want %q", when, name, got, value)
					}
				}
				if _, err := conn.Exec(t.Context(), "set search_path = public; set jit = on; set lock_timeout = 0; reset all", pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// Whoever waits for a lock for as long as deadlock_timeout finds the deadlock, and is ended by it.
func TestABatchGivesUpALockLongBeforeAnybodyLooksForADeadlock(t *testing.T) {
	t.Parallel()
	for deadlock, want := range map[time.Duration]string{
		time.Second: "250ms", time.Minute: "250ms", 100 * time.Millisecond: "25ms", time.Millisecond: "1ms",
	} {
		if got := milliseconds(lockTime(deadlock)); got != want {
			t.Errorf("with deadlock_timeout %v: %s, want %s", deadlock, got, want)
		}
	}
}
