package setup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/internal/setup/access"
	"lapse/internal/setup/install"
	"lapse/internal/setup/site"
	"lapse/schemas"
)

// onRecord is lapse.migration, a line for each version.
const onRecord = `select coalesce(string_agg(format('%s %s %s', m.version, left(m.checksum, 8), m.program), '; ' order by m.version), '')
	from lapse.migration m`

// migrate is what a lapse of version program, with these steps, does to the catalog.
func (p *place) migrate(program string, steps []schemas.Migration) (found int, err error) {
	return site.Migrate(p.t.Context(), p.admin, site.Options{Roles: p.roles, Slot: "lapse_" + p.db.Name, Program: program}, steps)
}

// withNext are the steps of this program, and of the next version, which nobody has written yet.
func withNext(t *testing.T, roles schemas.Roles) []schemas.Migration {
	t.Helper()
	steps, err := schemas.Migrations(roles)
	if err != nil {
		t.Fatal(err)
	}
	return append(steps, schemas.Migration{
		Version: len(steps) + 1, SQL: "create table lapse.next (n int);", Checksum: strings.Repeat("ab", 32),
	})
}

func TestEachVersionOfTheCatalogIsOnRecord(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := newPlace(t, db)
		p.must(access.MakeRoles(t.Context(), p.admin, p.roles))
		next := withNext(t, p.roles)
		ours := next[:len(next)-1]
		var lines []string
		for _, step := range next {
			lines = append(lines, fmt.Sprintf("%d %.8s v%d", step.Version, step.Checksum, step.Version))
		}
		for _, c := range []struct {
			steps []schemas.Migration
			found int
		}{{ours, 0}, {ours, len(ours)}, {next, len(ours)}, {next, len(next)}} {
			if found, err := p.migrate(fmt.Sprintf("v%d", len(c.steps)), c.steps); found != c.found || err != nil {
				t.Fatalf("with %d steps it found version %d, %v; want %d", len(c.steps), found, err, c.found)
			}
			if got, want := one[string](p, onRecord), strings.Join(lines[:len(c.steps)], "; "); got != want {
				t.Errorf("on record is\n%s\nwant\n%s", got, want)
			}
		}
		if _, err := p.admin.Exec(t.Context(), `delete from lapse.migration`); stateOf(err) != schemas.SQLStateInsufficientPrivilege {
			t.Errorf("what is on record can be deleted: %v", err)
		}
		var refused *site.CatalogError
		if _, err := p.migrate("v1", ours); !errors.As(err, &refused) || !strings.Contains(err.Error(), "this program knows 1: use a newer lapse") {
			t.Errorf("a program that does not know the version: %v", err)
		}
		if !one[bool](p, `select to_regclass('lapse.next') is not null`) {
			t.Error("the refusal took something away")
		}
	})
}

func TestACatalogThatThisProgramIsNotForIsRefusedUntouched(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		steps, err := schemas.Migrations(p.roles)
		p.must(err)
		before := one[string](p, onRecord)
		const untie, tie = `alter table lapse.migration disable trigger append_only; `, `; alter table lapse.migration enable trigger append_only`
		install := `insert into lapse.migration (version, checksum, program) values `
		for _, c := range []struct{ change, says, back string }{
			{
				`update lapse.migration set checksum = repeat('0', 64) where version = 1`,
				"version 1 of the catalog was made from other files than this program has", `update lapse.migration set checksum = '` + steps[0].Checksum + `' where version = 1`,
			},
			{`delete from lapse.migration where version = 1`, "version 1 is not on record as applied", install + `(1, '` + steps[0].Checksum + `', '')`},
			{
				install + `(9, '` + steps[0].Checksum + `', 'v9')`,
				"version 9 of the catalog was made from other files than this program has (by lapse v9)", `delete from lapse.migration where version = 9`,
			},
			{`update lapse.installation set schema_version = 99`, "the catalog has version 99, this program knows 1: use a newer lapse", "update lapse.installation set schema_version = 1"},
			{
				`update lapse.installation set schema_version = 6`, "the catalog has version 6, which was never released and is not upgraded: remove it by lapse uninstall",
				"update lapse.installation set schema_version = 1",
			},
		} {
			db.Exec(t, untie+c.change+tie)
			changed := one[string](p, onRecord)
			_, err := p.migrate("v9", steps)
			var refused *site.CatalogError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("after %s: got %v, want it to say: %s", c.change, err, c.says)
			}
			if got := one[string](p, onRecord); got != changed {
				t.Errorf("after %s: the refusal left %s, there was %s", c.change, got, changed)
			}
			db.Exec(t, untie+c.back+tie)
			if _, err := p.migrate("v9", steps); err != nil {
				t.Fatalf("after %s: %v", c.back, err)
			}
		}
		if got := one[string](p, onRecord); got != before {
			t.Errorf("on record is %s, there was %s", got, before)
		}
	})
}

