package batch

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"lapse/internal/fixture"
	"lapse/internal/fixture/catalog"
	"lapse/internal/pgtest"
	"lapse/internal/setup/site"
	"lapse/planner/change"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(pgtest.Wrap(m, catalog.Template(site.Options{AuditRequired: false})))
}

var testKey = schemas.Key(bytes.Repeat([]byte("k"), schemas.MinKey))

// one asks for one value as the superuser.
func one[T any](t testing.TB, db *pgtest.DB, query string, args ...any) T {
	t.Helper()
	conn := db.Connect(t)
	defer func() { _ = conn.Close(context.Background()) }()
	return fixture.One[T](t, conn, query, args...)
}

// work is a session of the executor's login with one shard of a policy in hand.
type work struct {
	*Session
	a *Assignment
}

// open makes a table sessions of due rows and a policy for it, and takes the shard of the policy's first run.
func open(t testing.TB, db *pgtest.DB, due int) *work {
	t.Helper()
	ctx := t.Context()
	db.Exec(t, "create table sessions (id bigint primary key, at timestamptz)", "create index on sessions (at, id)",
		fmt.Sprintf("insert into sessions select g, now() - interval '40 days' - g * interval '1 second' from generate_series(1, %d) g", due))
	roles := schemas.RolesFor(schemas.DefaultRolePrefix)
	file := fixture.Policies(fixture.Policy("p", "public.sessions", "at", "30 days", "state: armed"))
	if err := catalog.Apply(ctx, db.Connect(t), catalog.Roles(), file, (*change.Change).Arm); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		db.Exec(t, "select lapse.advance_arming(policy_id) from lapse.gate where state = 'arming'")
	}
	config, err := pgx.ParseConfig(db.As(roles.Executor))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Connect(ctx, config, "holder", 200*time.Millisecond, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	list, err := record.LoadInForce(ctx, s.Control)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	run, err := run.Open(ctx, s.Control, &list[0], time.Now, run.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Acquire(ctx, run.ID)
	if err != nil || l == nil {
		t.Fatal(l, err)
	}
	f, err := FunctionsToDelete(&list[0], NewCatalog(roles))
	if err != nil {
		t.Fatal(err)
	}
	a, err := Assign(ctx, s, &list[0], l, f)
	if err != nil {
		t.Fatal(err)
	}
	return &work{s, a}
}
