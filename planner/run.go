package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Run is one pass over a policy's due rows, with one cutoff and a shard for each leaf.
type Run struct {
	ID        uuid.UUID
	Policy    PolicyID
	Version   PolicyVersion
	Cutoff    time.Time
	StartedAt time.Time // the server's
	Resumed   bool      // it was there already, begun and unfinished
}

const (
	// MaxClockSkew is how far the server's clock may be from the executor's. One of the two is wrong then, and a cutoff
	// from a clock that is ahead deletes rows that are not due.
	MaxClockSkew = 5 * time.Second
	// keepRuns is how long a finished run stays on record. What it deleted stays in the ledger for ever.
	keepRuns = "7 days"
)

// ClockSkewError says that server and executor do not agree what time it is.
type ClockSkewError struct{ Server, Local time.Time }

// Error says what to do.
func (e *ClockSkewError) Error() string {
	return fmt.Sprintf("the server's clock says %s and this machine's %s, more than %s apart: set the clocks right, nothing is deleted until then",
		e.Server.UTC().Format(time.RFC3339Nano), e.Local.UTC().Format(time.RFC3339Nano), MaxClockSkew)
}

// CutoffBackwardsError says that the server's clock stands before the cutoff of a former run.
type CutoffBackwardsError struct {
	Policy       PolicyName
	Last, Server time.Time
}

// Error says what to do.
func (e *CutoffBackwardsError) Error() string {
	return fmt.Sprintf("policy %s: the server's clock says %s, before the last run's cutoff %s: set the server's clock right, or wait",
		e.Policy, e.Server.UTC().Format(time.RFC3339Nano), e.Last.UTC().Format(time.RFC3339Nano))
}

// NotInForceError says that the version or state is no longer what was loaded: load again.
type NotInForceError struct{ Policy PolicyName }

// Error names the policy.
func (e *NotInForceError) Error() string {
	return fmt.Sprintf("policy %s: the version that was loaded is not armed any more", e.Policy)
}

// SchemaChangedError says that the table is not what apply saw, so that deleting from it would go further than the
// policy says, or leave no evidence.
type SchemaChangedError struct {
	Policy PolicyName
	What   string
}

// Error says what to do.
func (e *SchemaChangedError) Error() string {
	return fmt.Sprintf("policy %s: %s: look at it, then run `lapse apply` again", e.Policy, e.What)
}

// OpenRun returns the policy's unfinished run, or opens the next one: its cutoff is the server's clock, read once. The
// policy must be armed. It needs no more than the executor's rights, and may be called by many executors at once: one of
// them opens the run, the others get the same.
//
// Durable when it returns, unless db is a transaction. A crash in between leaves no run, and after it a run that the
// next call returns. Unfinished runs of former versions are closed and old finished ones removed on the way.
//
// Its refusals are ClockSkewError, CutoffBackwardsError, NotInForceError and SchemaChangedError.
func OpenRun(ctx context.Context, db DB, p *InForce, clock func() time.Time) (Run, error) {
	var run Run
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		// No application role can take this lock; batches, which only read runs, do not wait for it.
		if _, err := tx.Exec(ctx, `lock table lapse.run in share row exclusive mode`); err != nil {
			return err
		}
		if err := checkInForce(ctx, tx, p); err != nil {
			return err
		}
		leaves, err := checkSchema(ctx, tx, p)
		if err != nil {
			return err
		}
		if err := closeRuns(ctx, tx, p, leaves); err != nil {
			return err
		}
		run, err = unfinishedRun(ctx, tx, p)
		if err != nil || run.Resumed {
			return err
		}
		run, err = insertRun(ctx, tx, p, leaves, clock)
		return err
	})
	if err != nil {
		return Run{}, fmt.Errorf("open a run of policy %s: %w", p.Name, err)
	}
	return run, nil
}

func checkInForce(ctx context.Context, tx pgx.Tx, p *InForce) error {
	var same bool
	err := tx.QueryRow(ctx, `
		select exists (select from lapse.gate g
		                where g.policy_id = $1 and g.version = $2 and g.state = 'armed' and g.table_oid = $3)`,
		p.ID, p.Version, p.TableOID).Scan(&same)
	if err == nil && !same {
		err = &NotInForceError{Policy: p.Name}
	}
	return err
}

// leaf is a partition that holds rows, or the table itself.
type leaf struct {
	OID   uint32
	Plain bool // not a foreign table
	Name  string
}

