package executor

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"lapse/internal/fixture/catalog"
	"lapse/internal/pgtest"
	"lapse/internal/setup/site"
)

// appRole owns the application's tables.
const appRole = "app"

func TestMain(m *testing.M) {
	if os.Getenv(childURL) != "" {
		os.Exit(runChild())
	}
	// Audit is not required: tests of it ask for it.
	goleak.VerifyTestMain(pgtest.Wrap(m, catalog.Template(site.Options{AuditRequired: false}, makeAppRole)))
}

// makeAppRole makes an application's owner of tables.
func makeAppRole(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, fmt.Sprintf("create role %s login; grant create, usage on schema public to %s", appRole, appRole))
	return err
}
