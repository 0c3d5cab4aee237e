package audit_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"lapse/internal/catalog"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/replication"
	"lapse/schemas"
)

func TestMain(m *testing.M) {
	if settings := os.Getenv(childSettings); settings != "" {
		os.Exit(runChild(settings))
	}
	manyAtOnce()
	goleak.VerifyTestMain(pgtest.Wrap(kafkatest.Wrap(m), pgtest.Template(installLapse)))
}

// manyAtOnce runs more tests at a time than there are cores: most of them wait for servers. -parallel says otherwise.
func manyAtOnce() {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		_ = f.Value.Set("5")
	}
}

// installLapse makes roles, catalog and publications, and the tables that the tests delete from.
func installLapse(ctx context.Context, superuserURL string) (err error) {
	conn, err := pgx.Connect(ctx, superuserURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	roles := schemas.RolesFor(schemas.DefaultRolePrefix)
	if err := catalog.MakeRoles(ctx, conn, roles); err != nil {
		return err
	}
	if _, err := catalog.Migrate(ctx, conn, catalog.Options{Roles: roles, Slot: "lapse", AuditRequired: true}); err != nil {
		return err
	}
	if err := replication.EnsurePublications(ctx, conn); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `
		create table sessions (id bigint primary key, note text);
		create table notes (session bigint not null references sessions on delete cascade, n int, primary key (session, n));
		create table scratch (id int primary key);
		create table elsewhere (id bigint primary key)`)
	if err != nil {
		return err
	}
	for _, table := range []string{"sessions", "notes", "scratch", "elsewhere"} {
		if err := publish(ctx, conn, replication.Join, table); err != nil {
			return err
		}
	}
	for _, table := range []string{"policy", "policy_state", "batch", "batch_result", "heartbeat"} {
		if err := publish(ctx, conn, replication.JoinLedger, "lapse."+table); err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, `delete from lapse.publication; select lapse.record_publications()`)
	return err
}

func publish(ctx context.Context, conn *pgx.Conn, join func(context.Context, pgx.Tx, uint32) error, table string) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var oid uint32
		if err := tx.QueryRow(ctx, `select $1::regclass::oid`, table).Scan(&oid); err != nil {
			return err
		}
		if err := join(ctx, tx, oid); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `select lapse.record_published(array[$1::oid])`, oid)
		return err
	})
}
