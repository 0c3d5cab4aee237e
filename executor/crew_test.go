package executor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// number is a number of the environment, or another.
func number(t testing.TB, name string, otherwise int64) int64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// seeded returns a source of random choices, and prints its seed: LAPSE_TEST_SEED repeats a run's choices, not its timing.
func seeded(t testing.TB, n int) *rand.Rand {
	t.Helper()
	seed := number(t, "LAPSE_TEST_SEED", time.Now().UnixNano())
	t.Logf("LAPSE_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(uint64(seed), uint64(n)))
}

// crew is some executor processes that work on one database until nothing is due. Any of them may be killed.
type crew struct {
	t       *testing.T
	db      *pgtest.DB
	random  *rand.Rand
	members []*member
	batches chan struct{} // of all of them
	dead    []string      // holders
	hired   int
	kills   int
	leases  bool // those of the dead end by themselves
}

// member is one of them.
type member struct {
	*child
	holder string
	ended  chan bool // true: all was done
}

func newCrew(t *testing.T, db *pgtest.DB, random *rand.Rand, size int) *crew {
	t.Helper()
	c := &crew{t: t, db: db, random: random, members: make([]*member, size), batches: make(chan struct{}, 1000)}
	for i := range c.members {
		c.members[i] = c.hire()
	}
	return c
}

// hire starts a process.
func (c *crew) hire() *member {
	c.t.Helper()
	c.hired++
	m := &member{holder: fmt.Sprintf("crew%d", c.hired), ended: make(chan bool, 1)}
	m.child = startChild(c.t, c.db.As(schemas.RolesFor(schemas.DefaultRolePrefix).Executor), childHolder+"="+m.holder)
	go func() {
		over := false
		for m.lines.Scan() {
			over = m.lines.Text() == "over"
			select {
			case c.batches <- struct{}{}:
			default:
			}
		}
		m.ended <- over
	}()
	return m
}

// wreck kills one after the other, each after some batches more and a moment, and puts another in its place. It returns false when all
// was done before.
//
// A dead one's last batch may still be on its way when it is killed: its lease is prolonged then.
func (c *crew) wreck(kills int) bool {
	c.t.Helper()
	for ; kills > 0; kills-- {
		i := c.random.IntN(len(c.members))
		m := c.members[i]
		for n := c.random.IntN(12); n > 0; n-- {
			select {
			case <-c.batches:
			case over := <-m.ended:
				m.ended <- over
				return false
			}
		}
		<-time.After(time.Duration(c.random.IntN(20_000)) * time.Microsecond)
		_ = m.command.Process.Kill()
		<-m.ended
		_ = m.command.Wait()
		c.kills++
		c.dead = append(c.dead, m.holder)
		c.free()
		c.members[i] = c.hire()
	}
	return true
}

// free ends the leases of the dead.
func (c *crew) free() {
	c.t.Helper()
	if !c.leases && len(c.dead) > 0 {
		c.db.Exec(c.t, "update lapse.shard set lease_until = clock_timestamp() where not done and split_part(holder, '/', 1) in ('"+strings.Join(c.dead, "', '")+"')")
	}
}

// finish waits until the others have done all that is left.
func (c *crew) finish() {
	c.t.Helper()
	for _, m := range c.members {
		for done := false; !done; {
			select {
			case over := <-m.ended:
				if done = true; !over {
					c.t.Errorf("an executor process failed:\n%s", m.log())
				}
			case <-time.After(100 * time.Millisecond):
				c.free()
			}
		}
		_ = m.command.Wait()
	}
}

//lapse:long
func TestKillsOfAnyOfFourExecutorsLoseAndRepeatNothing(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		const due, live = 3000, 500
		spread(t, db, due, live)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 20", "pace: unlimited")))
		h := recorded(t, db)
		c := newCrew(t, db, seeded(t, db.Major), 4)
		c.wreck(6)
		c.finish()
		if c.kills < 3 {
			t.Errorf("the work was done after %d kills: there was too little of it", c.kills)
		}
		isWhole(t, db, h, due, live)
		if said := one[int64](t, db, "select sum(s.deleted)::bigint from lapse.run r, lapse.statistics(r.run) s"); said != due {
			t.Errorf("the runs say %d rows, want %d", said, due)
		}
	})
}

// Executors that begin at once do not go for the same shards: each has a first choice of its own among those that are free.
func TestExecutorsThatBeginAtOnceGoForDifferentHashSlices(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 100, 5)
		arm(t, db, policies(policy("p", "public.sessions", "shards: { by: [id], count: 16 }")))
		w := open(t, db, "p")
		if _, err := w.Release(t.Context(), w.a.Lease); err != nil {
			t.Fatal(err)
		}
		choices := map[int64]bool{}
		for n := range 8 {
			err := pgx.BeginFunc(t.Context(), w.Control, func(tx pgx.Tx) error {
				var shard int64
				if err := tx.QueryRow(t.Context(), "select shard from lapse.lease($1, $2)", w.run.ID, fmt.Sprintf("host%d/x/0", n)).Scan(&shard); err != nil {
					return err
				}
				choices[shard] = true
				return pgx.ErrTxCommitRollback
			})
			if !errors.Is(err, pgx.ErrTxCommitRollback) {
				t.Fatal(err)
			}
		}
		if len(choices) < 4 {
			t.Errorf("eight executors go for %d of 17 shards first", len(choices))
		}
	})
}
