package planner_test

import (
	"context"
	"errors"
	"flag"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/fixture/catalog"
	"lapse/internal/pgtest"
	"lapse/internal/setup/access"
	"lapse/internal/setup/apply"
	"lapse/internal/setup/site"
	"lapse/planner"
	"lapse/schemas"
)

// worlds is how often a property is tried here, each time on servers: more with -rapid.checks.
const worlds = 40

func TestMain(m *testing.M) {
	flag.Parse()
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set(strconv.Itoa(worlds))
	}
	planner.Setup.Install = func(ctx context.Context, conn *pgx.Conn, roles schemas.Roles) error {
		return catalog.Install(ctx, conn, site.Options{Roles: roles})
	}
	planner.Setup.EnsureDeleter = catalog.EnsureDeleter
	planner.Setup.Fit = apply.Fit
	planner.Setup.GrantSQL = func(err error) string {
		var missing *access.GrantError
		if !errors.As(err, &missing) {
			return ""
		}
		return missing.SQL
	}
	pgtest.Main(m, catalog.Template(site.Options{}), pgtest.Settings(map[string]string{"max_connections": "200"}))
}
