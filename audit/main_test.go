package audit_test

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"lapse/internal/fixture/catalog"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/internal/setup/site"
	"lapse/replication"
	"lapse/schemas"
)

func TestMain(m *testing.M) {
	if settings := os.Getenv(childSettings); settings != "" {
		os.Exit(runChild(settings))
	}
	goleak.VerifyTestMain(pgtest.Wrap(kafkatest.Wrap(m), catalog.Template(site.Options{AuditRequired: true}, makeTables), pgtest.AtOnce(5)))
}

// makeTables makes the publications, and the tables that the tests delete from.
func makeTables(ctx context.Context, conn *pgx.Conn) error {
	if err := replication.EnsurePublications(ctx, conn); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, `
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
	for _, table := range schemas.LedgerTables() {
		if err := publish(ctx, conn, replication.JoinLedger, "lapse."+table); err != nil {
			return err
		}
	}
	for _, table := range schemas.CatalogTables() {
		if err := publish(ctx, conn, replication.JoinCatalog, "lapse."+table); err != nil {
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
