package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/planner/run"
	"lapse/schemas"
)

func TestEverySQLStateHasItsGrade(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state     string
		many, one Grade // at a hundred rows and at one
	}{
		{schemas.SQLStateIsolation, StopProcess, StopProcess},
		{schemas.SQLStateGate, Retry, Retry},
		{schemas.SQLStateCutoff, Retry, Retry},
		{schemas.SQLStateLimit, StopProcess, StopProcess},
		{schemas.SQLStateTarget, Retry, Retry},
		{schemas.SQLStateTriggers, StopPolicy, StopPolicy},
		{schemas.SQLStateLease, Retry, Retry},
		{schemas.SQLStateCounts, StopPolicy, StopPolicy},
		{schemas.SQLStateClaim, StopProcess, StopProcess},
		{schemas.SQLStateNoCounting, StopPolicy, StopPolicy},
		{schemas.SQLStateColumns, StopPolicy, StopPolicy},
		{schemas.SQLStateUnseen, StopPolicy, StopPolicy},
		{schemas.SQLStateColumns, StopPolicy, StopPolicy},
		{schemas.SQLStateUnseen, StopPolicy, StopPolicy},
		{"40P01", Retry, Retry},    // deadlock_detected
		{"40001", Retry, Retry},    // serialization_failure
		{"55P03", Retry, Retry},    // lock_not_available
		{"08006", Retry, Retry},    // connection_failure
		{"57P01", Retry, Retry},    // admin_shutdown
		{"57P02", Retry, Retry},    // crash_shutdown
		{"57P03", Retry, Retry},    // cannot_connect_now
		{"53300", Retry, Retry},    // too_many_connections
		{"53100", Retry, Retry},    // disk_full
		{"25006", Retry, Retry},    // read_only_sql_transaction
		{"25P03", Retry, Retry},    // idle_in_transaction_session_timeout
		{"57014", Halve, StepOver}, // query_canceled
		{"23503", Halve, StepOver}, // foreign_key_violation
		{"23001", Halve, StepOver}, // restrict_violation, as PostgreSQL 18 has it
		{"23514", Halve, StepOver}, // check_violation, by SET NULL or SET DEFAULT
		{schemas.SQLStateHistory, Retry, Retry},
		{schemas.SQLStateNoBeat, Retry, Retry},
		{schemas.SQLStatePublications, Retry, Retry},
		{"42703", StopPolicy, StopPolicy}, // undefined_column
		{"42P01", Retry, Retry},           // undefined_table
		{"42883", StopPolicy, StopPolicy}, // undefined_function
		{"42501", StopPolicy, StopPolicy}, // insufficient_privilege
		{"3F000", StopPolicy, StopPolicy}, // invalid_schema_name
		{"22008", Halve, StepOver},        // datetime_field_overflow
		{"28P01", StopProcess, StopProcess},
		{"3D000", StopProcess, StopProcess},
		{"P0001", StopProcess, StopProcess},
		{"XX001", StopProcess, StopProcess},
		{"58030", StopProcess, StopProcess},
		{"", StopProcess, StopProcess},
	} {
		err := fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: c.state})
		if got := grade(err, circumstances{limit: 100}); got != c.many {
			t.Errorf("%s at 100 rows: %v, want %v", c.state, got, c.many)
		}
		if got := grade(err, circumstances{limit: 1}); got != c.one {
			t.Errorf("%s at one row: %v, want %v", c.state, got, c.one)
		}
	}
}

