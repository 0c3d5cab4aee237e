package setup_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/internal/setup"
	"lapse/schemas"
)

// uninstallsAs uninstalls over sessions of a login.
func (p *site) uninstallsAs(login string) error {
	ctx := p.t.Context()
	connect := func(role string) *pgx.Conn {
		config, err := pgx.ParseConfig(p.db.As(login))
		p.must(err)
		schemas.PinSession(config.RuntimeParams, schemas.SessionSettings())
		if role != "" {
			schemas.PinSession(config.RuntimeParams, map[string]string{"role": role})
		}
		conn, err := pgx.ConnectConfig(ctx, config)
		p.must(err)
		return conn
	}
	owner, auditor := connect(p.roles.Owner), connect("")
	defer func() {
		p.must(errors.Join(owner.Close(context.WithoutCancel(ctx)), auditor.Close(context.WithoutCancel(ctx))))
	}()
	_, err := setup.Uninstaller{
		Session: setup.Session{Conn: owner, Roles: p.roles, Log: quiet}, Auditor: auditor, Reason: "a test", Login: p.connectLogin,
	}.Uninstall(ctx)
	return err
}

// What would stop it half-way is found before anything is dropped.
func TestUninstallChangesNothingForALoginThatMayNotDropTheRoles(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := newInstalled(t, db)
		table := p.table("app")
		db.Exec(t, `create table public.super (id int primary key, at timestamptz)`)
		p.applies(file(t, "", table, "public.super"))
		login := db.NewRole(t, "one", "replication")
		db.Exec(t, `grant `+p.roles.Owner+`, `+p.roles.Executor+`, `+p.roles.Auditor+` to `+login)
		before := p.state()
		deleters := ask[[]string](p, `select array_agg(quote_ident(role) order by role) from lapse.deleter`)
		supers := schemas.Identifier(p.roles.Deleter(10))
		refused := func(what string, want int) {
			t.Helper()
			var stay *setup.RolesStayError
			err := p.uninstallsAs(login)
			if !errors.As(err, &stay) || stay.Login != login || len(stay.Roles) != want || !slices.Contains(stay.Roles, supers) {
				t.Fatalf("%s: got %v, want %d roles that stay", what, err, want)
			}
			same(t, what, p.state(), before)
		}
		refused("without a right", 2)
		for _, role := range deleters {
			db.Exec(t, `grant `+role+` to `+login+` with admin option`)
		}
		before = p.state()
		refused("without createrole", 2)
		db.Exec(t, `alter role `+login+` createrole; grant `+db.Name+`_app to `+login)
		before = p.state()
		refused("with a right that a superuser granted on his table", 1)
		db.Exec(t, `grant usage on schema public to `+login+`; revoke all on table public.super from `+supers+`; revoke all on schema public from `+supers)
		p.must(p.uninstallsAs(login))
		p.isGone()
	})
}
