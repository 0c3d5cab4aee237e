package setup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/internal/setup"
	"lapse/schemas"
)

// onRecord is lapse.migration, a line for each version.
const onRecord = `select coalesce(string_agg(format('%s %s %s %s', m.version, left(m.checksum, 8), m.assumed, m.program), '; ' order by m.version), '')
	from lapse.migration m`

// migrate is what a lapse of version program does to the catalog.
func (p *place) migrate(program string) (found int, err error) {
	return setup.Catalog(p.t.Context(), p.admin, setup.Options{Roles: p.roles, Slot: "lapse_" + p.db.Name, Program: program})
}

// older puts a catalog of that version into a database without one, as the lapse of that time did.
func (p *place) older(version int) {
	p.t.Helper()
	steps, err := schemas.Migrations(0, p.roles)
	p.must(err)
	p.must(pgx.BeginFunc(p.t.Context(), p.admin, func(tx pgx.Tx) error {
		if _, err := tx.Exec(p.t.Context(), "set local role "+schemas.Identifier(p.roles.Owner)); err != nil {
			return err
		}
		for _, step := range steps {
			if step.Version > version {
				break
			}
			if _, err := tx.Exec(p.t.Context(), step.SQL); err != nil {
				return err
			}
		}
		_, err := tx.Exec(p.t.Context(), `insert into lapse.installation (schema_version, slot, audit_required) values ($1, $2, false)`,
			version, "lapse_"+p.db.Name)
		return err
	}))
}

// recorded is what onRecord says of the newest catalog when these versions were assumed.
func recorded(t *testing.T, program string, assumed ...int) string {
	t.Helper()
	checksums, err := schemas.Checksums()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for version := 3; version <= schemas.Version; version++ {
		was := "f"
		for _, a := range assumed {
			if a == version {
				was = "t"
			}
		}
		lines = append(lines, strings.Join([]string{string(rune('0' + version)), checksums[version][:8], was, program}, " "))
	}
	return strings.Join(lines, "; ")
}

func TestEachVersionOfTheCatalogIsOnRecord(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		for _, older := range []struct {
			version int // 0: none
			want    string
		}{{0, recorded(t, "v9")}, {3, recorded(t, "v9", 3)}, {4, recorded(t, "v9", 3, 4)}} {
			p := newPlace(t, pgtest.New(t, db.Major))
			p.must(setup.MakeRoles(t.Context(), p.admin, p.roles))
			if older.version > 0 {
				p.older(older.version)
			}
			for _, want := range []int{older.version, schemas.Version} {
				if found, err := p.migrate("v9"); found != want || err != nil {
					t.Fatalf("found version %d, %v; want %d", found, err, want)
				}
				if got := one[string](p, onRecord); got != older.want {
					t.Errorf("from version %d, on record is\n%s\nwant\n%s", older.version, got, older.want)
				}
			}
			if _, err := p.admin.Exec(t.Context(), `delete from lapse.migration`); stateOf(err) != schemas.SQLStateInsufficientPrivilege {
				t.Errorf("what is on record can be deleted: %v", err)
			}
		}
	})
}

