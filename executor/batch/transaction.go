package batch

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// bound gives the transaction its policy's settings. The session's come back with the next batch.
const bound = `set_config('application_name', $2, true) || set_config('lock_timeout', $3, true) || set_config('statement_timeout', $4, true)`

// clean makes a session clean and opens a transaction. The table's code may run inside a batch, and what it does to the session
// outlives the transaction: settings, statements with names, temporary tables. So nothing of the batch before is left, and this
// session has no statement with a name of its own.
var clean = []string{"reset all", "deallocate all", "discard temp", "begin isolation level read committed"}

// ahead is a transaction that was begun with the COMMIT of the batch before. It has done nothing yet.
type ahead struct {
	of    *Assignment
	begun Start
}

// beginOrGoOn returns a transaction that has done nothing: one that was begun ahead, or another.
func (s *Session) beginOrGoOn(ctx context.Context, a *Assignment) (Start, error) {
	if next := s.Ahead; next != nil && next.of == a {
		s.Ahead = nil
		return next.begun, nil
	}
	s.Abandon(ctx)
	return s.begin(ctx, a)
}

// BegunAhead reports whether the next batch's transaction was begun with a COMMIT.
func (s *Session) BegunAhead() bool { return s.Ahead != nil }

// Abandon ends a transaction that was begun ahead and that nobody wants.
func (s *Session) Abandon(ctx context.Context) {
	if s != nil && s.Ahead != nil {
		s.rollback(ctx)
	}
}

// begin makes the session clean, opens a transaction and asks for its identity, in one round trip.
func (s *Session) begin(ctx context.Context, a *Assignment) (Start, error) {
	batch := &pgx.Batch{}
	queueBegin(batch, a)
	return readBegun(s.Batches.SendBatch(ctx, batch))
}

func queueBegin(batch *pgx.Batch, a *Assignment) {
	for _, statement := range clean {
		batch.Queue(statement)
	}
	batch.Queue(`select pg_current_xact_id(), now(), pg_current_wal_insert_lsn(), `+presentHistory+`, (`+functionVersions+`), `+bound,
		a.functions.names, a.Limits.name, milliseconds(a.Limits.Lock), milliseconds(a.Limits.Statement))
}

// readBegun reads the answers to what queueBegin queued, and closes them.
func readBegun(answers pgx.BatchResults) (Start, error) {
	var begun Start
	var err error
	for range clean {
		if _, failed := answers.Exec(); err == nil {
			err = failed
		}
	}
	if err == nil {
		err = answers.QueryRow().Scan(&begun.xid, &begun.At, &begun.Insert, &begun.history, &begun.timeline, &begun.versions, nil)
	}
	if closed := answers.Close(); err == nil {
		err = closed
	}
	return begun, err
}

// commit ends the transaction. PostgreSQL's refusal and its ROLLBACK are certain; so is a COMMIT on a connection that was
// closed before. All else is unknown, the message of a backend that is being terminated too: it may come after the commit.
//
// pgconn.SafeToRetry is not asked: when a connection is lost while the answer to a simple query is awaited, pgx 5.12
// reports "conn closed", which is safe to retry by its own word, for a COMMIT that the server may well have done.
func (s *Session) commit(ctx context.Context) error {
	if s.Lost() {
		return fmt.Errorf("commit a batch: %w", pgconn.ErrConnClosed)
	}
	s.committing.Store(true)
	answer, err := s.Batches.Exec(ctx, "commit")
	return s.committed(answer, err)
}

// committed says what an answer to COMMIT means: see commit.
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

// commitAndBegin is commit, and begins the next batch's transaction in the same round trip. The two have one Sync: PostgreSQL does
// nothing after a COMMIT that fails, and begins the next transaction only when this one is over. Its answer to COMMIT is read
// first, and alone decides what became of the batch.
//
//	COMMIT refused, or no answer to it      as commit has it; a transaction that was begun all the same is rolled back
//	COMMIT answered, and then an error      the batch is durable, and the error is forgotten: the next batch begins by itself,
//	                                        and meets it again
//	crash between the two                   as after a COMMIT: all of the batch, or nothing
//
// The next batch has locked nothing when its transaction lies open, and idle_in_transaction_session_timeout ends it where
// nobody goes on with it.
func (s *Session) commitAndBegin(ctx context.Context, a *Assignment) error {
	if s.Lost() {
		return fmt.Errorf("commit a batch: %w", pgconn.ErrConnClosed)
	}
	batch := &pgx.Batch{}
	batch.Queue("commit")
	queueBegin(batch, a)
	s.committing.Store(true)
	answers := s.Batches.SendBatch(ctx, batch)
	if err := s.committed(answers.Exec()); err != nil {
		_ = answers.Close() // what it says follows from the COMMIT's error
		s.rollback(ctx)
		return err
	}
	begun, err := readBegun(answers)
	if err != nil {
		s.rollback(ctx)
		return nil
	}
	s.Ahead = &ahead{a, begun}
	return nil
}

// rollback ends the transaction, or the connection if that does not work: either way nothing of it stays.
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
