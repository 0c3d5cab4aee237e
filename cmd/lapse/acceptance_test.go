package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/planner/database"
	"lapse/schemas"
)

// shop is a database with sessions, many of them due, and the three kinds of people who delete beside Lapse.
type shop struct {
	t      *testing.T
	db     *pgtest.DB
	broker *kafkaserver.Server
	m      *machine
	name   string // topics begin with it

	due    int // rows 1 … due are due
	others int // as many rows each of user, forger and superuser delete
}

const (
	policyText = `
policies:
  - name: sessions-30d
    table: public.sessions
    expire: { column: last_seen, after: 30 days }
    every: 1 second
    pace: unlimited
    batch: %d
    state: armed
`
	kills = 5
)

// newShop fills the database, installs Lapse with a login for each role, and applies the policy.
func newShop(t *testing.T, db *pgtest.DB, broker *kafkaserver.Server, due, others, batch int) *shop {
	t.Helper()
	s := &shop{t: t, db: db, broker: broker, due: due, others: others, name: kafkatest.Name()}
	db.Exec(t,
		`create table public.sessions (id bigint primary key, last_seen timestamptz not null, note text)`,
		`create index on public.sessions (last_seen, id)`,
		fmt.Sprintf(`insert into public.sessions
		   select n, case when n <= %d then now() - interval '60 days' + n * interval '1 second' else now() + interval '1 day' end, 'a note'
		     from generate_series(1, %d) n`, due, due+3*others),
		fmt.Sprintf(`grant select, delete on public.sessions to %s, %s`, db.NewRole(t, "app"), db.NewRole(t, "forger")))
	s.m = newMachine(t, fmt.Sprintf(`
database: { owner: %q, executor: %q, auditor: %q }
keys: keys
kafka: { brokers: %q }
topics: { system: %[5]s.system, user: %[5]s.user, log: %[5]s.log, partitions: 3 }
`, db.URL, db.As("lapse_executor"), db.As("lapse_auditor"), broker.Addr(), s.name))
	s.m.lapse("init", "--keys", "keys")
	s.m.lapse("apply", "--yes", "-f", s.m.write("policies.yaml", fmt.Sprintf(policyText, batch)))
	return s
}

