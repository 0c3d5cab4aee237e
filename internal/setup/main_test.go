package setup_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/fixture"
	"lapse/internal/fixture/catalog"
	"lapse/internal/pgtest"
	"lapse/internal/setup/access"
	"lapse/internal/setup/site"
	"lapse/schemas"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// place is a database with roles of its own, since roles belong to the cluster.
type place struct {
	t     *testing.T
	db    *pgtest.DB
	roles schemas.Roles
	admin *pgx.Conn
}

func newPlace(t *testing.T, db *pgtest.DB) *place {
	t.Helper()
	return &place{t: t, db: db, roles: schemas.RolesFor(db.Name + "_"), admin: db.Connect(t)}
}

// installed is a place with roles and catalog, made by a superuser.
func installed(t *testing.T, db *pgtest.DB) *place {
	t.Helper()
	p := newPlace(t, db)
	p.must(access.MakeRoles(t.Context(), p.admin, p.roles))
	p.must(p.catalog(p.admin))
	return p
}

func (p *place) catalog(conn *pgx.Conn) error {
	_, err := site.Catalog(p.t.Context(), conn, site.Options{Roles: p.roles, Slot: "lapse_" + p.db.Name})
	return err
}

func (p *place) must(err error) {
	p.t.Helper()
	fixture.Must(p.t, err)
}

// table makes a table of a role of its own, in a schema of its own, with a policy's column "at". It returns the owner and
// the table.
func (p *place) table(owner string) (role, table string) {
	p.t.Helper()
	role = p.db.NewRole(p.t, owner)
	p.db.Exec(p.t, fmt.Sprintf(`create schema %[1]s authorization %[1]s; set role %[1]s;
		create table %[1]s.t (id int primary key, at timestamptz, note text);
		create index on %[1]s.t (at, id);
		insert into %[1]s.t select n, now() - n * interval '1 day' from generate_series(1, 60) n`, role))
	return role, role + ".t"
}

// login makes a login, connects as it, and plays the catalog's owner, as commands do.
func (p *place) login(name string, attributes ...string) (role string, conn *pgx.Conn) {
	p.t.Helper()
	role = p.db.NewRole(p.t, name, attributes...)
	p.db.Exec(p.t, fmt.Sprintf(`grant %s, %s, %s to %s`, p.roles.Owner, p.roles.Executor, p.roles.Auditor, role))
	return role, p.connect(role)
}

func (p *place) connect(login string) *pgx.Conn {
	p.t.Helper()
	config, err := pgx.ParseConfig(p.db.As(login))
	p.must(err)
	config.RuntimeParams["role"] = p.roles.Owner
	config.RuntimeParams["search_path"] = "pg_catalog, pg_temp"
	conn, err := pgx.ConnectConfig(p.t.Context(), config)
	p.must(err)
	p.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// apply makes the policies equal the tables: one policy each.
func (p *place) apply(conn *pgx.Conn, tables ...string) error {
	p.t.Helper()
	var entries []string
	for i, table := range tables {
		name := fmt.Sprintf("p%d-%s", i, strings.ReplaceAll(table, ".", "-"))
		entries = append(entries, fixture.Policy(name, table, "at", "30 days"))
	}
	return catalog.Apply(p.t.Context(), conn, p.roles, fixture.Policies(entries...))
}

// deleter is the name of the role that deletes for owner.
func (p *place) deleter(owner string) string {
	p.t.Helper()
	return p.roles.Deleter(one[uint32](p, `select $1::text::regrole::oid`, owner))
}

// one asks for a value as the superuser.
func one[T any](p *place, query string, args ...any) T {
	p.t.Helper()
	return fixture.One[T](p.t, p.admin, query, args...)
}

var stateOf = schemas.StateOf
