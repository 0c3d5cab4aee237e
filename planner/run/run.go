package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/planner/database"
	"lapse/planner/record"
	"lapse/planner/survey"
	"lapse/schemas"
)

// MaxClockSkew is how far the server's clock may be from the executor's. If it is further, one of the two is wrong, and a cutoff from a clock
// that is ahead would delete rows that are not due.
const MaxClockSkew = 5 * time.Second

// ClockSkewError says that the clocks of server and executor differ.
type ClockSkewError struct{ Server, Local time.Time }

// Error says what to do.
func (e *ClockSkewError) Error() string {
	return fmt.Sprintf("the server's clock says %s and this machine's %s, more than %s apart: set the clocks right, nothing is deleted until then",
		e.Server.UTC().Format(time.RFC3339Nano), e.Local.UTC().Format(time.RFC3339Nano), MaxClockSkew)
}

// ClockJumpError says that the server's clock is before the last cutoff, or implausibly far after it. A cutoff from a wrong clock would delete
// rows that are not due, or delete none for years.
type ClockJumpError struct {
	Policy schemas.PolicyName
	What   string // the server's words: instants and no more
}

// Error says what to do.
func (e *ClockJumpError) Error() string {
	return fmt.Sprintf("policy %s: %s: set the server's clock right; if it is right, say so with `lapse clock accept --reason TEXT`", e.Policy, e.What)
}

// NotInForceError says that the version or state is no longer what was loaded: load again.
type NotInForceError struct{ Policy schemas.PolicyName }

// Error names the policy.
func (e *NotInForceError) Error() string {
	return fmt.Sprintf("policy %s: the version that was loaded is not armed any more", e.Policy)
}

// SchemaChangedError says that the table has changed since apply, so that deleting from it would delete more than the policy says, or leave no
// evidence.
type SchemaChangedError struct {
	Policy schemas.PolicyName
	What   string
	State  string // the refusal's SQLSTATE, "" where nothing was refused
}

// Error says what to do.
func (e *SchemaChangedError) Error() string {
	return fmt.Sprintf("policy %s: %s: check it: %s", e.Policy, e.What, record.AfterChange(e.Policy, e.State == schemas.SQLStateTarget))
}

// Options are for a run that Open begins, not for one that it finds.
type Options struct {
	Due   []uint32     // leaves that get shards; nil: all
	Rows  *int64       // the table's rows, to bound a share of them; nil: the catalog's estimate
	Cuts  []survey.Cut // of leaves into ranges
	Heaps []uint32     // leaves that are cut by their files instead
}

// Open returns the policy's unfinished run, or opens the next one: its cutoff is the server's clock, read once. The
// policy must be armed. It needs no more than the executor's rights, and may be called by many executors at once: one of
// them opens the run and makes each slice once, the others get the same run.
//
// Durable when it returns, unless db is a transaction. A crash in between leaves no run, and after it a run that the
// next call returns. What is refused, and what is removed on the way, is at lapse.open_run.
//
// Its refusals are ClockSkewError, ClockJumpError, NotInForceError and SchemaChangedError.
func Open(ctx context.Context, db database.DB, p *record.InForce, clock func() time.Time, with Options) (record.Run, error) {
	leaves, instants, heaps := []uint32{}, []time.Time{}, append([]uint32{}, with.Heaps...)
	for _, c := range with.Cuts {
		leaves, instants = append(leaves, c.Leaf), append(instants, c.At)
	}
	run := record.Run{Policy: p.ID, Version: p.Version}
	opened := true
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		before := clock()
		err := tx.QueryRow(ctx, `select run, cutoff, started_at, resumed, shards, most, accepted from lapse.open_run($1, $2, $3, $4, $5, $6, $7, $8)`,
			p.ID, p.Version, uuid.New(), leaves, instants, heaps, with.Due, with.Rows).Scan(&run.ID, &run.Cutoff, &run.StartedAt, &run.Resumed, &run.Shards, &run.Most, &run.Accepted)
		if opened = !errors.Is(err, pgx.ErrNoRows); !opened {
			return nil // it has opened the breaker again, which is committed
		}
		if err != nil {
			return Refusal(p, err)
		}
		// The server read its clock between these two instants.
		switch after := clock(); {
		case run.Resumed:
		case p.Accepted > 0 && run.Accepted == 0:
			return &NotInForceError{Policy: p.Name} // another executor ended the run that a person allowed, and this run was not judged
		case run.Cutoff.After(after.Add(MaxClockSkew)):
			return &ClockSkewError{Server: run.Cutoff, Local: after}
		case run.Cutoff.Before(before.Add(-MaxClockSkew)):
			return &ClockSkewError{Server: run.Cutoff, Local: before}
		}
		return checkCascades(ctx, tx, p)
	})
	switch {
	case !opened && err == nil:
		return record.Run{}, &NotInForceError{Policy: p.Name}
	case err == nil:
		return run, nil
	case strings.HasPrefix(err.Error(), "policy "+string(p.Name)+": "): // a refusal, which says it all
		return record.Run{}, err
	}
	return record.Run{}, fmt.Errorf("open a run of policy %s: %w", p.Name, err)
}

// Refusal is the typed form of what lapse.open_run, or a look, refuses.
func Refusal(p *record.InForce, err error) error {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return err
	}
	switch server.Code {
	case schemas.SQLStateGate:
		return &NotInForceError{Policy: p.Name}
	case schemas.SQLStateTarget, schemas.SQLStateColumns:
		return &SchemaChangedError{p.Name, server.Message, server.Code}
	case schemas.SQLStateClockBack, schemas.SQLStateClockAhead:
		return &ClockJumpError{p.Name, server.Message}
	}
	return err
}

// checkCascades compares where a deletion would delete through foreign keys with what apply saw.
func checkCascades(ctx context.Context, tx pgx.Tx, p *record.InForce) error {
	if p.Definition.Soft != nil {
		return nil
	}
	leaves, err := database.Collect[database.Leaf](ctx, tx, database.LeavesSQL, p.TableOID)
	if err != nil {
		return err
	}
	oids := []uint32{p.TableOID}
	for _, l := range leaves {
		oids = append(oids, l.OID)
	}
	cascades, err := database.CascadeRoots(ctx, tx, oids)
	if err != nil {
		return err
	}
	if !slices.Equal(database.Names(cascades), p.Spec.Cascades) {
		return &SchemaChangedError{p.Name, fmt.Sprintf("deleting from %s would also delete rows of %v; apply saw %v", p.TableName, database.Names(cascades), p.Spec.Cascades), ""}
	}
	return nil
}
