package executor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/planner"
	"lapse/planner/functions"
	"lapse/schemas"
)

// insertPosition asks for the end of the log. All that was committed before lies below it.
const insertPosition = `select pg_current_wal_insert_lsn()`

// presentHistory asks for the number of the history that is in force, 0 for none, and for the server's timeline. It calls no
// function of schema lapse, which are compared afterwards.
const presentHistory = `coalesce((select h.number from lapse.history h order by h.number desc limit 1), 0),
	('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int`

// assignment is what a row of batches works on: one shard, under one policy version.
type assignment struct {
	*lease
	policy    schemas.PolicyID
	version   schemas.PolicyVersion
	name      schemas.PolicyName
	holds     schemas.HoldVersion
	cascades  []uint32
	trusted   bool // code of the table's owner may run, and delete more from the target
	functions *program
	limits    batchLimits
}

// assign says what batches on a leased shard are to claim.
func assign(ctx context.Context, s *session, p *planner.InForce, l *lease, f *program) (*assignment, error) {
	var cascades []uint32
	if p.Definition.Soft == nil {
		var err error
		if cascades, err = planner.Cascades(ctx, s.control, l.leaf); err != nil {
			return nil, fmt.Errorf("find what foreign keys reach: %w", err)
		}
	}
	return &assignment{
		lease: l, policy: p.ID, version: p.Version, name: p.Name, holds: p.HoldVersion,
		cascades:  append([]uint32{}, cascades...), // not null where there are none
		trusted:   p.Trusted,
		functions: f, limits: s.limitsFor(p, l.run),
	}, nil
}

// start is what a transaction knows of itself, and of the functions that it will run.
type start struct {
	xid      schemas.XID
	at       time.Time
	insert   schemas.LSN
	history  schemas.History  // the newest number
	timeline schemas.Timeline // the server's
	versions string
}

// result is what one batch did.
type result struct {
	batch    uuid.UUID
	xid      schemas.XID
	shape    string // in which it found its rows
	picked   int64
	deleted  int64         // from the target
	cascaded int64         // from relations that refer to it
	passOver bool          // it ended because no more rows were there, not because it may be no larger
	finished bool          // nothing is left in the shard
	behind   bool          // but for due rows that somebody has locked
	rested   int64         // rows that a careful batch entered in the quarantine
	locker   int32         // a process that has rows locked which were left; 0: none, or it is gone
	took     time.Duration // from BEGIN to the answer to COMMIT
	work     time.Duration // the deletion function's call
	first    bool          // it is the first of its policy in its session, which makes plans
}

// order is what one batch is to do.
type order struct {
	limit    int    // the most rows
	shape    string // how it finds them, one of planner's shapes: "" for the policy's usual one
	stepOver bool   // it is one row that resists: the row stays, and is entered in the quarantine
	careful  bool   // it leaves out rows of which something is locked, or referred to, so that the others go
	// follows is asked before COMMIT whether another batch of the same assignment follows at once: its BEGIN travels with the COMMIT
	// then. Nil: it does not.
	follows func(*result) bool
}

// countsError says that what a batch reports of itself does not add up. It is rolled back.
type countsError struct{ text string }

func (e *countsError) Error() string { return e.text }

// unknownCommit says that COMMIT was sent and no answer came.
type unknownCommit struct{ cause error }

func (e *unknownCommit) Error() string { return "the commit was not answered: " + e.cause.Error() }
func (e *unknownCommit) Unwrap() error { return e.cause }

// deleteBatch deletes up to so many rows in one transaction as is ordered. Durable when it returns nil; with *unknownCommit it may have
// happened or not (the result says what, if it did); with any other error nothing has happened.
//
//	crash before BEGIN                    nothing has happened
//	crash before the function is called   the transaction ends with its connection; it has written nothing
//	crash before COMMIT is sent           the same: rows, ledger and cursor are as before
//	crash before COMMIT is answered       all of it happened, or nothing. The cursor is part of it, so whoever takes the
//	                                      shard next goes on at the right place either way
//	crash after                           all of it happened; only this process's counters forget it
func (s *session) deleteBatch(ctx context.Context, a *assignment, key schemas.Key, o order) (start, result, error) {
	begun, err := s.beginOrGoOn(ctx, a)
	if err != nil {
		s.rollback(ctx)
		return begun, result{}, fmt.Errorf("begin a batch: %w", err)
	}
	if err := a.functions.compare(ctx, s.batches, begun.versions); err != nil {
		s.rollback(ctx)
		return begun, result{}, err
	}
	done, err := s.call(ctx, a, key, begun, o)
	if err != nil {
		s.rollback(ctx)
		return begun, result{}, err
	}
	if o.follows != nil && o.follows(&done) {
		return begun, done, s.commitAndBegin(ctx, a)
	}
	return begun, done, s.commit(ctx)
}

