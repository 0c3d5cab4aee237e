package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"lapse/internal/config"
	"lapse/internal/setup/apply"
	"lapse/internal/setup/site"
	"lapse/planner/database"
)

func (a *app) applyCommand() *cobra.Command {
	var c applier
	var grants bool
	var managed string
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Make the policies equal a file",
		Long: `Prints how the policies in force differ from the file, asks, and writes what differs: policy versions, deletion
functions and publication membership. Everything is checked before anything is written. Each policy is one transaction; if
the command is interrupted, some policies are applied whole and the others not at all, and running it again goes on.

Changes that pause, drop, observe or lengthen a policy come first. They take no lock on a table and do not read it: they
work when the table is in use, no longer fits, or is gone. A policy in force whose table no longer fits is reported, and keeps
nothing else from being applied; the exit code is then 3. A new policy, or one that lets more rows fall due, on a table that
does not fit makes apply refuse the whole file.

If the newest values of a column without a zone are hours from now, as if written in the database's own zone, it asks, and ends
with 3 if it cannot ask: set zone: in the policy.

If a version may let more rows fall due than the one in force, or than the last armed one, its file does not arm it: it is
held back until --arm or "lapse policy arm" says yes, and the exit code is 3. Meanwhile the version in force goes on if the new one
would delete all that it deletes; otherwise nothing is deleted. Changes that let no more rows fall due, such as limits and schedule, come into
force at once. The rows that fall due, and those that newly do, are counted before anything is written.

Policies that are in force and not in the file stay, unless --prune is given.`,
		Example: `  lapse apply -f policies.yaml --dry-run
  lapse apply -f policies.yaml --yes --reason "ticket 4711"
  lapse apply -f policies.yaml --arm`,
		Args: needsFlag("-f"),
	}
	cmd.RunE = a.does(func(cmd *cobra.Command, _ []string) error {
		if len(c.files) == 0 {
			return errNoPolicyFile
		}
		s, err := a.settings()
		if err != nil {
			return a.withProblemsOf(c.files, err)
		}
		if grants {
			return a.printPolicyGrants(s, c.files, managed)
		}
		c.app, c.settings = a, s
		if err := checkReason(c.reason); err != nil {
			return err
		}
		return c.run(cmd.Context())
	})
	flags := cmd.Flags()
	flags.StringArrayVarP(&c.files, "file", "f", nil, policyFilesFlag)
	flags.BoolVar(&c.dryRun, "dry-run", false, "only print the difference; exit code 3 if there is one")
	flags.BoolVar(&grants, "grants", false, "print the SQL that a DBA must run for this file, and do nothing")
	managedFlag(cmd, &managed)
	flags.BoolVar(&c.yes, "yes", false, "do not ask")
	flags.BoolVar(&c.prune, "prune", false, "drop policies that are not in the file")
	flags.BoolVar(&c.arm, "arm", false, "arm versions that let more rows fall due")
	flags.StringVar(&c.reason, "reason", "", reasonFlag)
	a.verboseFlag(cmd, "print the grants and the index statements that it runs, not only how many")
	a.jsonFlag(cmd)
	return cmd
}

// appliedChanges is what `lapse apply` prints.
type appliedChanges struct {
	Changes apply.Changes `json:"changes"`
}

// applier makes the policies equal a file. See internal/setup for the steps.
type applier struct {
	*app
	settings           *config.Settings
	files              []string
	reason             string
	dryRun, yes, prune bool
	arm                bool
	auditRequired      bool
}

func (a *applier) run(ctx context.Context) error {
	file, err := a.readPolicyFiles(a.files)
	if err != nil {
		return err
	}
	conn, installed, err := a.openInstalled(ctx, a.settings, session{
		command: "lapse apply", to: a.settings.Database.Owner, role: a.settings.Roles.Owner, superuser: true,
	})
	if err != nil {
		return withProblems(file, err)
	}
	defer database.Close(conn)
	a.auditRequired = installed.AuditRequired
	does := &apply.Applier{
		Session:       site.Session{Conn: conn, Roles: a.settings.Roles, Log: a.log},
		AuditRequired: installed.AuditRequired, Prune: a.prune, Arm: a.arm, Reason: a.reason, CountAtMost: countAtMost,
		Draft: a.draft(a.settings, "lapse apply", map[string]string{"lock_timeout": countLockTimeout, "statement_timeout": countStatementTimeout}),

		Login: a.connectToIndex, Indexing: a.tellIndex(),
	}
	if !a.asJSON {
		does.Tell = a.report
	}
	far := a.progress("policy")
	defer far.end()
	does.Far = far.at
	changes, err := does.Difference(ctx, file)
	if err != nil {
		return err
	}
	if !a.asJSON {
		far.end() // the steps that follow report their own progress
	}
	err = a.apply(ctx, does, changes)
	if a.asJSON {
		err = errors.Join(err, a.printJSON(appliedChanges{changes}))
	}
	return err
}

// apply prints the differences and applies them.
func (a *applier) apply(ctx context.Context, does *apply.Applier, changes apply.Changes) error {
	if !a.asJSON {
		a.print(changes)
	}
	switch {
	case changes.Write() && a.dryRun:
		return errNeedsPerson
	case changes.Write():
		if err := a.askZones(ctx, changes); err != nil {
			return err
		}
		if err := a.confirm(ctx, a.yes, "apply this", "to look: --dry-run", "nothing was applied"); err != nil {
			return err
		}
		err := does.Apply(ctx, changes)
		a.printLeft(changes)
		if err != nil {
			return err
		}
	}
	if changes.Unfit() || changes.HeldVersion() {
		return errNeedsPerson // not news to those who paused it
	}
	return nil
}

// askZones asks about local times that seem to belong to another time zone. --yes does not answer that; only zone: in the file does.
func (a *applier) askZones(ctx context.Context, changes apply.Changes) error {
	for i := range changes {
		n := changes[i].NewlyDue
		if n == nil || n.Local == nil || n.Local.Question == "" {
			continue
		}
		if !a.asJSON {
			fmt.Fprintf(a.out, "question: policy %s: %s\n", changes[i].Policy, n.Local.Question)
		}
		if !a.asks || a.yes {
			return errNeedsPerson
		}
		if err := a.confirm(ctx, false, "read "+n.Local.Column+" in UTC all the same", "", "nothing was applied"); err != nil {
			return err
		}
	}
	return nil
}

// These limits bound counting, which blocks others for lock_timeout at most.
const (
	countLockTimeout      = "1s"
	countStatementTimeout = "60s"
)