func TestErrorsWithoutASQLStateHaveTheirGrade(t *testing.T) {
	t.Parallel()
	refused, err := pgconn.Connect(t.Context(), "postgres://127.0.0.1:1/x?connect_timeout=1")
	if err == nil {
		_ = refused.Close(t.Context())
		t.Fatal("something listens on port 1")
	}
	for name, c := range map[string]struct {
		err  error
		lost bool
		want Grade
	}{
		"connection refused":            {err, true, Retry},
		"connection lost":               {io.ErrUnexpectedEOF, true, Retry},
		"too late, connection lost":     {context.DeadlineExceeded, true, Retry},
		"an answer that makes no sense": {io.ErrUnexpectedEOF, false, StopProcess},
		"anything":                      {errors.New("anything"), false, StopProcess},
		"counts":                        {&batch.CountsError{}, false, StopPolicy},
		"clock skew":                    {&run.ClockSkewError{}, false, StopPolicy},
		"cutoff before the last":        {&run.ClockJumpError{}, false, StopPolicy},
		"another schema":                {&run.SchemaChangedError{}, false, StopPolicy},
		"changed meanwhile":             {&run.NotInForceError{}, false, Retry},
	} {
		if got := grade(fmt.Errorf("wrapped: %w", c.err), circumstances{limit: 10, lost: c.lost}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// What PostgreSQL really says, and what of it is kept.
func TestWhatStandsInTheWayOfABatchIsGradedAndLosesItsRowContent(t *testing.T) {
	t.Parallel()
	const secret = "topsecret"
	for name, c := range map[string]struct {
		before, after string // the application's doing, before and after the policy is applied
		state         string
		want, atOne   Grade
		says          string
	}{
		"a row that something refers to": {
			"create table notes (note text references sessions (note)); insert into notes values ('" + secret + "')", "",
			"23503", Halve, StepOver, "constraint notes_note_fkey, table public.notes",
		},
		"a column that is gone": {"", "alter table sessions rename at to at2", schemas.SQLStateColumns, StopPolicy, StopPolicy, "not those"},
		"a table that is gone":  {"", "alter table sessions rename to sessions2", schemas.SQLStateTarget, Retry, Retry, "is gone, renamed or another table"},
		"a trigger": {
			"", "create function f() returns trigger language plpgsql as 'begin return null; end'; create trigger t before delete on sessions for each row execute function f()",
			schemas.SQLStateTriggers, StopPolicy, StopPolicy, "trigger t on public.sessions would run inside the deletion",
		},
		"another owner":         {"", "reset role; create role %s_other; alter table sessions owner to %[1]s_other", "42501", StopPolicy, StopPolicy, ""},
		"no execute":            {"", "reset role; revoke execute on all functions in schema lapse from lapse_executor", "42501", StopPolicy, StopPolicy, ""},
		"a policy paused":       {"", "reset role; update lapse.gate set state = 'paused'", schemas.SQLStateGate, Retry, Retry, "is not in force"},
		"another hold":          {"", "reset role; update lapse.gate set hold_version = 1", schemas.SQLStateGate, Retry, Retry, ""},
		"a cascade nobody knew": {"", "create table later (s bigint references sessions on delete cascade)", schemas.SQLStateGate, Retry, Retry, "not those of the claim"},
		"rows that take along their like": {
			"", "alter table sessions add parent bigint references sessions on delete cascade; insert into sessions values (99, now(), '', 1)",
			schemas.SQLStateCounts, StopPolicy, StopPolicy, "rows left",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
				sessions(t, db, 5, 5)
				owned(t, db, "update sessions set note = id::text", "update sessions set note = '"+secret+"' where id = 3", "alter table sessions add unique (note)")
				if c.before != "" {
					owned(t, db, c.before)
				}
				arm(t, db, policies(policy("p", "public.sessions")))
				w := open(t, db, "p")
				if c.after != "" {
					owned(t, db, strings.ReplaceAll(strings.ReplaceAll(c.after, "%s", db.Name), "%[1]s", db.Name))
				}
				if c.state == schemas.SQLStateCounts {
					w.acquire(t) // a claim that names the table itself as what it cascades to
				}
				_, err := w.batch(t, 10)
				if schemas.StateOf(err) != c.state {
					t.Fatalf("got %v, want %s", err, c.state)
				}
				if got := grade(err, circumstances{limit: 10}); got != c.want {
					t.Errorf("at ten rows %v, want %v", got, c.want)
				}
				if got := grade(err, circumstances{limit: 1}); got != c.atOne {
					t.Errorf("at one row %v, want %v", got, c.atOne)
				}
				text := stripped("batch", err).Error()
				if !strings.Contains(text, c.says) || !strings.Contains(text, c.state) {
					t.Errorf("%q does not say %q", text, c.says)
				}
				if strings.Contains(text, secret) {
					t.Errorf("%q shows what is in a row", text)
				}
				var server *pgconn.PgError
				if errors.As(stripped("batch", err), &server) {
					t.Error("what PostgreSQL said in full is still within reach")
				}
			})
		})
	}
}

func TestALockThatIsNotGrantedInTimeIsRetried(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 5, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		err := pgx.BeginFunc(t.Context(), db.Connect(t), func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "lock table lapse.gate in exclusive mode"); err != nil {
				return err
			}
			_, err := w.batch(t, 10)
			if schemas.StateOf(err) != "55P03" || grade(err, circumstances{limit: 10}) != Retry {
				t.Errorf("got %v, want lock_not_available, to be retried", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.batch(t, 10); err != nil {
			t.Errorf("with the gate free: %v", err)
		}
	})
}

func TestABatchThatTakesTooLongIsHalved(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 2000, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		w.a.Limits.Statement = 5 * time.Millisecond
		_, err := w.batch(t, 2000)
		if schemas.StateOf(err) != "57014" || grade(err, circumstances{limit: 2000}) != Halve {
			t.Errorf("got %v, want a timeout, to be halved", err)
		}
	})
}

// A publication that others make after `lapse apply` can make every delete fail, and PostgreSQL's message cannot be repeated.
func TestARefusalBecauseOfAPublicationSaysWhoKnowsMore(t *testing.T) {
	t.Parallel()
	for _, state := range []string{schemas.SQLStateNotInPrerequisiteState, schemas.SQLStateInvalidColumnReference} {
		err := stripped("delete a batch", &pgconn.PgError{Code: state, Message: "key 4711"})
		if text := err.Error(); !strings.Contains(text, "a publication has the table") || !strings.Contains(text, "`lapse doctor`") || strings.Contains(text, "4711") {
			t.Errorf("%s says %q", state, text)
		}
		if got := grade(&pgconn.PgError{Code: state}, circumstances{own: true}); got != StopPolicy {
			t.Errorf("%s stops %v", state, got)
		}
	}
}