// Wherever an installation of the catalog ends, what is left is a whole version that is on record as such, and the next one
// goes on from there.
func TestAnInterruptedCatalogIsAWholeVersion(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	p := newSite(t, db)
	p.must(access.MakeRoles(t.Context(), p.admin, p.roles))
	steps := withNext(t, p.roles)
	seen := map[int]bool{}
	p.untilWhole(1, func(*statements) error {
		conn, err := p.connect(t.Context(), install.PlayLogin)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		_, err = site.Migrate(t.Context(), conn, site.Options{Roles: p.roles, Slot: "lapse_" + db.Name}, steps)
		left := 0
		if ask[bool](p, `select to_regclass('lapse.installation') is not null`) {
			left = ask[int](p, `select schema_version from lapse.installation`)
			if n := ask[int](p, `select count(*) from lapse.migration`); n != left {
				t.Errorf("version %d is there, and %d versions are on record", left, n)
			}
		}
		seen[left] = true
		if there := ask[bool](p, `select to_regclass('lapse.next') is not null`); there != (left == 2) {
			t.Errorf("version %d is on record, and what version 2 makes is there: %v", left, there)
		}
		return err
	})
	for version := range 3 {
		if !seen[version] {
			t.Errorf("no interruption left version %d: the test shows nothing of it", version)
		}
	}
}

// Any login may hold an advisory lock; the catalog's table only its owner locks, and then init says who does, and waits.
func TestACatalogIsKeptFromNobodyButByItsOwnerAndThenItSaysWho(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := newPlace(t, db)
		stranger := db.ConnectAs(t, db.NewRole(t, "stranger"))
		p.must(access.MakeRoles(t.Context(), p.admin, p.roles))
		_, err := stranger.Exec(t.Context(), `select pg_advisory_lock(1818325107)`) // what a former init waited for
		p.must(err)
		p.must(p.catalog(p.admin))
		p.must(err)
		if _, err := stranger.Exec(t.Context(), `begin; lock table lapse.installation in share mode`); schemas.StateOf(err) != schemas.SQLStateInsufficientPrivilege {
			t.Fatalf("a stranger's lock: %v", err)
		}
		holder := db.Connect(t)
		_, err = holder.Exec(t.Context(), `set application_name = 'a backup'; begin; lock table lapse.installation in share mode`)
		p.must(err)
		var said []string
		_, err = site.Catalog(t.Context(), p.admin, site.Options{Roles: p.roles, Slot: "lapse_" + db.Name, Waiting: func(who string) {
			said = append(said, who)
			_, err := holder.Exec(t.Context(), "commit")
			p.must(err)
		}})
		want := fmt.Sprintf("process %d, login postgres, application a backup", holder.PgConn().PID())
		if err != nil || len(said) != 1 || said[0] != want {
			t.Errorf("it said %q, %v; want %q", said, err, want)
		}
	})
}

func TestTwoThatInstallTheCatalogAtOnceTakeTurns(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		p := newPlace(t, db)
		p.must(access.MakeRoles(t.Context(), p.admin, p.roles))
		const both = 2
		ended := make(chan error, both)
		for range both {
			conn := db.Connect(t)
			go func() {
				_, err := site.Catalog(t.Context(), conn, site.Options{Roles: p.roles, Slot: "lapse_" + db.Name})
				ended <- err
			}()
		}
		for range both {
			p.must(<-ended)
		}
		if n := one[int](p, `select count(*) from lapse.migration`); n != schemas.Version {
			t.Errorf("%d versions are on record", n)
		}
	})
}
