package batch

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/internal/backoff"
	"lapse/planner/database"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/schemas"
)

// insertPosition reads the end of the write-ahead log. Everything committed before is below it.
const insertPosition = `select pg_current_wal_insert_lsn()`

// presentHistory reads the number of the history in force (0 for none) and the server's timeline. It calls no function of schema
// lapse, because those may not have been compared.
const presentHistory = `coalesce((select h.number from lapse.history h order by h.number desc limit 1), 0),
	('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int`

// Assignment is what a series of batches works on: one shard, under one policy version.
type Assignment struct {
	*Lease
	Policy    schemas.PolicyID
	version   schemas.PolicyVersion
	Name      schemas.PolicyName
	holds     schemas.HoldVersion
	Cascades  []uint32
	Trusted   bool // the table owner's code may run, and may delete more rows of the target
	functions *Program
	Limits    Limits
}

// Assign builds the assignment of a leased shard: what its batches put in their claims.
func Assign(ctx context.Context, s *Session, p *record.InForce, l *Lease, f *Program) (*Assignment, error) {
	var cascades []uint32
	if p.Definition.Soft == nil {
		var err error
		if cascades, err = database.Cascades(ctx, s.Control, l.Leaf); err != nil {
			return nil, fmt.Errorf("find what foreign keys reach: %w", err)
		}
	}
	return &Assignment{
		Lease: l, Policy: p.ID, version: p.Version, Name: p.Name, holds: p.HoldVersion,
		Cascades:  append([]uint32{}, cascades...), // not null if there are none
		Trusted:   p.Trusted,
		functions: f, Limits: s.limitsFor(p, l.Run),
	}, nil
}

// Start is what a transaction reads when it begins: its identity, and whether the functions that it will run are still equal.
type Start struct {
	xid       schemas.XID
	At        time.Time
	Insert    schemas.LSN
	history   schemas.History  // the newest number
	timeline  schemas.Timeline // the server's
	functions *versions        // of the functions, if they are those that were last found equal
}

// Result is what one batch did.
type Result struct {
	Batch       uuid.UUID
	XID         schemas.XID
	Shape       string // how it found its rows
	Picked      int64
	Deleted     int64         // from the target
	Cascaded    int64         // from tables that refer to the target
	PassOver    bool          // its last portion found fewer rows than it was allowed
	Finished    bool          // nothing is left in the shard
	Quarantined int64         // rows that a careful batch entered in the quarantine
	Locker      int32         // the server process that locks rows that the batch left; 0: none, or it has ended
	Took        time.Duration // from BEGIN to the answer to COMMIT
	Portions    int           // how many portions it had
	Slept       time.Duration // its pauses
	Work        time.Duration // the deletion function's call without its pauses
	Portion     time.Duration // its quickest portion; 0: the first one ended the pass
	First       bool          // the session's first batch under these functions; PostgreSQL plans them in it
}

// LongestPause is the longest pause after a portion.
const LongestPause = 100 * time.Millisecond

// Order is what one batch is to do.
type Order struct {
	Limit    int     // the largest number of rows
	Portions int     // in how many portions it finds and deletes them, of equal limits; 0: one
	Pause    float64 // after each portion, and before the first, so many times as long as that took, LongestPause at most; 0: none
	Shape    string  // how it finds them: a shape of package functions, or "" for the policy's usual one
	StepOver bool    // its one row resists: if it still cannot be deleted, it is entered in the quarantine
	Careful  bool    // it leaves out rows that are locked or referred to, and deletes the others
	// Follows reports, before COMMIT, whether another batch of the same assignment follows at once. The session then sends its BEGIN
	// together with the COMMIT. Nil means no.
	Follows func(*Result) bool
}

// Portion is the largest number of rows of a portion.
func (o *Order) Portion() int { return o.Limit / max(o.Portions, 1) }

// pause makes the pause after what took so long. If ctx ends, the next statement says so.
func (o *Order) pause(ctx context.Context, took time.Duration) (slept time.Duration) {
	if o.Pause <= 0 {
		return 0
	}
	began := time.Now()
	_ = backoff.Sleep(ctx, min(time.Duration(float64(took)*o.Pause), LongestPause))
	return time.Since(began)
}

// CountsError says that the counts that a batch reports contradict each other. The batch is rolled back.
type CountsError struct{ text string }

func (e *CountsError) Error() string { return e.text }

// UnknownCommit says that COMMIT was sent and no answer came.
type UnknownCommit struct{ Cause error }

func (e *UnknownCommit) Error() string { return "the commit was not answered: " + e.Cause.Error() }
func (e *UnknownCommit) Unwrap() error { return e.Cause }

// Delete deletes at most o.Limit rows in one transaction. If it returns nil, they are durably deleted. If it returns *UnknownCommit,
// either the whole batch happened or nothing (the result counts what it would have deleted). After any other error nothing happened.
//
//	crash before BEGIN                    nothing has happened
//	crash before the function is called   the transaction ends with its connection; it has written nothing
//	crash before COMMIT is sent           the same: rows, ledger and cursor are as before
//	crash before COMMIT is answered       all of it happened, or nothing. The cursor is part of it, so the shard's next
//	                                      worker continues at the right place either way
//	crash after                           all of it happened; only this process's counters forget it
func (s *Session) Delete(ctx context.Context, a *Assignment, key schemas.Key, o Order) (Start, Result, error) {
	began := time.Now()
	begun, err := s.beginOrGoOn(ctx, a)
	if err != nil {
		s.rollback(ctx)
		return begun, Result{}, fmt.Errorf("begin a batch: %w", err)
	}
	if begun.functions, err = a.functions.compare(ctx, s.Batches, begun.functions); err != nil {
		s.rollback(ctx)
		return begun, Result{}, err
	}
	slept := o.pause(ctx, time.Since(began))
	done, err := s.call(ctx, a, key, begun, o)
	done.Slept += slept
	if err != nil {
		s.rollback(ctx)
		return begun, Result{}, err
	}
	if o.Follows != nil && o.Follows(&done) {
		return begun, done, s.commitAndBegin(ctx, a, begun)
	}
	return begun, done, s.commit(ctx)
}

