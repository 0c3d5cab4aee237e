package database

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/planner/expiry"
	"lapse/schemas"
)

// Draft checks policies that are not applied, in a database that may have no catalog. Copies of the catalog's functions in the session's temporary
// schema do the work. Each session has one transaction, which is rolled back. The checks of several policies can share one (Together), since they
// run no foreign code; the counts of one owner's tables share another. Nothing is written, and only readers' locks are taken.
//
// The text of a policy's survey function counts what the policy would delete. Code of the table's owner that was planted after the check for it
// (lapse.intruders) would run in that count. So the count runs as the table's owner, in a SECURITY DEFINER function, in which no code can
// switch to another role; in a read-only transaction or savepoint; and the function is called once. The savepoint's rollback undoes what the code
// did to the session's settings, and no statement is prepared there that the code could replace. Afterwards the session counts only for
// the same owner. If the session may not give the function to the owner, the code runs with the rights of the session's login. A table that a
// superuser owns is counted by a temporary role that may read everything and do nothing else: the owner's code may be trusted, that of the
// schema's owner may not. Both kinds have sessions of their own.
type Draft struct {
	// Connect opens a session with the caller's rights, and with SessionSettings.
	Connect func(ctx context.Context) (*pgx.Conn, error)
	Roles   schemas.Roles

	looks, counts copies
	sharing       bool
	reader        shared // the session of all reads
	counter       shared // the session of counts for one owner
	owner         uint32 // this one
}

// shared is a session that several checks share. tx is nil while none is open.
type shared struct {
	tx    *DraftTx
	since time.Time
}

func (s *shared) close() {
	if s.tx != nil {
		Close(s.tx.Conn())
		s.tx = nil
	}
}

// copies are the copies of the catalog's functions: the same for each session.
type copies struct {
	once   sync.Once // they are made from all migrations
	script string
	names  []string // of the functions
	err    error
}

// RefusedError says why a policy cannot be counted.
type RefusedError struct{ Text string }

func (e *RefusedError) Error() string { return e.Text }

// drafted are the catalog's functions that a draft copies, in addition to those that they call; counting are those for a session that only
// counts.
var (
	drafted  = []string{"reach", "leaves", "intruders", "code", "pin", "cascade_statement", "part_of"}
	counting = []string{"intruders", "pin", "cascade_statement"}
)

// draftSQL makes the functions of a draft that the catalog does not have.
//
//go:embed draft.sql
var draftSQL string

// sharedAtMost is how long reads, or counts, share a session. Its transaction has written (it made functions), and while it is open VACUUM can remove
// nothing that is deleted, in the whole database.
const sharedAtMost = 10 * time.Second

// DraftTx is a transaction in which calls of the catalog's functions call the draft's copies.
type DraftTx struct {
	pgx.Tx
	names []string
	alone bool // a function ran with other rights than the table owner's: no other count may use the session
}

// Begin opens a savepoint.
func (t *DraftTx) Begin(ctx context.Context) (pgx.Tx, error) {
	inner, err := t.Tx.Begin(ctx)
	return &DraftTx{Tx: inner, names: t.names}, err
}

// Query is Query, of the draft's functions.
func (t *DraftTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.Tx.Query(ctx, schemas.InDraft(sql, t.names), args...)
}

// QueryRow is QueryRow, of the draft's functions.
func (t *DraftTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.Tx.QueryRow(ctx, schemas.InDraft(sql, t.names), args...)
}

// Begin runs work in a session of its own, in a transaction with the settings of Pinned that is rolled back. The session is closed before Begin
// returns.
func (d *Draft) Begin(ctx context.Context, work func(tx *DraftTx) error) error {
	return d.begin(ctx, &d.looks, drafted, work)
}

// Count is Begin for a session that makes a counting function and calls it.
func (d *Draft) Count(ctx context.Context, work func(tx *DraftTx) error) error {
	return d.begin(ctx, &d.counts, counting, work)
}

