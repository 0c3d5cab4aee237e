package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"lapse/internal/fixture"
	"lapse/internal/pgtest"
	"lapse/planner/database"
)

// inUse is a database whose table public.sessions has a policy, and an application that uses it.
type inUse struct {
	t  *testing.T
	db *pgtest.DB
	m  *machine
}

// entry is a policy file of one entry on public.sessions.
func entry(after string, more ...string) string {
	return fixture.Policies(append([]string{fixture.Policy("sessions", "public.sessions", "last_seen", after)}, more...)...)
}

func newInUse(t *testing.T, db *pgtest.DB, more ...string) *inUse {
	t.Helper()
	db.Exec(t, `create table public.sessions (id bigint primary key, last_seen timestamptz not null)`,
		fmt.Sprintf(`alter table public.sessions owner to %s`, db.NewRole(t, "app")))
	db.Exec(t, more...)
	u := &inUse{t: t, db: db, m: newMachine(t, fmt.Sprintf("database: %q\nkeys: keys\n", db.URL))}
	u.m.env = append(u.m.env, "LAPSE_SUPERUSER=allow")
	u.m.lapse("init", "--keys", "keys")
	u.apply(exitDone, entry("30 days", "    state: armed\n"))
	return u
}

// apply applies a file, which must end with a code, and returns what was written.
func (u *inUse) apply(code int, file string, more ...string) string {
	u.t.Helper()
	return u.runs(code, append([]string{"apply", "--yes", "-f", u.m.write("policies.yaml", file)}, more...)...)
}

// runs runs a command while it watches: no session of ours may wait for a lock on a table of the application's.
func (u *inUse) runs(code int, args ...string) string {
	u.t.Helper()
	d := u.m.start(args...)
	ctx, over := context.WithCancel(u.t.Context())
	watch, err := pgx.Connect(ctx, u.db.URL)
	if err != nil {
		u.t.Fatal(err)
	}
	defer database.Close(watch)
	var group errgroup.Group
	group.Go(func() error { return neverWaits(ctx, watch) })
	if got := d.ended(); got != code {
		u.t.Errorf("lapse %s: exit code %d, want %d", strings.Join(args, " "), got, code)
	}
	over()
	if err := group.Wait(); err != nil {
		u.t.Errorf("lapse %s: %v", strings.Join(args, " "), err)
	}
	text, err := os.ReadFile(d.log)
	if err != nil {
		u.t.Fatal(err)
	}
	return string(text)
}