// interfere lets the three others delete rows that are not due, each in small transactions.
func (s *shop) interfere(ctx context.Context) error {
	const each = 10 // rows in one transaction
	group, ctx := errgroup.WithContext(ctx)
	for i, other := range []struct{ role, prelude string }{
		{s.db.Name + "_app", ``},
		{s.db.Name + "_forger", `select pg_logical_emit_message(true, 'lapse',
			'{"transaction_tag":"RowDeletionPolicy","is_system_transaction":true,"policy":"sessions-30d"}');`},
		{"postgres", `insert into lapse.batch
			select gen_random_uuid(), g.policy_id, g.name, g.version, gen_random_uuid(), now(), g.hold_version, g.table_oid, '{}',
			       decode(repeat('00', 32), 'hex'),
			       (select (case when c.system_identifier < 0 then c.system_identifier::numeric + 18446744073709551616
			                else c.system_identifier::numeric end)::text from pg_control_system() c),
			       (select d.oid from pg_database d where d.datname = current_database()),
			       (select max(n.number) from lapse.history n), lapse.timeline(), pg_current_xact_id(), now(),
			       decode(repeat('00', 32), 'hex')
			  from lapse.gate g;`},
	} {
		first := s.due + 1 + i*s.others
		group.Go(func() error {
			conn, err := pgx.Connect(ctx, s.db.As(other.role))
			if err != nil {
				return err
			}
			defer database.Close(conn)
			for at := first; at < first+s.others; at += each {
				sql := fmt.Sprintf(`begin; %s delete from public.sessions where id between %d and %d; commit`,
					other.prelude, at, min(at+each, first+s.others)-1)
				if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
					return fmt.Errorf("%s: %w", other.role, err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// serves starts lapse serve, and waits until it is ready and all is done.
func (s *shop) serves(ctx context.Context) *daemon {
	s.t.Helper()
	d := s.m.serve()
	d.ready(http.StatusOK)
	s.settled(ctx, d)
	return d
}

// settled waits until nothing is due any more and the auditor has confirmed everything that was there then.
func (s *shop) settled(ctx context.Context, d *daemon) {
	s.t.Helper()
	conn := s.db.Connect(s.t)
	err := eventually(ctx, func() (gone bool, err error) {
		err = conn.QueryRow(ctx, `select count(*) = 0 from public.sessions where last_seen + interval '30 days' <= now()`).Scan(&gone)
		return gone, errors.Join(err, d.alive())
	})
	if err != nil {
		s.t.Fatalf("wait until all due rows are gone: %v", err)
	}
	s.confirmed(ctx, conn, d)
}

// confirmed waits until the auditor has confirmed all that was committed before the call.
func (s *shop) confirmed(ctx context.Context, conn *pgx.Conn, d *daemon) {
	s.t.Helper()
	var end string
	if err := conn.QueryRow(ctx, `select pg_current_wal_flush_lsn()::text`).Scan(&end); err != nil {
		s.t.Fatal(err)
	}
	// What is no event is confirmed once a minute. A heartbeat is confirmed at once, and what is before it with it.
	if _, err := conn.Exec(ctx, `
		select lapse.beat(gen_random_uuid(), (select max(n.number) from lapse.history n), lapse.timeline(), pg_postmaster_start_time(), null)`); err != nil {
		s.t.Fatal(err)
	}
	err := eventually(ctx, func() (passed bool, err error) {
		err = conn.QueryRow(ctx, `select confirmed_flush_lsn >= $1::text::pg_lsn from pg_replication_slots where slot_name = $2`,
			end, "lapse_"+s.db.Name).Scan(&passed)
		return passed, errors.Join(err, d.alive())
	})
	if err != nil {
		s.t.Fatalf("wait until the audit has confirmed %s: %v", end, err)
	}
}

// tally is what the topics say: how often each row was said to be deleted, by cause.
type tally map[string]map[int]int

// read counts the events of both topics with a reader that is not Lapse's.
func (s *shop) read() tally {
	s.t.Helper()
	found := tally{}
	for _, topic := range []string{s.name + ".system", s.name + ".user"} {
		for _, record := range kafkatest.ReadAllOn(s.t, s.broker, topic) {
			if record.Header("lapse-op") == "fence" {
				continue
			}
			var event struct {
				Tag    string `json:"transaction_tag"`
				System bool   `json:"is_system_transaction"`
				Table  string `json:"table_name"`
				Mods   []struct{ Keys struct{ ID string } }
				Lapse  struct{ Cause string }
			}
			if err := json.Unmarshal(record.Value, &event); err != nil {
				s.t.Fatalf("an event is no JSON: %v", err)
			}
			cause := record.Header("lapse-cause")
			system := cause == "system"
			if event.Lapse.Cause != cause || event.System != system || (event.Tag == "RowDeletionPolicy") != system ||
				system != (topic == s.name+".system") || event.Table != "public.sessions" || len(event.Mods) != 1 {
				s.t.Fatalf("an event contradicts itself in %s: %s", topic, record.Value)
			}
			id, err := strconv.Atoi(event.Mods[0].Keys.ID)
			if err != nil {
				s.t.Fatal(err)
			}
			if found[cause] == nil {
				found[cause] = map[int]int{}
			}
			found[cause][id]++
		}
	}
	return found
}

// expect compares the topics with what was deleted: each row once, under the cause that it has.
func (s *shop) expect() {
	s.t.Helper()
	found := s.read()
	for _, want := range []struct {
		cause       string
		first, last int
	}{
		{"system", 1, s.due},
		{"user", s.due + 1, s.due + 2*s.others},
		{"unverified", s.due + 2*s.others + 1, s.due + 3*s.others},
	} {
		got := found[want.cause]
		missing, twice, foreign := 0, 0, 0
		for id := want.first; id <= want.last; id++ {
			switch n := got[id]; {
			case n == 0:
				missing++
			case n > 1:
				twice++
			}
		}
		for id := range got {
			if id < want.first || id > want.last {
				foreign++
			}
		}
		s.t.Logf("%-10s %6d events, missing %d, more than once %d, not of this cause %d", want.cause, len(got), missing, twice, foreign)
		if missing+twice+foreign > 0 {
			s.t.Errorf("%s: rows %d to %d must each have one event and no others", want.cause, want.first, want.last)
		}
	}
}

// scaled is how much an acceptance test deletes.
func scaled(full int) int {
	if testing.Short() {
		return full / 20
	}
	return full
}

func patience(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), 5*time.Minute)
}

func TestEveryDueRowIsOneSystemEventWhateverOthersDeleteOrForge(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), scaled(30_000), scaled(2_000), 500)
		began := time.Now()
		d := s.m.serve()
		if err := s.interfere(ctx); err != nil {
			t.Fatal(err)
		}
		s.settled(ctx, d)
		t.Logf("%d rows deleted and audited in %v", s.due+3*s.others, time.Since(began).Round(time.Millisecond))
		d.stop()
		s.expect()
		s.refused(ctx)
		if got := strings.Count(s.m.lapse("events", "--cause", "unverified", "--json"), "\n"); got != s.others {
			t.Errorf("lapse events prints %d unverified events, want %d", got, s.others)
		}
	})
}

//lapse:long
func TestKillingServeAtAnyMomentLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		s := newShop(t, db, kafkatest.Broker(t), scaled(30_000), scaled(2_000), 250)
		moments := make([]int, kills)
		for i := range moments {
			moments[i] = random.IntN(s.due)
		}
		slices.Sort(moments)

		conn := db.Connect(t)
		others := make(chan error, 1)
		go func() { others <- s.interfere(ctx) }()
		d := s.m.serve()
		for i, moment := range moments {
			err := eventually(ctx, func() (passed bool, err error) {
				err = conn.QueryRow(ctx, `select coalesce(sum(deleted), 0) >= $1 from lapse.batch_result`, moment).Scan(&passed)
				return passed, errors.Join(err, d.alive())
			})
			if err != nil {
				t.Fatalf("wait until %d rows are deleted: %v", moment, err)
			}
			wait(ctx, time.Duration(random.IntN(100))*time.Millisecond)
			d.kill()
			if i < len(moments)-1 {
				// A dead executor's lease ends by itself after 30 s. That is waited for once, at the last moment.
				db.Exec(t, `update lapse.shard set lease_until = clock_timestamp() where not done`)
			}
			d = s.m.serve()
		}
		if err := <-others; err != nil {
			t.Fatal(err)
		}
		s.settled(ctx, d)
		d.stop()
		s.expect()
	})
}

// wait lets a random moment come.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// refused makes sure that the login that deletes may delete nothing by itself.
func (s *shop) refused(ctx context.Context) {
	s.t.Helper()
	conn := s.db.ConnectAs(s.t, "lapse_executor")
	for _, statement := range []string{
		`delete from public.sessions`, `truncate public.sessions`, `update public.sessions set note = ''`,
		`delete from lapse.batch`, `update lapse.gate set state = 'armed'`,
		`insert into lapse.policy_state (policy_id, version, state) select policy_id, version, 'armed' from lapse.gate`,
	} {
		_, err := conn.Exec(ctx, statement)
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != schemas.SQLStateInsufficientPrivilege {
			s.t.Errorf("the executor's login was not refused %q: %v", statement, err)
		}
	}
}
