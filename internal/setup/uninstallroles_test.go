package setup_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/pgtest"
	"lapse/internal/setup/site"
	"lapse/internal/setup/uninstall"
	"lapse/schemas"
)

// as opens a session of a login, as role unless that is "".
func (p *database) as(login, role string) *pgx.Conn {
	ctx := p.t.Context()
	config, err := pgx.ParseConfig(p.db.As(login))
	p.must(err)
	schemas.PinSession(config.RuntimeParams, schemas.SessionSettings())
	if role != "" {
		schemas.PinSession(config.RuntimeParams, map[string]string{"role": role})
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	p.must(err)
	p.t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
	return conn
}

// uninstallsAs uninstalls over sessions of a login, and returns what that lacks.
func (p *database) uninstallsAs(login string) (lacking []string, err error) {
	_, err = uninstall.Uninstaller{
		Session: site.Session{Conn: p.as(login, p.roles.Owner), Roles: p.roles, Log: quiet}, Auditor: p.as(login, ""), Slot: "lapse_" + p.db.Name,
		Reason: "a test", Login: func(context.Context) (*pgx.Conn, error) { return p.as(login, ""), nil },
	}.Uninstall(p.t.Context())
	var lacks *uninstall.LackingError
	if errors.As(err, &lacks) {
		return lacks.SQL, nil
	}
	return nil, err
}

// psqlAs runs the printed way back as psql does without ON_ERROR_STOP: what follows a failure is run too.
func (p *database) psqlAs(login string, statements []string) (lacking []string, err error) {
	var said *pgconn.PgError
	for _, sql := range statements {
		failed := run(p.t, p.as(login, ""), sql)
		if err == nil && errors.As(failed, &said) {
			if _, list, found := strings.Cut(said.Message, "or who may grant it: "); found {
				lacking = strings.Split(list, "; ")
			}
			err = failed
		}
	}
	if lacking != nil {
		err = nil
	}
	return lacking, err
}

// What would stop it half-way is found before anything is dropped, all of it at once, for every login that prints or runs it.
// With what it asks for it needs no superuser.
//
//lapse:long
func TestTheWayBackNeedsNoSuperuserAndChangesNothingBeforeItMayDoAll(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 15, 16, 18}, func(t *testing.T, db *pgtest.DB) {
		for _, printed := range []bool{true, false} {
			t.Run(fmt.Sprintf("printed %v", printed), func(t *testing.T) {
				t.Parallel()
				p := newInstalled(t, pgtest.New(t, db.Major))
				plain, parts := p.indexed("idx")
				p.db.Exec(t, `create table public.super (id int primary key, at timestamptz)`)
				_, err := p.makes(file(t, ", index: create", plain, parts, "public.super"))
				p.must(err)
				dba := p.db.NewRole(t, "dba")
				statements, err := uninstall.SQL(t.Context(), p.admin, p.roles, "lapse_"+p.db.Name, false)
				p.must(err)
				try := func() ([]string, error) { return p.uninstallsAs(dba) }
				if printed {
					try = func() ([]string, error) { return p.psqlAs(dba, statements) }
				} else {
					p.db.Exec(t, "grant "+p.roles.Owner+" to "+dba) // without it nobody connects; that says so
				}
				before := append(p.state(), ask[[]string](p, made)...)
				lacking, err := try()
				if err != nil || len(lacking) < 5 {
					t.Fatalf("got %q, %v", lacking, err)
				}
				same(t, "without a right", append(p.state(), ask[[]string](p, made)...), before)
				for _, sql := range lacking {
					if strings.Contains(sql, "postgres") || strings.Contains(sql, "superuser") {
						t.Errorf("it asks for a superuser's role: %s", sql)
					}
					p.db.Exec(t, sql)
				}
				if lacking, err = try(); err != nil || lacking != nil {
					t.Fatalf("with all that it asked for: %q, %v", lacking, err)
				}
				p.isGone()
				if left := ask[[]string](p, made); len(left) > 0 {
					t.Errorf("left is %q", left)
				}
			})
		}
	})
}

// A crash before the slot went leaves nothing that names it but the settings.
func TestASlotThatIsAllThatIsLeftGoesToo(t *testing.T) {
	t.Parallel()
	p := newInstalled(t, pgtest.New(t, pgtest.Newest(t)))
	table := p.table("app")
	p.applies(file(t, "", table))
	slot := "lapse_" + p.db.Name
	statements, err := uninstall.SQL(t.Context(), p.admin, p.roles, slot, false)
	p.must(err)
	for _, sql := range statements[:len(statements)-1] {
		p.must(run(t, p.admin, sql))
	}
	p.must(run(t, p.admin, statements[0])) // again
	again, err := uninstall.SQL(t.Context(), p.admin, p.roles, slot, false)
	if err != nil || !slices.Equal(again, statements[len(statements)-1:]) {
		t.Errorf("what is printed then: %q, %v", again, err)
	}
	_, err = p.uninstalls()
	p.must(err)
	p.isGone()
	if _, err := p.uninstalls(); !errors.Is(err, site.ErrNotInstalled) {
		t.Errorf("the third time: got %v", err)
	}
}

// Roles that somebody had before are no matter of the way back, and the login that runs it neither.
func TestTheWayBackNamesOnlyRolesThatLapseMade(t *testing.T) {
	t.Parallel()
	p := newSite(t, pgtest.New(t, pgtest.Newest(t)))
	dba := p.db.NewRole(t, "dba", "createrole")
	p.db.Exec(t, `create role `+p.roles.Auditor+` login`)
	_, err := p.installer().Install(t.Context())
	p.must(err)
	p.db.Exec(t, fmt.Sprintf("grant %s, %s to %s with admin option", p.roles.Owner, p.roles.Executor, dba))
	got, err := uninstall.DropRolesSQL(t.Context(), p.admin, p.roles)
	p.must(err)
	want := []string{}
	for _, name := range []string{p.roles.Executor, p.roles.Owner, p.roles.Login} {
		want = append(want, "drop owned by "+schemas.Identifier(name), "drop role "+schemas.Identifier(name))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, err = uninstall.DropRolesSQL(t.Context(), p.as(p.roles.Login, ""), p.roles); err != nil || !slices.Equal(got, want[:4]) {
		t.Errorf("as the login itself: got %q, %v", got, err)
	}
}
