package setup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/fixture"
	"lapse/internal/pgtest"
	"lapse/internal/setup/access"
	"lapse/internal/setup/apply"
	"lapse/internal/setup/install"
	"lapse/planner/policyfile"
)

// asks is an applier that can make indexes.
func (p *database) asks() *apply.Applier {
	p.t.Helper()
	a := p.applier()
	a.Login = p.connectLogin
	return a
}

// connectLogin opens a session of the login's own.
func (p *database) connectLogin(ctx context.Context) (*pgx.Conn, error) {
	return p.connect(ctx, install.PlayAuditor)
}

func (p *database) makes(f *policyfile.File) (apply.Changes, error) {
	p.t.Helper()
	a := p.asks()
	changes, err := a.Difference(p.t.Context(), f)
	p.must(err)
	return changes, a.Apply(p.t.Context(), changes)
}

const made = `select array(select format('%s %s', c.relname, i.indisvalid) from pg_index i join pg_class c on c.oid = i.indexrelid
	where c.relname like 'lapse\_%\_idx\_%' order by c.relname)`

// indexed makes a table without an index, and one with partitions.
func (p *database) indexed(owner string) (plain, parts string) {
	role := p.db.NewRole(p.t, owner)
	p.db.Exec(p.t, fmt.Sprintf(`create schema %[1]s authorization %[1]s; set role %[1]s;
		create table %[1]s.plain (id int primary key, at timestamptz not null);
		create table %[1]s.parts (id int, at timestamptz not null, primary key (id, at)) partition by range (at);
		create table %[1]s.parts_old partition of %[1]s.parts for values from (minvalue) to ('2020-01-01');
		create table %[1]s.parts_new partition of %[1]s.parts for values from ('2020-01-01') to (maxvalue)`, role))
	return role + ".plain", role + ".parts"
}

func TestAnIndexThatAPolicyAsksForIsMadeAndGoesWithIt(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		p := newInstalled(t, db)
		plain, parts := p.indexed("app")
		own := "create index theirs on " + plain + " (at)"
		count := func(want int, when string) {
			t.Helper()
			if got := ask[[]string](p, made); len(got) != want || strings.Contains(strings.Join(got, ""), " f") {
				t.Errorf("%s: there are %q, want %d", when, got, want)
			}
			if got := ask[int](p, `select count(*) from lapse.made_index where index is not null`); got != want {
				t.Errorf("%s: %d on record, want %d", when, got, want)
			}
		}
		changes, err := p.makes(file(t, ", index: create", plain, parts))
		p.must(err)
		if len(changes[0].Build) != 1 || len(changes[1].Build) != 5 || !changes[0].Applied || len(changes[0].Warnings) > 0 {
			t.Errorf("built %+v", changes)
		}
		count(4, "made")
		if got := ask[bool](p, `select bool_and(i.indisvalid and pg_get_userbyid(x.relowner) = current_database() || '_app')
			from lapse.made_index m join pg_class x on x.oid = m.index join pg_index i on i.indexrelid = x.oid`); !got {
			t.Error("not valid, or not the owner's")
		}
		changes, err = p.makes(file(t, ", index: create", plain, parts))
		p.must(err)
		if changes.Write() {
			t.Errorf("the second time: %+v", changes)
		}
		// A partition that lost its index gets one again; a policy that is left in force keeps its own.
		db.Exec(t, own)
		a := p.asks()
		a.Prune = false
		changes, err = a.Difference(t.Context(), file(t, ", index: create", plain))
		p.must(err)
		if changes.Write() {
			t.Errorf("with a policy that is not in the file: %+v", changes)
		}
		// index: use drops what Lapse made and nothing else; so does the end of a policy.
		changes, err = p.makes(file(t, ", index: use", plain, parts))
		p.must(err)
		if got := len(changes[0].DropIndexes) + len(changes[1].DropIndexes); got != 4 {
			t.Errorf("%d indexes to drop", got)
		}
		count(0, "index: use")
		if !ask[bool](p, `select exists (select from pg_class where relname = 'theirs')`) {
			t.Error("an index of the application's was dropped")
		}
		_, err = p.makes(file(t, ", index: create", plain, parts))
		p.must(err)
		count(3, "beside an index that serves") // theirs is used
		_, err = p.makes(file(t, ""))
		p.must(err)
		count(0, "without policies")
	})
}

