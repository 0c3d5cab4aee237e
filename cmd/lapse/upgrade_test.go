package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/internal/setup"
	"lapse/schemas"
)

// installVersion4 makes what the lapse of catalog version 4 left of an installation without an audit.
func installVersion4(t *testing.T, db *pgtest.DB) {
	t.Helper()
	roles := schemas.RolesFor(schemas.DefaultRolePrefix)
	conn := db.Connect(t)
	if err := setup.MakeRoles(t.Context(), conn, roles); err != nil {
		t.Fatal(err)
	}
	steps, err := schemas.Migrations(0, roles)
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		script := "set local role " + schemas.Identifier(roles.Owner) + ";" + steps[0].SQL + steps[1].SQL +
			"insert into lapse.installation (schema_version, slot, audit_required) values (4, 'lapse_' || current_database(), false)"
		_, err := tx.Exec(t.Context(), script)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestInitSaysWhatBecameOfTheCatalog(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		installVersion4(t, db)
		off := filepath.Join(t.TempDir(), "off.yaml")
		if err := os.WriteFile(off, []byte("audit: off\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		d := newDesk(t, pgtest.New(t, db.Major), db.URL) // whose init makes the keys
		d.env["LAPSE_CONFIG"], d.env["LAPSE_SUPERUSER"] = off, "allow"
		if code, _, log := d.lapse("policy", "list"); code != exitFailed || !strings.Contains(log, "the catalog has version 4, this program needs 6: run lapse init") {
			t.Errorf("before: exit code %d, %s", code, log)
		}
		for _, want := range []catalogReport{{"upgraded", 4, 6}, {"nothing", 6, 6}} {
			code, out, log := d.lapse("init", "--json")
			var got struct {
				Catalog catalogReport `json:"catalog"`
				Done    []setup.Made  `json:"done"`
			}
			if err := resultIn(out, &got); err != nil || code != exitDone || got.Catalog != want {
				t.Fatalf("exit code %d, %v, catalog %+v, want %+v\n%s%s", code, err, got.Catalog, want, out, log)
			}
			said := false
			for _, made := range got.Done {
				said = said || made == setup.Made{What: "catalog", Detail: "upgraded from version 4 to 6"}
			}
			if said != (want.Did == "upgraded") {
				t.Errorf("it did %+v", got.Done)
			}
		}
		if code, _, log := d.lapse("policy", "list"); code != exitDone {
			t.Errorf("afterwards: exit code %d, %s", code, log)
		}
	})
}
