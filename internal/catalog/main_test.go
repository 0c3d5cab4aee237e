package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/catalog"
	"lapse/internal/pgtest"
	"lapse/planner"
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
	p.must(catalog.MakeRoles(t.Context(), p.admin, p.roles))
	p.must(p.catalog(p.admin))
	return p
}

func (p *place) catalog(conn *pgx.Conn) error {
	_, err := catalog.Migrate(p.t.Context(), conn, catalog.Options{Roles: p.roles, Slot: "lapse_" + p.db.Name})
	return err
}

func (p *place) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
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
	var file strings.Builder
	file.WriteString("policies:\n")
	if len(tables) == 0 {
		file.WriteString("  []\n")
	}
	for i, table := range tables {
		fmt.Fprintf(&file, "  - { name: p%d-%s, table: %s, expire: { column: at, after: 30 days } }\n", i, strings.ReplaceAll(table, ".", "-"), table)
	}
	parsed, err := planner.ParsePolicyFile("policies.yaml", []byte(file.String()))
	p.must(err)
	changes, err := planner.Difference(p.t.Context(), conn, parsed, true)
	if err != nil {
		return err
	}
	for i := range changes {
		err := pgx.BeginFunc(p.t.Context(), conn, func(tx pgx.Tx) error {
			if r := changes[i].Resolved; r != nil {
				if err := catalog.EnsureDeleter(p.t.Context(), tx, tableOf(r), p.roles); err != nil {
					return err
				}
			}
			_, _, err := planner.Write(p.t.Context(), tx, &changes[i], p.roles, "a test")
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func tableOf(r *planner.Resolved) catalog.Table {
	t := catalog.Table{
		OID: r.TableOID, Name: r.Definition.Table, Owner: r.TableOwner, OwnerOID: r.Definition.TableOwner, Column: r.Definition.Column,
	}
	for _, l := range r.Leaves {
		t.Leaves = append(t.Leaves, catalog.Relation(l))
	}
	return t
}

// deleter is the name of the role that deletes for owner.
func (p *place) deleter(owner string) string {
	p.t.Helper()
	return p.roles.Deleter(one[uint32](p, `select $1::text::regrole::oid`, owner))
}

// one asks for a value as the superuser.
func one[T any](p *place, query string, args ...any) T {
	p.t.Helper()
	var value T
	if err := p.admin.QueryRow(p.t.Context(), query, args...).Scan(&value); err != nil {
		p.t.Fatalf("%v\nin: %s", err, query)
	}
	return value
}

func stateOf(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Code
	}
	return ""
}