// That the table's owner may not make an index in the table's schema is known before anything is written.
func TestAnIndexThatTheOwnerMayNotMakeIsRefusedBeforehand(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		p := newInstalled(t, db)
		plain, _ := p.indexed("app")
		schema, _, _ := strings.Cut(plain, ".")
		db.Exec(t, fmt.Sprintf("alter schema %[1]s owner to current_user; grant usage on schema %[1]s to %[1]s", schema))
		_, err := p.asks().Difference(t.Context(), file(t, ", index: create", plain))
		fix := fmt.Sprintf("grant usage, create on schema %[1]q to %[1]q", schema)
		if err == nil || !strings.Contains(err.Error(), fix) {
			t.Errorf("got %v, want %s", err, fix)
		}
		db.Exec(t, fix)
		_, err = p.makes(file(t, ", index: create", plain))
		p.must(err)
	})
}

// Making an index is interrupted at any statement, on either of the two connections.
func TestAnIndexIsMadeThoughTheConnectionIsLostAtAnyStatement(t *testing.T) {
	t.Parallel()
	p := newInstalled(t, pgtest.New(t, pgtest.Newest(t)))
	plain, parts := p.indexed("app")
	for _, wanted := range []*policyfile.File{file(t, ", index: create", plain, parts), file(t, "")} {
		p.untilWhole(3, func(s *statements) error { return p.tries(wanted, s) })
		want := 4
		if len(wanted.Policies) == 0 {
			want = 0
		}
		if got := ask[[]string](p, made); len(got) != want || strings.Contains(strings.Join(got, ""), " f") {
			t.Errorf("there are %q, want %d", got, want)
		}
		if got := ask[int](p, `select count(*) from lapse.made_index`); got != want {
			t.Errorf("%d on record, want %d", got, want)
		}
	}
}

func TestAnInterruptedIndexIsGivenUpAndMadeAgain(t *testing.T) {
	t.Parallel()
	p := newInstalled(t, pgtest.New(t, pgtest.Newest(t)))
	plain, _ := p.indexed("app")
	wanted := file(t, ", index: create", plain)
	// Somebody writes to the table: CREATE INDEX CONCURRENTLY waits for them, and nobody waits behind it.
	writer := p.db.Connect(t)
	exec := func(sql string) {
		t.Helper()
		_, err := writer.Exec(t.Context(), sql)
		p.must(err)
	}
	exec("begin; insert into " + plain + " values (1, now())")
	ctx, stop := context.WithCancelCause(t.Context())
	interrupted := errors.New("a person says no")
	a := p.asks()
	seen := make(chan apply.IndexProgress, 100)
	a.Indexing = func(p apply.IndexProgress) {
		seen <- p
		stop(interrupted)
	}
	changes, err := a.Difference(ctx, wanted)
	p.must(err)
	if err := a.Apply(ctx, changes); !errors.Is(err, interrupted) {
		t.Errorf("got %v", err)
	}
	if got := <-seen; got.Phase == "" || !strings.Contains(got.String(), "waiting") {
		t.Errorf("the progress is %+v", got)
	}
	if n := ask[int](p, `select count(*) from pg_stat_activity where query like 'create index%' and state = 'active' and datname = current_database()`); n > 0 {
		t.Error("the server goes on")
	}
	if n := ask[int](p, `select count(*) from lapse.policy`); n > 0 {
		t.Error("the policy was written without its index")
	}
	p.must(run(t, p.db.Connect(t), "set lock_timeout = '1s'; insert into "+plain+" values (2, now())"))
	exec("commit")
	_, err = p.makes(wanted)
	p.must(err)
	if got := ask[[]string](p, made); len(got) != 1 || !strings.HasSuffix(got[0], " t") {
		t.Errorf("there is %q", got)
	}
	// An index that is in use is not waited for long: it is left, and dropped by the next apply.
	exec("begin; select from " + plain)
	changes, err = p.makes(file(t, ""))
	p.must(err)
	if len(changes[0].Left) != 1 || !strings.Contains(changes[0].Left[0], "drop index concurrently") {
		t.Errorf("left is %q", changes[0].Left)
	}
	exec("commit")
	changes, err = p.makes(file(t, ""))
	p.must(err)
	if got := ask[[]string](p, made); len(got) != 0 || changes.Write() != true {
		t.Errorf("there is still %q", got)
	}
}

