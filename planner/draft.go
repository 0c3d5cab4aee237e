package planner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/planner/functions"
	"lapse/planner/policyfile"
	"lapse/schemas"
)

// Draft looks at policies that are not applied, in a database that may have no catalog. What the catalog has functions for is
// done by copies of them in the session's temporary schema. Each session is in one transaction, which is undone. Nothing is
// written, and no lock is taken but that of a reader.
//
// What a policy would delete is counted by the text of its survey function. Code of the table's owner that was planted after the
// look for it (see lapse.intruders) would run there, whatever is done: so it runs as the table's owner, in a SECURITY DEFINER
// function, in which nobody can become another role; in a transaction that is read only; and the function is called once, in a
// session that does nothing else afterwards. Where the session may not give the function to the owner, the code runs with the
// rights of the session's login. A table that a superuser owns is counted by a role that may read everything and do nothing else,
// and that is undone with the transaction: the owner's code may be trusted, that of its schema's owner may not.
type Draft struct {
	// Connect opens a session with the caller's rights, and with SessionSettings.
	Connect func(ctx context.Context) (*pgx.Conn, error)
	Roles   schemas.Roles
}

// Difference is Difference in a database that may have no catalog, and compares with nothing in force. more looks further at the changes
// in the same session; err is what Difference returns.
func (d *Draft) Difference(ctx context.Context, file *policyfile.File, fit Fit, more func(tx pgx.Tx, changes []Change, err error) error) error {
	return d.begin(ctx, func(tx *draftTx) error {
		changes, err := newComparison(file, false, fit).compare(ctx, tx)
		return more(tx, changes, err)
	})
}

// Survey surveys a policy that is not applied.
func (d *Draft) Survey(ctx context.Context, ask Ask, r *Resolved) (*Survey, error) {
	survey, err := d.version(ctx, ask, r.version())
	if r.spec.Moves == policyfile.MovesDetect {
		survey.Warnings = append(survey.Warnings, movesCost(survey.Table))
	}
	return survey, err
}

// SurveyChange surveys what the file says, and, at the same cutoff, what is in force: nil where that is nothing, or the same. It has no lock on the
// table when it returns.
func (d *Draft) SurveyChange(ctx context.Context, ask Ask, c *Change) (next, former *Survey, err error) {
	if next, err = d.version(ctx, ask, c.next); err != nil || c.before == nil || c.isVersion == c.before.Version {
		return next, nil, err
	}
	ask.At = next.At
	former, err = d.version(ctx, ask, c.former)
	return next, former, err
}

// NextRun is when a change's policy first runs once it is armed, from now on.
func (c *Change) NextRun(now time.Time) (time.Time, error) {
	return c.next.spec.schedule(c.Policy).Next(time.Time{}, now)
}

func (d *Draft) version(ctx context.Context, ask Ask, v *version) (*Survey, error) {
	s := &surveyor{ask: ask, definition: &v.definition, limits: v.spec.Limits, window: v.spec.Window, owner: d.Roles.Owner, table: v.table, trusts: v.spec.Triggers.Trusted, survey: Survey{
		Policy: v.definition.Name, Table: v.definition.Table, Slices: v.spec.slices(),
	}}
	err := d.survey(ctx, s)
	return &s.survey, err
}

func (d *Draft) survey(ctx context.Context, s *surveyor) error {
	// What is asked before the count is asked in a session of its own: the count's does nothing else.
	err := d.begin(ctx, func(tx *draftTx) error {
		return s.run(ctx, tx, func(at time.Time, to extent) (*found, error) {
			var f *found
			err := d.begin(ctx, func(tx *draftTx) (err error) {
				f, err = d.count(ctx, tx, s, at, to)
				return err
			})
			return f, err
		})
	})
	if refused := (*refusedError)(nil); errors.As(err, &refused) {
		s.survey.Trouble, err = refused.text, nil
	}
	if err != nil {
		return fmt.Errorf("survey policy %s: %w", s.definition.Name, err)
	}
	return nil
}

// refusedError says why one policy cannot be counted.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

// count makes the survey function, gives it to the role that it must not exceed, and calls it once.
func (d *Draft) count(ctx context.Context, tx *draftTx, s *surveyor, at time.Time, to extent) (*found, error) {
	text, err := s.definition.DraftSurvey(s.table, s.trusts)
	if err != nil {
		return nil, err
	}
	// It calls the draft's functions already: what looks like a call in a policy's own texts is none.
	if _, err := tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, fmt.Errorf("make the function that counts: %w", err)
	}
	reads := []string{s.definition.Table}
	for _, j := range s.definition.Expire.Joins() {
		reads = append(reads, j.Relation)
	}
	if err := tx.give(ctx, giving{function: functions.DraftSurvey + functions.SurveyArguments, name: s.definition.Table, table: s.table, reads: reads}); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "set transaction read only"); err != nil {
		return nil, fmt.Errorf("begin to read: %w", err)
	}
	var f *found
	err = givingWay(ctx, tx.Conn(), nil, func() (err error) {
		f, err = callSurvey(ctx, tx, functions.DraftSurvey, at, to)
		return err
	})
	return f, err
}

// drafted are the functions of the catalog that a draft has copies of, beside those that they call.
var drafted = []string{"reach", "leaves", "intruders", "code", "pin", "cascade_statement", "part_of"}

// draftTx is a transaction in which calls of the catalog's functions are calls of the draft's.
type draftTx struct {
	pgx.Tx
	names []string
}

// Begin opens a savepoint.
func (t *draftTx) Begin(ctx context.Context) (pgx.Tx, error) {
	inner, err := t.Tx.Begin(ctx)
	return &draftTx{inner, t.names}, err
}

// Query is Query, of the draft's functions.
func (t *draftTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.Tx.Query(ctx, schemas.InDraft(sql, t.names), args...)
}

// QueryRow is QueryRow, of the draft's functions.
func (t *draftTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.Tx.QueryRow(ctx, schemas.InDraft(sql, t.names), args...)
}

// begin runs work in a session of its own, in a transaction that is undone. The session is closed before begin returns.
func (d *Draft) begin(ctx context.Context, work func(tx *draftTx) error) error {
	conn, err := d.Connect(ctx)
	if err != nil {
		return err
	}
	defer closeDraft(conn)
	script, names, err := schemas.DraftSQL(d.Roles, drafted...)
	if err != nil {
		return err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return fmt.Errorf("begin to look: %w", err)
	}
	if _, err := tx.Exec(ctx, script, pgx.QueryExecModeSimpleProtocol); err != nil {
		return mayNotDraft(conn, err)
	}
	return work(&draftTx{tx, names})
}

// closeDraft ends a session; what was open is rolled back.
func closeDraft(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

const closeTimeout = 2 * time.Second

// mayNotDraft says why temporary functions cannot be made.
func mayNotDraft(conn *pgx.Conn, err error) error {
	var server *pgconn.PgError
	switch schemas.StateOf(err) {
	case schemas.SQLStateReadOnlyTransaction:
		return errors.New("this server is a standby, on which no temporary function can be made: ask the primary")
	case schemas.SQLStateInsufficientPrivilege:
		errors.As(err, &server)
		return fmt.Errorf("make temporary functions, to look at the tables with: %s: grant temporary on database %s to %s",
			server.Message, schemas.Identifier(conn.Config().Database), schemas.Identifier(conn.Config().User))
	}
	return fmt.Errorf("make temporary functions, to look at the tables with: %w", err)
}
