package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"lapse/internal/pgtest"
)

// A statement_timeout that ends each statement is named, with the statement that takes it away, wherever it was set.
func TestATimeoutThatEndsEachStatementIsNamed(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		m := newMachine(t, fmt.Sprintf("database: %q\nkeys: keys\naudit: off\n", db.URL))
		m.lapse("init", "--keys", "keys")
		var name, login string
		conn := db.Connect(t)
		if err := conn.QueryRow(t.Context(), "select quote_ident(current_database()), quote_ident(session_user)").Scan(&name, &login); err != nil {
			t.Fatal(err)
		}
		for _, alter := range []string{"alter database " + name, "alter role " + login + " in database " + name} {
			if _, err := conn.Exec(t.Context(), alter+" set statement_timeout = 1"); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), m.bin, "status") // the executor's sessions have their own
			cmd.Dir, cmd.Env = m.dir, m.env
			said, err := cmd.CombinedOutput()
			if err != nil && (!strings.Contains(string(said), "statement_timeout is set to 1,") || !strings.Contains(string(said), alter+" reset statement_timeout")) {
				t.Errorf("after %s, lapse status says:\n%s", alter, said) // without an error the machine is fast
			}
			if _, err := conn.Exec(t.Context(), alter+" reset statement_timeout"); err != nil {
				t.Fatal(err)
			}
		}
	})
}
