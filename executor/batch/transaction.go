package batch

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// bound sets the policy's settings for one transaction. The next batch starts from the session's again.
const bound = `set_config('application_name', $1, true) || set_config('lock_timeout', $2, true) || set_config('statement_timeout', $3, true)`

// clean resets a session and opens a transaction. The table's code may run inside a batch, and what it does to the session outlives the
// transaction: settings, prepared statements, temporary tables. Clean removes all of it, so the session has no prepared statement of
// its own either.
var clean = []string{"reset all", "deallocate all", "discard temp", "begin isolation level read committed"}

// ahead is a transaction that was begun in the same round trip as the previous batch's COMMIT. It has done nothing yet.
type ahead struct {
	of    *Assignment
	begun Start
}

// beginOrGoOn returns the start of a transaction that has done nothing: the one begun ahead, or a new one.
func (s *Session) beginOrGoOn(ctx context.Context, a *Assignment) (Start, error) {
	if next := s.Ahead; next != nil && next.of == a {
		s.Ahead = nil
		return next.begun, nil
	}
	s.Abandon(ctx)
	return s.begin(ctx, a)
}

// BegunAhead reports whether the next batch's transaction is already open.
func (s *Session) BegunAhead() bool { return s.Ahead != nil }

// Abandon rolls back a transaction that was begun ahead and is not needed.
func (s *Session) Abandon(ctx context.Context) {
	if s != nil && s.Ahead != nil {
		s.rollback(ctx)
	}
}

// begin asks what the batch relies on, cleans the session and opens a transaction.
func (s *Session) begin(ctx context.Context, a *Assignment) (Start, error) {
	known, err := s.ask(ctx, a.functions)
	if err != nil {
		return known, err
	}
	batch := &pgx.Batch{}
	queueBegin(batch, a)
	return readBegun(s.Batches.SendBatch(ctx, batch), known)
}

// ask reads in which history the database is, and whether the functions are still those that were last found equal. Control keeps the
// statement's plan, since nobody's code runs there. What changes afterwards is refused by the deletion function or found before COMMIT.
func (s *Session) ask(ctx context.Context, f *Program) (known Start, err error) {
	equal, found := f.equal(), ""
	err = s.Control.QueryRow(ctx, `select `+presentHistory+`, `+functionVersions, equal.at, f.regprocs).
		Scan(&known.history, &known.timeline, &found)
	if found == equal.text {
		known.functions = equal
	}
	if unnamed(err) { // compare says which
		err = s.Control.QueryRow(ctx, `select `+presentHistory).Scan(&known.history, &known.timeline)
	}
	if err != nil {
		return known, fmt.Errorf("ask about the functions: %w", err)
	}
	return known, nil
}

// queueBegin queues what cleans the session, opens a transaction and reads its identity.
func queueBegin(batch *pgx.Batch, a *Assignment) {
	for _, statement := range clean {
		batch.Queue(statement)
	}
	batch.Queue(`select pg_current_xact_id(), now(), pg_current_wal_insert_lsn(), `+bound,
		a.Limits.name, milliseconds(a.Limits.Lock), milliseconds(a.Limits.Statement))
}

// readBegun reads the answers to the statements of queueBegin, and closes them. It adds them to what is known.
func readBegun(answers pgx.BatchResults, known Start) (Start, error) {
	begun, err := known, error(nil)
	for range clean {
		if _, failed := answers.Exec(); err == nil {
			err = failed
		}
	}
	if err == nil {
		err = answers.QueryRow().Scan(&begun.xid, &begun.At, &begun.Insert, nil)
	}
	if closed := answers.Close(); err == nil {
		err = closed
	}
	return begun, err
}

// commit ends the transaction. The outcome is certain if PostgreSQL reports an error or answers ROLLBACK, or if the connection was closed
// before COMMIT was sent. Any other failure leaves it unknown. So does the message of a backend that is being terminated: it may come
// after the commit.
//
// commit does not use pgconn.SafeToRetry: if the connection is lost while pgx 5.12 awaits the answer to a simple query, pgx reports "conn
// closed" as safe to retry, although the server may have executed the COMMIT.
func (s *Session) commit(ctx context.Context) error {
	if s.Lost() {
		return fmt.Errorf("commit a batch: %w", pgconn.ErrConnClosed)
	}
	s.committing.Store(true)
	answer, err := s.Batches.Exec(ctx, "commit")
	return s.committed(answer, err)
}

// committed decides what an answer to COMMIT means: see commit.
func (s *Session) committed(answer pgconn.CommandTag, err error) error {
	if err == nil {
		s.committing.Store(false)
		if answer.String() != "COMMIT" {
			return &CountsError{"PostgreSQL answered " + answer.String() + " to the COMMIT of a batch without an error"}
		}
		return nil
	}
	var server *pgconn.PgError
	if errors.As(err, &server) && !s.Lost() {
		s.committing.Store(false)
		return fmt.Errorf("commit a batch: %w", err)
	}
	return &UnknownCommit{err}
}

// commitAndBegin commits, and begins the next batch's transaction in the same round trip. Both share one Sync: if the COMMIT fails,
// PostgreSQL ignores the rest, and the next transaction begins only after the COMMIT. commitAndBegin reads the answer to COMMIT
// first, and that answer alone decides the batch's outcome.
//
//	COMMIT refused, or no answer to it      as in commit; a transaction that was begun nevertheless is rolled back
//	COMMIT answered, and then an error      the batch is durable, and the error is dropped: the next batch begins its own
//	                                        transaction, and meets the error if it persists
//	crash between the two                   as after a COMMIT: all of the batch, or nothing
//
// What former has asked and seen confirmed before the COMMIT holds for the next batch too.
//
// The open transaction has locked nothing yet. If no batch uses it, idle_in_transaction_session_timeout ends it.
func (s *Session) commitAndBegin(ctx context.Context, a *Assignment, former Start) error {
	if s.Lost() {
		return fmt.Errorf("commit a batch: %w", pgconn.ErrConnClosed)
	}
	batch := &pgx.Batch{}
	batch.Queue("commit")
	queueBegin(batch, a)
	s.committing.Store(true)
	answers := s.Batches.SendBatch(ctx, batch)
	if err := s.committed(answers.Exec()); err != nil {
		_ = answers.Close() // its error is a consequence of the COMMIT's
		s.rollback(ctx)
		return err
	}
	begun, err := readBegun(answers, former)
	if err != nil {
		s.rollback(ctx)
		return nil
	}
	s.Ahead = &ahead{a, begun}
	return nil
}

// rollback ends the transaction, or closes the connection if that fails. Either way PostgreSQL undoes the transaction.
func (s *Session) rollback(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	s.Ahead = nil
	if s.Lost() {
		return
	}
	if _, err := s.Batches.Exec(ctx, "rollback"); err != nil {
		s.Close()
	}
}
