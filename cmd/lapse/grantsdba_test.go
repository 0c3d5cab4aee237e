package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// Before PostgreSQL 16 a DBA with CREATEROLE may do all of the script but one statement. The script is one transaction, so what it asks a
// superuser for does not build on what it made.
func TestADBAWhoMayNotGiveReplicationIsToldWhatASuperuserRuns(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14}, func(t *testing.T, db *pgtest.DB) {
		p := newPremises(t, db, kafkatest.Broker(t), fmt.Sprintf("LOGIN(%s_one)", db.Name))
		dba := db.NewRole(t, "dba")
		db.Exec(t, fmt.Sprintf(`alter role %[1]s createrole; alter database %[2]s owner to %[1]s`, dba, db.Name))
		script := p.grants("apply", "-f", "policies.yaml")
		conn, err := pgx.Connect(t.Context(), db.As(dba))
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.PgConn().Exec(t.Context(), script).ReadAll()
		var refused *pgconn.PgError
		if !errors.As(err, &refused) {
			t.Fatalf("the script ends with %v", err)
		}
		ask := regexp.MustCompile(`^have a superuser run: (create role "\w+" login replication) \(or, `).FindStringSubmatch(refused.Hint)
		if ask == nil || !strings.Contains(refused.Message, "replication") {
			t.Fatalf("%s: %q", refused.Message, refused.Hint)
		}
		db.Exec(t, ask[1])
		if _, err := conn.PgConn().Exec(t.Context(), "rollback; "+script).ReadAll(); err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.goOn()
	})
}
