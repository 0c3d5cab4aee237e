package planner

import (
	"errors"
	"flag"
	"strconv"
	"testing"

	"lapse/internal/fixture/catalog"
	"lapse/internal/pgtest"
	"lapse/internal/setup/access"
	"lapse/internal/setup/site"
)

// worlds is how often a property is tried here, each time on servers: more with -rapid.checks.
const worlds = 40

func TestMain(m *testing.M) {
	flag.Parse()
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set(strconv.Itoa(worlds))
	}
	pgtest.Main(m, catalog.Template(site.Options{}), pgtest.Settings(map[string]string{"max_connections": "200"}))
}

// grantSQL is the statement that a missing grant asks for, "" for other errors.
func grantSQL(err error) string {
	var missing *access.GrantError
	if !errors.As(err, &missing) {
		return ""
	}
	return missing.SQL
}
