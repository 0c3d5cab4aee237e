package audit_test

import (
	"fmt"
	"testing"
	"time"

	"lapse/internal/pgtest"
)

// walsenderTimeout is how long PostgreSQL keeps the slot for an auditor that does not move: 60 s by default.
const walsenderTimeout = 3 * time.Second

var impatient = pgtest.Settings(map[string]string{"wal_sender_timeout": fmt.Sprint(walsenderTimeout.Milliseconds())})

// TestNothingIsMissingOrTwiceOnThreeBrokers is one round of make torture's: two auditors are started at once; partitions get
// other leaders while all brokers live; the auditor that has the slot is frozen (SIGSTOP) in the middle of a large
// transaction until the other has taken over, and let go on (SIGCONT); and a leader is killed. LAPSE_TEST_SEED repeats the
// choices.
func TestNothingIsMissingOrTwiceOnThreeBrokers(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		seed := number("LAPSE_TEST_SEED", time.Now().UnixNano())
		t.Logf("LAPSE_TEST_SEED=%d", seed)
		torture := newTorture(t, db, seed, 50*time.Millisecond, false)
		for _, name := range []string{"leader moved", "auditor frozen", "leader moved", "leader killed"} {
			torture.do(name)
		}
		torture.end()
	}, impatient)
}