// neverWaits looks, until ctx ends, for sessions of ours that wait for a lock on a table that is not ours.
func neverWaits(ctx context.Context, conn *pgx.Conn) error {
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for {
		var waits *string
		err := conn.QueryRow(context.WithoutCancel(ctx), `
			select string_agg(l.mode || ' on ' || c.relname, ', ')
			  from pg_locks l
			  join pg_stat_activity a on a.pid = l.pid and a.application_name like 'lapse%'
			  join pg_class c on c.oid = l.relation
			  join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'public'
			 where not l.granted and l.database = (select oid from pg_database where datname = current_database())`).Scan(&waits)
		if err != nil || waits != nil {
			return errors.Join(err, fmt.Errorf("a session of ours waited: %s", *waits))
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// state is what is in force: "3 paused".
func (u *inUse) state() string {
	u.t.Helper()
	var state string
	if err := u.db.Connect(u.t).QueryRow(u.t.Context(), `select version || ' ' || state from lapse.gate`).Scan(&state); err != nil {
		u.t.Fatal(err)
	}
	return state
}

// An open transaction with one INSERT keeps nobody from pausing, and no writer waits for it. The same while somebody has the
// table under the strongest lock there is.
//
//lapse:long
func TestATableInUseKeepsNobodyFromPausingLengtheningOrDropping(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{
		"one uncommitted insert": `insert into public.sessions values (-1, now())`,
		"access exclusive":       `lock table public.sessions in access exclusive mode`,
	} {
		t.Run(name, func(t *testing.T) {
			pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
				u := newInUse(t, db)
				idle := db.Connect(t)
				if _, err := idle.Exec(t.Context(), `begin; `+lock); err != nil {
					t.Fatal(err)
				}
				stop := func() {}
				if strings.HasPrefix(lock, "insert") {
					stop = u.writes()
				}
				for _, step := range []struct{ file, want string }{
					{entry("30 days", "    state: paused\n"), "1 paused"},
					{entry("31 days", "    state: paused\n", "    every: 2 hours\n"), "2 paused"},
					{entry("31 days", "    state: observing\n", "    every: 2 hours\n"), "2 observing"},
					{entry("60 days", "    state: observing\n"), "3 observing"},
				} {
					u.apply(exitDone, step.file)
					if got := u.state(); got != step.want {
						t.Errorf("in force is %s, want %s", got, step.want)
					}
				}
				text := u.apply(exitDone, "policies: []", "--prune")
				if got := u.state(); got != "3 dropped" || !strings.Contains(text, `alter publication lapse_deletes drop table "public"."sessions"`) {
					t.Errorf("in force is %s, and it said\n%s", got, text)
				}
				stop()
			})
		})
	}
}

// writes lets the application insert all the while. Its inserts must never wait. It returns what ends it.
func (u *inUse) writes() (stop func()) {
	ctx, over := context.WithCancel(u.t.Context())
	conn := u.db.Connect(u.t)
	if _, err := conn.Exec(ctx, `set lock_timeout = '20ms'`); err != nil {
		u.t.Fatal(err)
	}
	var group errgroup.Group
	group.Go(func() error {
		for id := 1; ctx.Err() == nil; id++ {
			if _, err := conn.Exec(context.WithoutCancel(ctx), `insert into public.sessions values ($1, now())`, id); err != nil {
				return fmt.Errorf("insert %d: %w", id, err)
			}
			wait(ctx, time.Millisecond)
		}
		return nil
	})
	return func() {
		over()
		if err := group.Wait(); err != nil {
			u.t.Errorf("the application had to wait: %v", err)
		}
	}
}

//lapse:long
func TestATableThatNoLongerFitsKeepsNobodyFromPausingOrDropping(t *testing.T) {
	t.Parallel()
	const second = "  - name: others\n    table: public.others\n    expire: { column: at, after: 1 day }\n"
	for name, became := range map[string]string{
		"a trigger":      `create trigger look before delete on public.sessions for each row execute function public.look()`,
		"no primary key": `alter table public.sessions drop constraint sessions_pkey`,
		"no table":       `drop table public.sessions`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newInUse(t, pgtest.New(t, pgtest.Newest(t)), `create table public.others (id int primary key, at timestamptz)`,
				`create function public.look() returns trigger language plpgsql as 'begin return old; end'`)
			u.db.Exec(t, became)
			u.apply(exitPerson, entry("30 days", "    state: armed\n")+second)
			var others string
			if err := u.db.Connect(t).QueryRow(t.Context(), `select state from lapse.gate where name = 'others'`).Scan(&others); err != nil || others != "observing" {
				t.Errorf("the other policy of the file is %q, %v", others, err)
			}
			u.apply(exitDone, "policies:\n"+second, "--prune")
			for name, want := range map[string]string{"sessions": "dropped", "others": "observing"} {
				var state string
				if err := u.db.Connect(t).QueryRow(t.Context(), `select state from lapse.gate where name = $1`, name).Scan(&state); err != nil || state != want {
					t.Errorf("%s is %q, %v, want %s", name, state, err, want)
				}
			}
		})
		t.Run(name+", paused", func(t *testing.T) {
			t.Parallel()
			u := newInUse(t, pgtest.New(t, pgtest.Newest(t)), `create function public.look() returns trigger language plpgsql as 'begin return old; end'`)
			u.db.Exec(t, became)
			u.apply(exitDone, entry("30 days", "    state: paused\n"))
			if got := u.state(); got != "1 paused" {
				t.Errorf("in force is %s", got)
			}
		})
	}
}