// A server that lost its client goes on: the next apply waits for it, and takes what it made.
func TestAnIndexThatTheServerStillMakesIsWaitedFor(t *testing.T) {
	t.Parallel()
	p := newInstalled(t, pgtest.New(t, pgtest.Newest(t)))
	plain, _ := p.indexed("app")
	wanted := file(t, ", index: create", plain)
	a := p.asks()
	changes, err := a.Difference(t.Context(), wanted)
	p.must(err)
	statement := changes[0].Build[0]
	name := strings.Fields(statement)[3]
	writer, maker := p.db.Connect(t), p.db.Connect(t)
	p.must(run(t, writer, "begin; insert into "+plain+" values (1, now())"))
	p.db.Exec(t, fmt.Sprintf(`insert into lapse.made_index (relation, schema, name, policy) values (%d, '%s', '%s', 'x')`,
		changes[0].Resolved.TableOID, strings.Split(plain, ".")[0], name))
	done := make(chan error, 1)
	go func() { done <- run(t, maker, statement) }()
	fixture.Eventually(t, "the index is there", func() bool { return len(ask[[]string](p, made)) == 1 })
	applied := make(chan error, 1)
	second := p.asks()
	changes, err = second.Difference(t.Context(), wanted)
	p.must(err)
	if got := fmt.Sprint(changes[0].Build); !strings.HasPrefix(got, "[drop index concurrently") {
		t.Errorf("it would run %s", got)
	}
	go func() { applied <- second.Apply(t.Context(), changes) }()
	fixture.Eventually(t, "apply waits", func() bool {
		return ask[bool](p, `select exists (select from pg_stat_activity where query like 'lock table%' and wait_event_type = 'Lock' and datname = current_database())`)
	})
	oid := ask[uint32](p, `select $1::regclass::oid`, strings.Split(plain, ".")[0]+"."+name)
	p.must(run(t, writer, "commit"))
	for _, c := range []chan error{done, applied} {
		select {
		case err := <-c:
			p.must(err)
		case <-time.After(time.Minute):
			t.Fatal("it never ends")
		}
	}
	if got := ask[uint32](p, `select $1::regclass::oid`, strings.Split(plain, ".")[0]+"."+name); got != oid {
		t.Error("the index that the server made was thrown away")
	}
}

// Making an index takes as long as it takes, whatever the database or the login has as its bound of a transaction (17).
func TestAnIndexIsMadeInASessionWhoseTransactionsAreBounded(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{17, 18}, func(t *testing.T, db *pgtest.DB) {
		p := newInstalled(t, db)
		plain, _ := p.indexed("app")
		a := p.asks()
		a.Login = func(ctx context.Context) (*pgx.Conn, error) {
			conn, err := p.connectLogin(ctx)
			if err == nil {
				_, err = conn.Exec(ctx, "set transaction_timeout = '200ms'")
			}
			return conn, err
		}
		changes, err := a.Difference(t.Context(), file(t, ", index: create", plain))
		p.must(err)
		writer, ended := db.Connect(t), make(chan error, 1)
		go func() {
			ended <- run(t, writer, "begin; insert into "+plain+" values (1, now()); select pg_sleep(1); commit")
		}()
		fixture.Eventually(t, "somebody writes", func() bool {
			return ask[bool](p, `select exists (select from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database())`)
		})
		p.must(a.Apply(t.Context(), changes))
		p.must(<-ended)
		if got := ask[[]string](p, made); len(got) != 1 || !strings.HasSuffix(got[0], " t") {
			t.Errorf("there is %q", got)
		}
	})
}

