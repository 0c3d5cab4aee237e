package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/planner/database"
)

// application deletes from one table all the time, whatever the table is called by then, and writes down which of its deletions
// lie between two moments that the test names.
type application struct {
	db    *pgtest.DB
	table uint32
	// window is a number from when on, until it is 0 again, no deletion may be missed.
	window atomic.Int64

	mu     sync.Mutex
	within map[int]int64 // the window that a deletion lies in, by id; 0 for none
	counts map[int64]int
}

func (a *application) run(ctx context.Context, first int) error {
	conn, err := pgx.Connect(context.WithoutCancel(ctx), a.db.URL)
	if err != nil {
		return err
	}
	defer database.Close(conn)
	for id := first; ctx.Err() == nil; id++ {
		before := a.window.Load()
		_, err := conn.Exec(context.WithoutCancel(ctx), fmt.Sprintf(`do $$ begin
			execute format('insert into %%s values (%[1]d, now() + interval ''1 day'')', %[2]d::regclass);
			execute format('delete from %%s where id = %[1]d', %[2]d::regclass); end $$`, id, a.table))
		var renamed *pgconn.PgError
		if errors.As(err, &renamed) && renamed.Code == "42P01" {
			continue
		}
		if err != nil {
			return err
		}
		if a.window.Load() != before {
			before = 0
		}
		a.mu.Lock()
		a.within[id] = before
		a.counts[before]++
		a.mu.Unlock()
		wait(ctx, 2*time.Millisecond)
	}
	return nil
}

func (a *application) deletedIn(window int64) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts[window]
}

const loadedPolicy = `
  - name: %[1]s-30d
    table: public.%[1]s
    expire: { column: last_seen, after: 30 days }
    every: 0.1 seconds
    state: armed
`

// A table joins by apply, leaves by apply --prune, gets another name and joins again, while an application deletes from it. From when
// its policy is armed up to when it is taken out, no deletion is missed, and none is told twice at any time.
func TestNoDeletionIsMissedFromWhenAPolicyIsArmedOn(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), 0, 0, 100)
		db.Exec(t, `create table public.loaded (id bigint primary key, last_seen timestamptz not null)`, `create index on public.loaded (last_seen, id)`)
		conn := db.Connect(t)
		a := &application{db: db, within: map[int]int64{}, counts: map[int64]int{}}
		if err := conn.QueryRow(ctx, `select 'public.loaded'::regclass::oid`).Scan(&a.table); err != nil {
			t.Fatal(err)
		}
		d := s.m.serve()
		working, stop := context.WithCancel(ctx)
		var group errgroup.Group
		for i := range 2 {
			group.Go(func() error { return a.run(working, 1+i*1_000_000) })
		}
		reached := func(what string, ask func() (bool, error)) {
			t.Helper()
			if err := eventually(ctx, func() (bool, error) { yes, err := ask(); return yes, errors.Join(err, d.alive()) }); err != nil {
				t.Fatalf("wait until %s: %v", what, err)
			}
		}
		alone := s.m.write("alone.yaml", fmt.Sprintf(policyText, 100))
		for i, name := range []string{"loaded", "renamed"} {
			window := int64(i + 1)
			both := s.m.write("both.yaml", fmt.Sprintf(policyText, 100)+fmt.Sprintf(loadedPolicy, name))
			s.m.lapse("apply", "--yes", "--arm", "-f", both)
			reached("the policy is armed", func() (armed bool, err error) {
				err = conn.QueryRow(ctx, `select exists (select from lapse.gate where name = $1 and state = 'armed')`, name+"-30d").Scan(&armed)
				return armed, err
			})
			a.window.Store(window)
			reached("rows are deleted", func() (bool, error) { return a.deletedIn(window) >= 50, nil })
			a.window.Store(0)
			s.m.lapse("apply", "--yes", "--prune", "-f", alone)
			outside := a.deletedIn(0)
			reached("rows are deleted", func() (bool, error) { return a.deletedIn(0) >= outside+10, nil })
			if i == 0 {
				db.Exec(t, `alter table public.loaded rename to renamed`)
			}
		}
		stop()
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		s.confirmed(ctx, conn, d)
		d.stop()
		a.compare(t, s)
	})
}

// compare wants each deletion of a window in the user topic once, and no other one more often.
func (a *application) compare(t *testing.T, s *shop) {
	t.Helper()
	events := map[int]int{}
	for _, record := range kafkatest.ReadAllOn(t, s.broker, s.name+".user") {
		if record.Header("lapse-op") != "delete" {
			continue
		}
		var id int
		if _, err := fmt.Sscanf(string(record.Key), `{"id":"%d"}`, &id); err != nil {
			t.Fatalf("%v in %s", err, record.Key)
		}
		events[id]++
	}
	missing, twice, between, told := 0, 0, 0, 0
	for id, window := range a.within {
		switch n := events[id]; {
		case n > 1:
			twice++
		case window > 0 && n == 0:
			missing++
		case window == 0:
			between++
			told += n
		}
	}
	t.Logf("%d deletions, by window %v; of the %d outside of them %d are events; missing %d, twice %d", len(a.within), a.counts, between, told, missing, twice)
	if missing+twice > 0 {
		t.Error("the user topic is not what was deleted")
	}
	if told == between {
		t.Error("the table never left")
	}
}
