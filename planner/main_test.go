package planner

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/catalog"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

func TestMain(m *testing.M) {
	pgtest.Main(m, pgtest.Template(installCatalog), pgtest.Settings(map[string]string{"max_connections": "200"}))
}

var testRoles = schemas.RolesFor(schemas.DefaultRolePrefix)

func installCatalog(ctx context.Context, superuserURL string) error {
	conn, err := pgx.Connect(ctx, superuserURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := catalog.MakeRoles(ctx, conn, testRoles); err != nil {
		return err
	}
	_, err = catalog.Migrate(ctx, conn, catalog.Options{Roles: testRoles, Slot: "lapse_test"})
	return err
}