// What an application has is not Lapse's, though it has the name of what Lapse made.
func TestOnlyTheIndexThatLapseMadeIsDropped(t *testing.T) {
	t.Parallel()
	p := newInstalled(t, pgtest.New(t, pgtest.Newest(t)))
	plain, parts := p.indexed("app")
	_, err := p.makes(file(t, ", index: create", plain))
	p.must(err)
	name := ask[string](p, `select format('%I.%I', schema, name) from lapse.made_index`)
	p.db.Exec(t, "drop index "+name, fmt.Sprintf("create index %s on %s (id, at)", strings.Split(name, ".")[1], plain))
	_, err = p.makes(file(t, ""))
	p.must(err)
	if ask[int](p, `select count(*) from lapse.made_index`) != 0 || len(ask[[]string](p, made)) != 1 {
		t.Error("the application's index of that name was dropped, or the record stays")
	}
	// A table that is gone is no trouble either; and an index in the way that nobody here made is left alone.
	_, err = p.makes(file(t, ", index: create", parts))
	p.must(err)
	p.db.Exec(t, "drop table "+parts)
	_, err = p.makes(file(t, ""))
	p.must(err)
	if n := ask[int](p, `select count(*) from lapse.made_index`); n != 0 {
		t.Errorf("%d on record", n)
	}
	p.db.Exec(t, "drop index "+name, "insert into "+plain+" values (1, now()), (2, now())")
	if err := run(t, p.db.Connect(t), fmt.Sprintf("create unique index concurrently %s on %s ((at is null))", strings.Split(name, ".")[1], plain)); err == nil {
		t.Fatal("want an index that is not valid")
	}
	if _, err := p.makes(file(t, ", index: create", plain)); err == nil || !strings.Contains(err.Error(), "that Lapse did not make: drop index concurrently") {
		t.Errorf("got %v", err)
	}
}

// The session is the table's owner's: what the owner may not do a superuser who applies does not do for it either.
func TestAnIndexIsMadeWithTheRightsOfTheTablesOwner(t *testing.T) {
	t.Parallel()
	p := newInstalled(t, pgtest.New(t, pgtest.Newest(t)))
	plain, _ := p.indexed("app")
	schema := strings.Split(plain, ".")[0]
	p.db.Exec(t, "alter schema "+schema+" owner to postgres", "grant usage on schema "+schema+" to "+schema)
	f, a := file(t, ", index: create", plain), p.asks()
	_, err := a.Difference(t.Context(), f)
	var refused *access.GrantError
	if !errors.As(err, &refused) {
		t.Fatalf("foretold: got %v, want a GrantError", err)
	}
	p.db.Exec(t, refused.SQL)
	changes, err := a.Difference(t.Context(), f)
	p.must(err)
	// The right goes after it was looked for.
	p.db.Exec(t, "revoke create on schema "+schema+" from "+schema)
	if err := a.Apply(t.Context(), changes); !errors.As(err, &refused) {
		t.Fatalf("got %v, want a GrantError", err)
	}
	p.db.Exec(t, refused.SQL)
	_, err = p.makes(f)
	p.must(err)
}

func run(t *testing.T, conn *pgx.Conn, sql string) error {
	_, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
	return err
}

// The index of a policy with a sidecar is the sidecar's.
func TestTheIndexOfASidecarIsMadeOnceAndGoesWithThePolicy(t *testing.T) {
	t.Parallel()
	p := newInstalled(t, pgtest.New(t, pgtest.Newest(t)))
	owner := p.db.NewRole(t, "app")
	p.db.Exec(t, fmt.Sprintf(`create schema %[1]s authorization %[1]s; set role %[1]s; create table %[1]s.t (id int primary key);
		create table %[1]s.ttl (id int primary key references %[1]s.t on delete cascade, due timestamptz)`, owner))
	wanted, err := policyfile.Parse("policies.yaml", fmt.Appendf(nil,
		"policies: [{ name: p, table: %[1]s.t, expire: { sidecar: %[1]s.ttl, column: due, after: 1 day }, index: create }]", owner))
	p.must(err)
	for n := range 2 {
		changes, err := p.makes(wanted)
		p.must(err)
		if got := ask[[]string](p, made); len(got) != 1 || !strings.HasPrefix(got[0], "lapse_ttl_idx_") || changes.Write() != (n == 0) {
			t.Errorf("time %d: there is %q, and the changes are %+v", n+1, got, changes)
		}
	}
	_, err = p.makes(file(t, ""))
	p.must(err)
	if got := ask[[]string](p, made); len(got) != 0 {
		t.Errorf("there is still %q", got)
	}
}