// deleteCall calls a deletion function with a claim, its MAC and the lease.
const deleteCall = `(row($1::text, $2::oid, $3::int, $4::int, $5::xid8, $6::timestamptz, $7::uuid, $8::int, $9::text, $10::int, $11::uuid,
	$12::timestamptz, $13::bigint, $14::oid, $15::oid[], $16::bytea)::lapse.claim, $17::bytea,
	row($18::bigint, $19::bigint, $20::text, $21::int, nullif($22::text, ''), $23::bool, $24::bool, nullif($25::int, 0), nullif($26::float8, 0))::lapse.work)`

func deleteArguments(c *schemas.Claim, mac []byte, l *Lease, holder string, o Order) []any {
	return []any{
		strconv.FormatUint(c.SystemIdentifier, 10), c.DatabaseOID, c.History, c.Timeline, c.XID, c.StartedAt, c.Batch, c.PolicyID, c.Policy,
		c.PolicyVersion, c.Run, c.Cutoff, c.HoldVersion, c.Target, c.Cascades, c.Functions[:], mac, l.Shard, l.Term, holder, o.Portion(), o.Shape, o.StepOver, o.Careful,
		o.Portions, o.Pause,
	}
}

// claim builds what the transaction says about itself before it deletes anything.
func (s *Session) claim(a *Assignment, key schemas.Key, begun Start) (schemas.Claim, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return schemas.Claim{}, fmt.Errorf("make a batch id: %w", err)
	}
	return schemas.Claim{
		SystemIdentifier: s.system, DatabaseOID: s.oid, History: begun.history, Timeline: begun.timeline, XID: begun.xid, StartedAt: begun.At, Batch: id,
		PolicyID: a.Policy, Policy: a.Name, PolicyVersion: a.version, Run: a.Run, Cutoff: a.cutoff,
		HoldVersion: a.holds, Target: a.Leaf, Cascades: a.Cascades,
		Functions: a.functions.digest.Keyed(key),
	}, nil
}

// call signs the claim, runs the deletion function, and checks that the functions are unchanged and that the reported counts add up.
func (s *Session) call(ctx context.Context, a *Assignment, key schemas.Key, begun Start, o Order) (Result, error) {
	claim, err := s.claim(a, key, begun)
	if err != nil {
		return Result{}, err
	}
	done := Result{Batch: claim.Batch, XID: begun.xid, Shape: o.Shape}
	counts := map[string]int64{}
	var slept, portion float64
	batch := &pgx.Batch{}
	batch.Queue(`select picked, deleted, finished, left_behind, by_relation, pass_over, coalesce(quarantined, 0), coalesce(locker, 0), portions, slept, coalesce(took, 0) from `+functions.DeleteFunction(a.Policy, a.version)+deleteCall,
		deleteArguments(&claim, claim.MAC(key), a.Lease, s.holder, o)...)
	batch.Queue("set local search_path = pg_catalog, pg_temp")
	batch.Queue(beforeCommit, begun.functions.at, a.functions.regprocs)
	began := time.Now()
	answers := s.Batches.SendBatch(ctx, batch)
	err = answers.QueryRow().Scan(&done.Picked, &done.Deleted, &done.Finished, nil, &counts, &done.PassOver, &done.Quarantined, &done.Locker, &done.Portions, &slept, &portion)
	if err == nil {
		_, err = answers.Exec()
	}
	if err == nil {
		err = begun.functions.confirm(answers.QueryRow())
	}
	if closed := answers.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return Result{}, fmt.Errorf("delete a batch: %w", err)
	}
	lasted := time.Since(began)
	done.Slept, done.Portion = min(time.Duration(slept*float64(time.Second)), lasted), time.Duration(portion*float64(time.Second)) // a clock can be set forward
	done.Work = lasted - done.Slept
	done.First = s.planned != a.functions
	s.planned = a.functions
	done.Cascaded, err = check(a, &done, counts, o)
	return done, err
}

// check compares the counts that the function reports with each other and with the order. It returns the rows deleted by cascade.
func check(a *Assignment, done *Result, counts map[string]int64, o Order) (cascaded int64, err error) {
	most := int64(o.Limit)
	if o.Shape != functions.PicksInstead(o.Shape) {
		most *= 2 // rows may have been inserted into the range since
	}
	if done.Picked > most || done.Deleted > done.Picked {
		return 0, &CountsError{fmt.Sprintf("a batch of %d rows picked %d and deleted %d", o.Limit, done.Picked, done.Deleted)}
	}
	target := strconv.FormatUint(uint64(a.Leaf), 10)
	if counts[target] != done.Deleted && !a.Trusted {
		return 0, &CountsError{fmt.Sprintf("a batch deleted %d rows and %d left relation %s", done.Deleted, counts[target], target)}
	}
	for relation, n := range counts {
		oid, err := strconv.ParseUint(relation, 10, 32)
		if err != nil || uint32(oid) != a.Leaf && !slices.Contains(a.Cascades, uint32(oid)) {
			return 0, &CountsError{fmt.Sprintf("a batch deleted %d rows from relation %s, which its claim does not name", n, relation)}
		}
		if uint32(oid) != a.Leaf {
			cascaded += n
		}
	}
	return cascaded, nil
}
