package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// Publication is one of Lapse's publications.
type Publication string

// The publications. They are made once, before the slot, empty, never for all tables, and never via a partition's root, which would hide the
// partition. They are never dropped or made again, because a change is decoded with the catalog of its own time.
const (
	// Deletes has the policies' tables, partitioned or not, and the tables in which their foreign keys would delete.
	Deletes Publication = "lapse_deletes"
	// Changes has the tables whose policy must see inserts and updates too. It exists before the first of them, because a publication must
	// be older than the slot. Inserts are published only if they are needed: PostgreSQL cannot send a row whose text has more than 1 GB,
	// and the slot does not get past it.
	Changes Publication = "lapse_changes"
	// Ledger has the tables of evidence. Rows are only added to them.
	Ledger Publication = "lapse_ledger"
	// Catalog has the tables of what is in force: policies, holds, the switch that stops everything. All changes of their rows are published, so that
	// the log also shows changes made by hand.
	Catalog Publication = "lapse_catalog"
)

// Publications are the names of all of them, for StreamConfig.
func Publications() []string {
	return []string{string(Deletes), string(Changes), string(Ledger), string(Catalog)}
}

// published says which operations a publication publishes.
type published struct{ insert, update, delete, truncate bool }

var publishes = map[Publication]published{
	Deletes: {delete: true, truncate: true},
	Changes: {insert: true, update: true, delete: true, truncate: true},
	Ledger:  {insert: true},
	Catalog: {insert: true, update: true, delete: true, truncate: true},
}

// list is the value of the option publish.
func (p published) list() string {
	var names []string
	for _, option := range []struct {
		name string
		on   bool
	}{{"insert", p.insert}, {"update", p.update}, {"delete", p.delete}, {"truncate", p.truncate}} {
		if option.on {
			names = append(names, option.name)
		}
	}
	return strings.Join(names, ", ")
}

// PublicationError is everything that can be wrong with a publication. errors.Is finds the reason.
type PublicationError struct {
	Publication string // empty if the server did not say which
	Reason      error
	Detail      string
	Fix         string
	cause       error
}

func (e *PublicationError) Error() string {
	text := e.Reason.Error()
	if e.Publication != "" {
		text = fmt.Sprintf("publication %q: %v", e.Publication, e.Reason)
	}
	if e.Detail != "" {
		text += " (" + e.Detail + ")"
	} else if e.cause != nil {
		text += " (" + e.cause.Error() + ")"
	}
	if e.Fix != "" {
		text += "; " + e.Fix
	}
	return text
}

func (e *PublicationError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.cause}
}

// EnsurePublications makes missing publications, with no table in them, and checks the others. It changes none of those: a difference is a
// *PublicationError with errPublicationDiffers. It needs CREATE on the database. It can be repeated, and run twice at once outside a transaction.
func EnsurePublications(ctx context.Context, q Querier) error {
	for _, name := range []Publication{Deletes, Changes, Ledger, Catalog} {
		there, err := checkPublication(ctx, q, name)
		if err != nil {
			return err
		}
		if there {
			continue
		}
		create := fmt.Sprintf("create publication %s with (publish = %s, publish_via_partition_root = false)",
			schemas.Identifier(string(name)), schemas.Literal(publishes[name].list()))
		_, err = q.Exec(ctx, create)
		switch schemas.StateOf(err) {
		case schemas.SQLStateDuplicateObject, schemas.SQLStateUniqueViolation: // somebody else was faster
			_, err = checkPublication(ctx, q, name)
		}
		if err != nil {
			return fmt.Errorf("create publication %q: %w", name, err)
		}
	}
	return nil
}

func checkPublication(ctx context.Context, q Querier, name Publication) (there bool, err error) {
	const query = `
select p.puballtables, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, p.pubviaroot
  from pg_catalog.pg_publication p
 where p.pubname = $1`
	var all, viaRoot bool
	var is published
	row := q.QueryRow(ctx, query, string(name))
	switch err := row.Scan(&all, &is.insert, &is.update, &is.delete, &is.truncate, &viaRoot); {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read publication %q: %w", name, err)
	}
	want := publishes[name]
	differs := func(detail, fix string) error {
		return &PublicationError{Publication: string(name), Reason: errPublicationDiffers, Detail: detail, Fix: fix}
	}
	switch {
	case all:
		return true, differs("it is for all tables",
			"another program made it: rename that one; Lapse's cannot be changed into another kind")
	case is != want:
		return true, differs(fmt.Sprintf("it publishes %q, want %q", is.list(), want.list()),
			fmt.Sprintf("run: alter publication %s set (publish = %s)", name, schemas.Literal(want.list())))
	case viaRoot:
		return true, differs("it publishes partitions as their root",
			fmt.Sprintf("run: alter publication %s set (publish_via_partition_root = false)", name))
	}
	schema, err := schemaIn(ctx, q, name)
	switch {
	case err != nil:
		return true, err
	case schema != "":
		return true, differs("it has all tables of schema "+schema,
			fmt.Sprintf("run: alter publication %s drop tables in schema %s", name, schema))
	default:
		return true, nil
	}
}

// schemaIn returns a schema that somebody added as a whole to a publication, quoted, or "".
func schemaIn(ctx context.Context, q Querier, name Publication) (string, error) {
	version, err := serverVersion(ctx, q)
	if err != nil || version < 150000 {
		return "", err
	}
	const query = `
select coalesce(min(quote_ident(n.nspname)), '')
  from pg_catalog.pg_publication_namespace m
  join pg_catalog.pg_publication p on p.oid = m.pnpubid
  join pg_catalog.pg_namespace n on n.oid = m.pnnspid
 where p.pubname = $1`
	var schema string
	if err := q.QueryRow(ctx, query, string(name)).Scan(&schema); err != nil {
		return "", fmt.Errorf("read the schemas of publication %q: %w", name, err)
	}
	return schema, nil
}

// requirePublications returns an error that wraps errPublicationMissing unless all exist.
func requirePublications(ctx context.Context, q Querier, names []string) error {
	rows, err := q.Query(ctx, `select p.pubname::text from pg_catalog.pg_publication p`)
	if err != nil {
		return fmt.Errorf("read publications: %w", err)
	}
	there, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("read publications: %w", err)
	}
	for _, name := range names {
		if !slices.Contains(there, name) {
			return &PublicationError{
				Publication: name, Reason: errPublicationMissing,
				Fix: "make the publications before the slot (lapse init does)",
			}
		}
	}
	return nil
}