// leavesSQL lists the leaves of table $1.
const leavesSQL = `
	select c.oid, c.relkind = 'r', format('%I.%I', n.nspname, c.relname)
	  from (select $1::oid as oid
	        union
	        select t.relid from pg_partition_tree($1::oid) t where t.isleaf) l
	  join pg_class c on c.oid = l.oid
	  join pg_namespace n on n.oid = c.relnamespace
	 where c.relkind <> 'p'
	 order by c.oid`

// checkSchema holds the table to what apply saw, and returns its leaves.
func checkSchema(ctx context.Context, tx pgx.Tx, p *InForce) ([]uint32, error) {
	leaves, err := collect[leaf](ctx, tx, leavesSQL, p.TableOID)
	if err != nil {
		return nil, err
	}
	oids := make([]uint32, 0, len(leaves))
	for _, l := range leaves {
		if !l.Plain {
			return nil, &SchemaChangedError{p.Name, fmt.Sprintf("partition %s is a foreign table", l.Name)}
		}
		oids = append(oids, l.OID)
	}
	cascades, err := cascadeRoots(ctx, tx, append([]uint32{p.TableOID}, oids...))
	if err != nil {
		return nil, err
	}
	if !slices.Equal(names(cascades), p.spec.Cascades) {
		return nil, &SchemaChangedError{p.Name, fmt.Sprintf("deleting from %s would take rows of %v along; apply saw %v", p.TableName, names(cascades), p.spec.Cascades)}
	}
	return oids, nil
}

// closeRuns ends what former versions left unfinished and what was to be done on partitions that have been dropped or
// detached since, and forgets finished runs. The newest run of a policy stays: the
// schedule and the next cutoff are held against it.
func closeRuns(ctx context.Context, tx pgx.Tx, p *InForce, leaves []uint32) error {
	_, err := tx.Exec(ctx, `
		delete from lapse.shard
		 where policy_id = $1 and not done and (version <> $2 or leaf <> all ($3::oid[]))`, p.ID, p.Version, leaves)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		delete from lapse.run r
		 where r.policy_id = $1 and r.started_at < clock_timestamp() - $2::interval
		   and not exists (select from lapse.shard s where s.run = r.run and not s.done)
		   and exists (select from lapse.run later
		                where later.policy_id = r.policy_id and later.started_at > r.started_at and later.cutoff >= r.cutoff)`,
		p.ID, keepRuns)
	return err
}

func unfinishedRun(ctx context.Context, tx pgx.Tx, p *InForce) (Run, error) {
	run := Run{Policy: p.ID, Version: p.Version, Resumed: true}
	err := tx.QueryRow(ctx, `
		select r.run, r.cutoff, r.started_at
		  from lapse.run r
		 where r.policy_id = $1 and r.version = $2
		   and exists (select from lapse.shard s where s.run = r.run and not s.done)
		 order by r.started_at desc, r.run
		 limit 1`, p.ID, p.Version).Scan(&run.ID, &run.Cutoff, &run.StartedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return Run{}, nil
	}
	return run, err
}

func insertRun(ctx context.Context, tx pgx.Tx, p *InForce, leaves []uint32, clock func() time.Time) (Run, error) {
	run := Run{ID: uuid.New(), Policy: p.ID, Version: p.Version}
	var last *time.Time
	if err := tx.QueryRow(ctx, `select max(cutoff) from lapse.run where policy_id = $1`, p.ID).Scan(&last); err != nil {
		return Run{}, err
	}
	before := clock()
	if err := tx.QueryRow(ctx, `select clock_timestamp()`).Scan(&run.Cutoff); err != nil {
		return Run{}, err
	}
	// The server read its clock between these two instants.
	switch after := clock(); {
	case run.Cutoff.After(after.Add(MaxClockSkew)):
		return Run{}, &ClockSkewError{Server: run.Cutoff, Local: after}
	case run.Cutoff.Before(before.Add(-MaxClockSkew)):
		return Run{}, &ClockSkewError{Server: run.Cutoff, Local: before}
	case last != nil && run.Cutoff.Before(*last):
		return Run{}, &CutoffBackwardsError{Policy: p.Name, Last: *last, Server: run.Cutoff}
	}
	err := tx.QueryRow(ctx, `
		insert into lapse.run (run, policy_id, version, cutoff) values ($1, $2, $3, $4) returning started_at`,
		run.ID, run.Policy, run.Version, run.Cutoff).Scan(&run.StartedAt)
	if err != nil {
		return Run{}, err
	}
	_, err = tx.Exec(ctx, `
		insert into lapse.shard (run, policy_id, version, leaf, cutoff)
		select $1, $2, $3, l.oid, $4
		  from unnest($5::oid[]) with ordinality l(oid, n)
		 order by l.n`, run.ID, run.Policy, run.Version, run.Cutoff, leaves)
	return run, err
}
