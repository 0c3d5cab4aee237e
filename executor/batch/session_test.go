package batch

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
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
		s, err := Connect(t.Context(), config, "holder", 150*time.Millisecond, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		if !maps.Equal(given, config.RuntimeParams) {
			t.Error("the caller's configuration was changed")
		}
		for conn, want := range map[*pgx.Conn]map[string]string{
			s.Control: wanted(controlSettings()),
			s.Batches: wanted(batchSettings(200*time.Millisecond, 1500*time.Millisecond, db.Major*10000)),
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

// Every bound on what a batch or a session may wait lies far below the lease.
func TestALeaseOutlivesEverythingThatABatchMayWaitFor(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		lease := time.Duration(one[float64](t, db, "select extract(epoch from lapse.lease_time())::float8") * float64(time.Second))
		settings := []map[string]string{controlSettings(), batchSettings(lockTime(time.Hour), statementTime(time.Hour), withTransactionTimeout)}
		for _, s := range settings {
			for _, name := range []string{"lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"} {
				if d, err := time.ParseDuration(s[name]); err != nil || d <= 0 || 2*d > lease {
					t.Errorf("%s is %q beside a lease of %v (%v)", name, s[name], lease, err)
				}
			}
		}
		if d, err := time.ParseDuration(settings[1]["transaction_timeout"]); err != nil || d <= 0 || 3*d > 2*lease {
			t.Errorf("transaction_timeout is %v beside a lease of %v (%v)", d, lease, err)
		}
		if answerTime >= lease { // a server that is there ends what it does in 15 s
			t.Errorf("an answer is waited for up to %v beside a lease of %v", answerTime, lease)
		}
	})
}

// A session that waits for a lock for as long as deadlock_timeout finds the deadlock, and is ended by it.
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

func TestABatchsNameIsWhatPostgreSQLKeepsOfIt(t *testing.T) {
	t.Parallel()
	long := schemas.PolicyName(strings.Repeat("n", 63))
	run := uuid.New()
	name := batchName(long, run)
	if len(name) != longestName || !strings.HasSuffix(name, run.String()[24:]) || !strings.HasPrefix(name, "lapse: nnn") {
		t.Errorf("it is %q", name)
	}
}