func TestACatalogThatThisProgramIsNotForIsRefusedUntouched(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		before := one[string](p, onRecord)
		const untie, tie = `alter table lapse.migration disable trigger append_only; `, `; alter table lapse.migration enable trigger append_only`
		for _, c := range []struct{ change, says, back string }{
			{
				`update lapse.migration set checksum = repeat('0', 64) where version = 4`,
				"version 4 of the catalog was made from other files than this program has", `update lapse.migration set checksum = '` + checksum(t, 4) + `' where version = 4`,
			},
			{
				`delete from lapse.migration where version = 3`, "version 3 is not on record as applied",
				`insert into lapse.migration (version, checksum, assumed, program) values (3, '` + checksum(t, 3) + `', false, '')`,
			},
			{
				`insert into lapse.migration (version, checksum, assumed, program) values (9, '` + checksum(t, 3) + `', false, 'v9')`,
				"version 9 of the catalog was made from other files than this program has (by lapse v9)", `delete from lapse.migration where version = 9`,
			},
			{`update lapse.installation set schema_version = 99`, fmt.Sprintf("the catalog has version 99, this program knows %d: use a newer lapse", schemas.Version), fmt.Sprintf("update lapse.installation set schema_version = %d", schemas.Version)},
		} {
			db.Exec(t, untie+c.change+tie)
			changed := one[string](p, onRecord)
			_, err := p.migrate("v9")
			var refused *setup.CatalogError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("after %s: got %v, want it to say: %s", c.change, err, c.says)
			}
			if got := one[string](p, onRecord); got != changed {
				t.Errorf("after %s: the refusal left %s, there was %s", c.change, got, changed)
			}
			db.Exec(t, untie+c.back+tie)
			if _, err := p.migrate("v9"); err != nil {
				t.Fatalf("after %s: %v", c.back, err)
			}
		}
		if got := one[string](p, onRecord); got != before {
			t.Errorf("on record is %s, there was %s", got, before)
		}
	})
}

func checksum(t *testing.T, version int) string {
	t.Helper()
	all, err := schemas.Checksums()
	if err != nil {
		t.Fatal(err)
	}
	return all[version]
}

// Wherever an installation of the catalog ends, what is left is a whole version that is on record as such, and the next one
// goes on from there.
func TestAnInterruptedCatalogIsAWholeVersion(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	p := newSite(t, db)
	p.must(setup.MakeRoles(t.Context(), p.admin, p.roles))
	seen := map[int]bool{}
	p.untilWhole(1, func(*statements) error {
		conn, err := p.connect(t.Context(), setup.PlayLogin)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		_, err = setup.Catalog(t.Context(), conn, setup.Options{Roles: p.roles, Slot: "lapse_" + db.Name})
		left := 0
		if ask[bool](p, `select to_regclass('lapse.installation') is not null`) {
			left = ask[int](p, `select schema_version from lapse.installation`)
		}
		seen[left] = true
		if there := ask[bool](p, `select to_regprocedure('lapse.lease_time()') is not null`); there != (left >= 4) {
			t.Errorf("version %d is on record, and what version 4 makes is there: %v", left, there)
		}
		if there := ask[bool](p, `select to_regclass('lapse.migration') is not null`); there != (left >= 5) {
			t.Errorf("version %d is on record, and what version 5 makes is there: %v", left, there)
		}
		return err
	})
	for _, version := range []int{0, 3, 4, 5} {
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
		p.must(setup.MakeRoles(t.Context(), p.admin, p.roles))
		_, err := stranger.Exec(t.Context(), `select pg_advisory_lock(1818325107)`) // what a former init waited for
		p.must(err)
		_, err = p.migrate("1.0")
		p.must(err)
		if _, err := stranger.Exec(t.Context(), `begin; lock table lapse.installation in share mode`); schemas.StateOf(err) != schemas.SQLStateInsufficientPrivilege {
			t.Fatalf("a stranger's lock: %v", err)
		}
		holder := db.Connect(t)
		_, err = holder.Exec(t.Context(), `set application_name = 'a backup'; begin; lock table lapse.installation in share mode`)
		p.must(err)
		var said []string
		_, err = setup.Catalog(t.Context(), p.admin, setup.Options{Roles: p.roles, Slot: "lapse_" + db.Name, Waiting: func(who string) {
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
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := newPlace(t, db)
		p.must(setup.MakeRoles(t.Context(), p.admin, p.roles))
		const both = 2
		ended := make(chan error, both)
		for range both {
			conn := db.Connect(t)
			go func() {
				_, err := setup.Catalog(t.Context(), conn, setup.Options{Roles: p.roles, Slot: "lapse_" + db.Name})
				ended <- err
			}()
		}
		for range both {
			p.must(<-ended)
		}
		if n := one[int](p, `select count(*) from lapse.migration`); n != schemas.Version-2 {
			t.Errorf("%d versions are on record", n)
		}
	})
}
