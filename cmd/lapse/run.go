package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/audit"
	"lapse/executor"
	"lapse/executor/guard"
	"lapse/executor/state"
	"lapse/internal/config"
	"lapse/schemas"
)

func (a *app) runCommand() *cobra.Command {
	var once bool
	var now []string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Delete what is due, until stopped",
		Long: `Runs the executor: it deletes what is due under armed policies, in batches, as long as the audit is
healthy. limits.workers in lapse.yaml says how many shards it works on at once. With --once it makes one pass over the
policies that are due and exits; with --now it makes one pass over the named policies, whatever their schedules say.

At the end it prints what it did under each policy, and once a day it counts what is due, for the report. A signal stops it within
ten seconds; a pass that the signal interrupts exits with 1, and the next pass continues it.`,
		Example: `  lapse run --once
  lapse run --now sessions-30d --json`,
		Args: needsFlag("--now"),
	}
	cmd.RunE = a.untilStopped(&once, func(cmd *cobra.Command) error {
		once = once || len(now) > 0
		s, err := a.settings()
		if err != nil {
			return err
		}
		e, done, err := a.newExecutor(s, nil)
		if err != nil {
			return err
		}
		defer done()
		installed, err := a.awaitInstallation(cmd.Context(), s, sessionOf(s, e), once)
		if err != nil {
			return err
		}
		if err := checkKeys(s, installed, config.TagKey); err != nil {
			return err
		}
		if once {
			return a.runOnce(cmd.Context(), e, now, done)
		}
		measured := e.Metrics().Collectors()
		if s.Audit != config.AuditOff { // where the auditor has died nobody else says how much room its slot has left
			database, err := a.connection(s, s.Database.Executor, s.Roles.Executor, "lapse executor")
			if err != nil {
				return err
			}
			looks := audit.NewDatabase(database)
			defer looks.Close()
			measured = append(measured, looks.SlotLag(s.Slot))
		}
		web, err := a.webPart(cmd.Context(), a.overrides.HTTP, []readiness{{"executor", e.Ready, e.Paused}}, measured, nil)
		if err != nil {
			return err
		}
		err = runParts(cmd.Context(), a.log, append([]part{executorPart(e)}, web...)...)
		done()
		return errors.Join(err, a.printTotals(cmd.Context(), e.Summary()))
	})
	flags := cmd.Flags()
	flags.BoolVar(&once, "once", false, "make one pass and end")
	flags.StringSliceVar(&now, "now", nil, "make one pass over this `policy` whatever its schedule says, and end; may be repeated")
	flags.StringVar(&a.overrides.HTTP, "http", "", "serve /healthz, /readyz and /metrics at this `address` (default: not at all)")
	a.jsonFlag(cmd)
	return cmd
}

// newExecutor makes the executor. awaits says what the auditor of the same process waits for; it is nil if there is none. done removes the
// progress line from the terminal.
func (a *app) newExecutor(s *config.Settings, awaits func() string) (e *executor.Executor, done func(), err error) {
	key, err := s.Keys.Load(config.TagKey)
	if err != nil {
		return nil, nil, invalid(err)
	}
	database, err := a.connection(s, s.Database.Executor, s.Roles.Executor, "lapse executor")
	if err != nil {
		return nil, nil, err
	}
	c := executor.Config{
		Database: database, Roles: s.Roles, TagKey: key, Logger: a.log, LedgerDays: s.Ledger, AuditorAwaits: awaits,
		State: memoryOf(s, database),
		Limits: executor.Limits{
			Workers: s.Limits.Workers, TurnRows: int64(s.Limits.TurnRows), RowsPerPass: int64(s.Limits.PassRows), TurnTime: s.Limits.TurnTime, BatchTime: s.Limits.BatchTime,
			Guards: guard.Limits{ReplicaLag: s.Limits.ReplicaLag, Delayed: s.Limits.DelayedReplicas, OldSnapshot: s.Limits.OldSnapshot},
		},
	}
	if err := c.State.Writable(); err != nil {
		a.log.Warn("nothing outside this database remembers it: rows of a restored copy would be deleted at once", "state", s.State, "error", err)
	}
	done = func() {}
	if a.shows {
		m := &meter{out: a.err, now: time.Now}
		c.Progress, done = m.show, m.clear
		if c.Logger, err = a.logTo(m); err != nil {
			return nil, nil, err
		}
	}
	e, err = executor.New(c)
	return e, done, err
}

// sessionOf is the executor's first session.
func sessionOf(s *config.Settings, e *executor.Executor) session {
	return session{command: "lapse executor", to: s.Database.Executor, role: s.Roles.Executor, connect: e.Open}
}

// memoryOf is where an executor with this connection remembers its database; nil if the audit does that.
func memoryOf(s *config.Settings, executor *pgx.ConnConfig) *state.Folder {
	if s.Audit != config.AuditOff {
		return nil
	}
	return state.New(s.State, executor)
}

// memory is memoryOf for other commands.
func (a *app) memory(s *config.Settings) (*state.Folder, error) {
	executor, err := a.connection(s, s.Database.Executor, s.Roles.Executor, "lapse executor")
	if err != nil {
		return nil, err
	}
	return memoryOf(s, executor), nil
}

// restored says why nothing is deleted in a database that must be accepted first; "" if it has been accepted.
func (a *app) restored(ctx context.Context, conn *pgx.Conn, s *config.Settings) (string, error) {
	memory, err := a.memory(s)
	if err != nil {
		return "", err
	}
	refusal, err := guard.Restored(ctx, conn, memory)
	if err != nil || refusal == nil {
		return "", err
	}
	return refusal.Error(), nil
}

// executorStop is longer than the time that the executor gives an open batch.
const executorStop = 15 * time.Second

func executorPart(e *executor.Executor) part {
	return part{name: "executor", run: e.Run, stop: executorStop}
}

func (a *app) runOnce(ctx context.Context, e *executor.Executor, now []string, done func()) error {
	names := make([]schemas.PolicyName, len(now))
	for i, name := range now {
		names[i] = schemas.PolicyName(name)
	}
	summary, err := e.Once(ctx, names)
	done() // start the output on a new line
	var unknown *executor.UnknownPolicyError
	if errors.As(err, &unknown) {
		known := make([]string, len(unknown.Known))
		for i, name := range unknown.Known {
			known[i] = string(name)
		}
		return unknownPolicy(string(unknown.Policy), known)
	}
	if err != nil && len(summary.Policies) == 0 {
		return err // no run began
	}
	if printed := a.printSummary(summary); printed != nil {
		return errors.Join(err, printed)
	}
	if len(now) == 0 && (err == nil || onlyResisted(summary)) {
		e.CountDue(ctx) // at most once a day
	}
	switch {
	case err != nil && onlyResisted(summary):
		return errNeedsPerson // the summary lists the quarantine
	case errors.Is(err, executor.ErrStopping) && errors.Is(context.Cause(ctx), errSignalled):
		return fmt.Errorf("%w before the pass was over; the next one continues it", errSignalled)
	}
	return err
}

// onlyResisted reports whether a pass's only errors are rows that could not be deleted: all other due rows are gone.
func onlyResisted(s executor.Summary) bool {
	return !slices.ContainsFunc(s.Policies, func(p executor.PolicySummary) bool {
		return p.Outcome != executor.Finished && p.Outcome != executor.Resisted
	})
}
