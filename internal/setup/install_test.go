package setup_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/internal/setup/access"
	"lapse/internal/setup/install"
	"lapse/internal/setup/site"
	"lapse/schemas"
)

func TestInstallRepeatedMakesNothing(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		p := newSite(t, db)
		var steps []install.Step
		i := p.installer()
		i.Progress = func(s install.Step) { steps = append(steps, s) }
		r, err := i.Install(t.Context())
		p.must(err)
		var made []string
		for _, m := range r.Done {
			made = append(made, m.What)
		}
		if got := strings.Join(made, " "); got != "roles login grants catalog publications slot" || r.Login != p.roles.Login || r.Replaced {
			t.Errorf("it made %s, login %q, replaced %v", got, r.Login, r.Replaced)
		}
		if len(steps) != 11 || steps[0] != "inspect" || steps[10] != "retention" {
			t.Errorf("the steps were %v", steps)
		}
		before := p.state()
		r, err = p.installer().Install(t.Context())
		p.must(err)
		if len(r.Done) > 0 {
			t.Errorf("the second time it made %+v", r.Done)
		}
		same(t, "the second time", p.state(), before)
	})
}

//lapse:long
func TestAnInstallThatEndsBetweenTwoStepsIsTakenUp(t *testing.T) {
	t.Parallel()
	steps := []install.Step{
		"inspect", "roles", "keys", "catalog", "publications",
		"ledger", "tables", "record", "slot", "holds",
	}
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		want := newInstalled(t, db).state()
		for _, last := range steps {
			t.Run(string(last), func(t *testing.T) {
				p := newSite(t, pgtest.New(t, db.Major))
				ctx, end := context.WithCancel(t.Context())
				i := p.installer()
				i.Progress = func(s install.Step) {
					if s == last {
						end()
					}
				}
				if _, err := i.Install(ctx); !errors.Is(err, context.Canceled) {
					t.Fatalf("an install that was ended: got %v", err)
				}
				_, err := p.installer().Install(t.Context())
				p.must(err)
				same(t, "after "+string(last), p.state(), want)
			})
		}
	})
}

//lapse:long
func TestAnInstallThatLosesItsConnectionAtAnyStatementIsTakenUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	want := newInstalled(t, db).state()
	p := newSite(t, pgtest.New(t, db.Major))
	p.untilWhole(3, func(*statements) error {
		_, err := p.installer().Install(t.Context())
		return err
	})
	same(t, "in the end", p.state(), want)
}

// A slot that was on record and is gone is not made again silently, whatever was cut on the way to another.
//
//lapse:long
func TestANewSlotThatWasCutShortIsAskedForAgain(t *testing.T) {
	t.Parallel()
	p := newInstalled(t, pgtest.New(t, pgtest.Newest(t)))
	want := p.state()
	p.db.Exec(t, `select pg_drop_replication_slot('lapse_' || current_database())`)
	again := func(newSlot bool) error {
		if trace := p.trace; !newSlot {
			p.trace = nil
			defer func() { p.trace = trace }()
		}
		i := p.installer()
		i.NewSlot = newSlot
		_, err := i.Install(t.Context())
		return err
	}
	if err := again(false); err == nil || !strings.Contains(err.Error(), "lapse init --new-slot") {
		t.Errorf("without NewSlot: got %v", err)
	}
	p.untilWhole(5, func(*statements) error {
		err := again(true)
		if err != nil && !ask[bool](p, `select exists (select from lapse.installation i join pg_replication_slots s on s.slot_name = i.slot
				where s.confirmed_flush_lsn >= i.slot_start)`) {
			if err := again(false); err == nil || !strings.Contains(err.Error(), "lapse init --new-slot") {
				t.Errorf("half made, without NewSlot: got %v", err)
			}
		}
		return err
	})
	same(t, "in the end", p.state(), want)
}

func TestInstallRefusesBeforeItTouchesAnything(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := newSite(t, db)
		p.db.Exec(t, `create schema lapse`)
		before := p.state()
		_, err := p.installer().Install(t.Context())
		var other *site.SchemaError
		if !errors.As(err, &other) {
			t.Errorf("somebody else's schema: got %v", err)
		}
		same(t, "after the refusal", p.state(), before)
		p.db.Exec(t, `drop schema lapse`)

		i := p.installer()
		i.Logins = access.OneLogin(db.NewRole(t, "nobody"))
		_, err = i.Install(t.Context())
		var needs *install.SuperuserError
		if !errors.As(err, &needs) || !strings.Contains(needs.SQL, "create role") {
			t.Errorf("without a superuser: got %v", err)
		}
		_, err = p.installer().Install(t.Context())
		p.must(err)
		i = p.installer()
		i.Keys = func(*site.Installation) (map[string]string, string, error) {
			return map[string]string{"tag": "bad"}, "", nil
		}
		_, err = i.Install(t.Context())
		var keys *site.KeysError
		if !errors.As(err, &keys) || keys.Name != "tag" {
			t.Errorf("other keys: got %v", err)
		}
	})
}

// The roles of one database are there in all of its cluster: a login that may not make others is told that a second database has its own.
func TestASecondDatabaseIsToldToHaveRolesOfItsOwn(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := newInstalled(t, db)
		login := db.NewRole(t, "dba")
		second := pgtest.New(t, db.Major)
		for on, want := range map[*pgtest.DB]bool{db: false, second: true} {
			i := p.installer()
			i.Logins = access.OneLogin(login)
			i.Others = i.Logins
			i.Connect = func(ctx context.Context, _ install.Player) (*pgx.Conn, error) { return pgx.Connect(ctx, on.As(login)) }
			_, err := i.Install(t.Context())
			hint := "and the roles are those of database " + schemas.Identifier(db.Name) + ": a second database has roles, slot and topics of its own, such as roles: { prefix: other_ }"
			if err == nil || strings.Contains(err.Error(), hint) != want {
				t.Errorf("in %s: %v", on.Name, err)
			}
		}
	})
}