func (d *Draft) begin(ctx context.Context, made *copies, wanted []string, work func(tx *DraftTx) error) error {
	tx, err := d.open(ctx, made, wanted)
	if err != nil {
		return err
	}
	defer Close(tx.Conn())
	return work(tx)
}

// Together lets checks, and counts, share sessions one after the other until end is called.
func (d *Draft) Together() (end func()) {
	d.sharing = true
	return func() {
		d.sharing = false
		d.reader.close()
		d.counter.close()
	}
}

// Read runs work, which must only read the system catalog, as Begin does; during Together in the session of all reads.
func (d *Draft) Read(ctx context.Context, work func(q Querier) error) error {
	if !d.sharing {
		return d.Begin(ctx, func(tx *DraftTx) error { return work(tx) })
	}
	tx, err := d.share(ctx, &d.reader, &d.looks, drafted)
	if err != nil {
		return err
	}
	err = work(tx)
	if tx.Conn().PgConn().TxStatus() != 'T' { // an error has aborted it
		d.reader.close()
	}
	return err
}

// CountFor is Count; during Together in a savepoint of a session that counted only tables of the same owner. work must prepare no statement
// there: code that ran in an earlier count can have replaced it.
func (d *Draft) CountFor(ctx context.Context, o *Owner, work func(tx *DraftTx) error) error {
	if !d.sharing || o.Superuser {
		return d.Count(ctx, work)
	}
	if d.owner != o.OID {
		d.counter.close()
	}
	tx, err := d.share(ctx, &d.counter, &d.counts, counting)
	if err != nil {
		return err
	}
	d.owner = o.OID
	alone := false
	err = expiry.Attempt(ctx, tx, func(inner pgx.Tx) error {
		tx := &DraftTx{Tx: inner, names: tx.names}
		err := work(tx)
		alone = tx.alone
		return err
	})
	if alone {
		d.counter.close()
	}
	return err
}

// share returns the shared session, or replaces it by another.
func (d *Draft) share(ctx context.Context, s *shared, made *copies, wanted []string) (*DraftTx, error) {
	if s.tx != nil && (s.tx.Conn().IsClosed() || time.Since(s.since) > sharedAtMost) {
		s.close()
	}
	if s.tx == nil {
		tx, err := d.open(ctx, made, wanted)
		if err != nil {
			return nil, err
		}
		s.tx, s.since = tx, time.Now()
	}
	return s.tx, nil
}

// open opens a session, and makes the copies in it.
func (d *Draft) open(ctx context.Context, made *copies, wanted []string) (*DraftTx, error) {
	made.once.Do(func() {
		made.script, made.names, made.err = schemas.DraftSQL(d.Roles, wanted...)
		made.script += draftSQL
		if made == &d.looks {
			made.script += pinSQL
		}
	})
	if made.err != nil {
		return nil, made.err
	}
	conn, err := d.Connect(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		Close(conn)
		return nil, fmt.Errorf("begin to look: %w", err)
	}
	if _, err := tx.Exec(ctx, made.script, pgx.QueryExecModeSimpleProtocol); err != nil {
		Close(conn)
		return nil, mayNotDraft(conn, err)
	}
	return &DraftTx{Tx: tx, names: made.names}, nil
}

// mayNotDraft says why temporary functions cannot be made.
func mayNotDraft(conn *pgx.Conn, err error) error {
	var server *pgconn.PgError
	switch schemas.StateOf(err) {
	case schemas.SQLStateReadOnlyTransaction:
		return errors.New("this server is a standby, on which no temporary function can be made: ask the primary")
	case schemas.SQLStateInsufficientPrivilege:
		errors.As(err, &server)
		return fmt.Errorf("make temporary functions, to read the tables with: %s: grant temporary on database %s to %s",
			server.Message, schemas.Identifier(conn.Config().Database), schemas.Identifier(conn.Config().User))
	}
	return fmt.Errorf("make temporary functions, to read the tables with: %w", err)
}
