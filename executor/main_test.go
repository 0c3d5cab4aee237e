package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"lapse/internal/catalog"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// appRole owns the application's tables.
const appRole = "app"

func TestMain(m *testing.M) {
	if os.Getenv(childURL) != "" {
		os.Exit(runChild())
	}
	goleak.VerifyTestMain(pgtest.Wrap(m, pgtest.Template(installLapse)))
}

// installLapse makes the roles, an application's owner and the catalog. Audit is not required: tests of it ask for it.
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
	_, err = conn.Exec(ctx, fmt.Sprintf("create role %s login; grant create, usage on schema public to %s", appRole, appRole))
	if err != nil {
		return err
	}
	_, err = catalog.Migrate(ctx, conn, catalog.Options{Roles: roles, Slot: "lapse", AuditRequired: false})
	return err
}