// deleteCall calls a deletion function with a claim, its MAC and the lease.
const deleteCall = `(row($1::text, $2::oid, $3::int, $4::int, $5::xid8, $6::timestamptz, $7::uuid, $8::int, $9::text, $10::int, $11::uuid,
	$12::timestamptz, $13::bigint, $14::oid, $15::oid[], $16::bytea)::lapse.claim, $17::bytea,
	row($18::bigint, $19::bigint, $20::text, $21::int, nullif($22::text, ''), $23::bool, $24::bool)::lapse.work)`

func deleteArguments(c *schemas.Claim, mac []byte, l *lease, holder string, o order) []any {
	return []any{
		strconv.FormatUint(c.SystemIdentifier, 10), c.DatabaseOID, c.History, c.Timeline, c.XID, c.StartedAt, c.Batch, c.PolicyID, c.Policy,
		c.PolicyVersion, c.Run, c.Cutoff, c.HoldVersion, c.Target, c.Cascades, c.Functions[:], mac, l.shard, l.term, holder, o.limit, o.shape, o.stepOver, o.careful,
	}
}

// claim is what a transaction on a shard says of itself before it does anything.
func (s *session) claim(a *assignment, begun start) (schemas.Claim, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return schemas.Claim{}, fmt.Errorf("make a batch id: %w", err)
	}
	return schemas.Claim{
		SystemIdentifier: s.system, DatabaseOID: s.oid, History: begun.history, Timeline: begun.timeline, XID: begun.xid, StartedAt: begun.at, Batch: id,
		PolicyID: a.policy, Policy: a.name, PolicyVersion: a.version, Run: a.run, Cutoff: a.cutoff,
		HoldVersion: a.holds, Target: a.leaf, Cascades: a.cascades,
		Functions: a.functions.digest,
	}, nil
}

// call signs the claim, runs the deletion function, looks whether the functions are still the same, and checks what they
// say.
func (s *session) call(ctx context.Context, a *assignment, key schemas.Key, begun start, o order) (result, error) {
	claim, err := s.claim(a, begun)
	if err != nil {
		return result{}, err
	}
	done := result{batch: claim.Batch, xid: begun.xid, shape: o.shape}
	counts := map[string]int64{}
	batch := &pgx.Batch{}
	batch.Queue(`select picked, deleted, finished, left_behind, by_relation, pass_over, coalesce(rested, 0), coalesce(locker, 0) from `+functions.DeleteFunction(a.policy, a.version)+deleteCall,
		deleteArguments(&claim, claim.MAC(key), a.lease, s.holder, o)...)
	batch.Queue("set local search_path = pg_catalog, pg_temp")
	batch.Queue(`select (`+functionVersions+`), `+heldCursors, a.functions.names)
	began := time.Now()
	answers := s.batches.SendBatch(ctx, batch)
	versions, held := "", false
	err = answers.QueryRow().Scan(&done.picked, &done.deleted, &done.finished, &done.behind, &counts, &done.passOver, &done.rested, &done.locker)
	if err == nil {
		_, err = answers.Exec()
	}
	if err == nil {
		err = answers.QueryRow().Scan(&versions, &held)
	}
	if closed := answers.Close(); err == nil {
		err = closed
	}
	switch {
	case err != nil:
		return result{}, fmt.Errorf("delete a batch: %w", err)
	case versions != begun.versions:
		return result{}, errFunctionsChanged
	case held:
		return result{}, errCursorLeft
	}
	done.work, done.first = time.Since(began), s.planned != a.functions
	s.planned = a.functions
	done.cascaded, err = check(a, &done, counts, o)
	return done, err
}

// check compares what the function says with itself and with what it was allowed. It returns the rows that went by
// cascade.
func check(a *assignment, done *result, counts map[string]int64, o order) (cascaded int64, err error) {
	most := int64(o.limit)
	if !isPick(o.shape) {
		most *= 2 // rows may come into a range meanwhile
	}
	if done.picked > most || done.deleted > done.picked {
		return 0, &countsError{fmt.Sprintf("a batch of %d rows picked %d and deleted %d", o.limit, done.picked, done.deleted)}
	}
	target := strconv.FormatUint(uint64(a.leaf), 10)
	if counts[target] != done.deleted && !a.trusted {
		return 0, &countsError{fmt.Sprintf("a batch deleted %d rows and %d left relation %s", done.deleted, counts[target], target)}
	}
	for relation, n := range counts {
		oid, err := strconv.ParseUint(relation, 10, 32)
		if err != nil || uint32(oid) != a.leaf && !slices.Contains(a.cascades, uint32(oid)) {
			return 0, &countsError{fmt.Sprintf("a batch deleted %d rows from relation %s, which its claim does not name", n, relation)}
		}
		if uint32(oid) != a.leaf {
			cascaded += n
		}
	}
	return cascaded, nil
}
