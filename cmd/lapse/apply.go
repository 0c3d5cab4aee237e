package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/internal/config"
	"lapse/internal/setup"
	"lapse/planner"
	"lapse/planner/policyfile"
	"lapse/replication"
	"lapse/schemas"
)

func (a *app) applyCommand() *cobra.Command {
	var c applier
	var grants bool
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Make the policies equal a file",
		Long: `Prints how the policies in force differ from the file, asks, and writes what differs: policy versions, deletion
functions and publication membership. Everything is checked before anything is written. Each policy is one transaction; if
the command is interrupted, some policies are applied whole and the others not at all, and running it again goes on.

What pauses, drops, observes or lengthens a policy comes first. It takes no lock on a table and checks nothing of it: it
works when the table is in use, no longer fits, or is gone. A policy in force whose table became unfit is reported, and keeps
nothing else from being applied; the exit code is 3 then. A new policy, or one by which more falls due, on a table that is
not fit refuses the whole file.

A version by which more may fall due, than under the one in force or under what was armed last, is not armed by its file: it
observes, held back, until --arm or "lapse policy arm" says yes. How many rows newly fall due is counted.

Policies that are in force and not in the file stay, unless --prune is given.`,
		Example: `  lapse apply -f policies.yaml --dry-run
  lapse apply -f policies.yaml --yes --reason "ticket 4711"
  lapse apply -f policies.yaml --arm`,
		Args: cobra.NoArgs,
	}
	cmd.RunE = a.does(func(cmd *cobra.Command, _ []string) error {
		if c.file == "" {
			return wrongUsage("name the policy file: -f FILE")
		}
		s, err := a.settings()
		if err != nil {
			return err
		}
		if grants {
			return a.printPolicyGrants(s, c.file)
		}
		c.app, c.settings = a, s
		return c.run(cmd.Context())
	})
	flags := cmd.Flags()
	flags.StringVarP(&c.file, "file", "f", "", "the policy `file`")
	flags.BoolVar(&c.dryRun, "dry-run", false, "only print the difference; exit code 3 if there is one")
	flags.BoolVar(&grants, "grants", false, "print the SQL that a DBA must run for this file, and do nothing")
	flags.BoolVar(&c.yes, "yes", false, "do not ask")
	flags.BoolVar(&c.prune, "prune", false, "drop policies that are not in the file")
	flags.BoolVar(&c.arm, "arm", false, "arm versions by which more falls due")
	flags.StringVar(&c.reason, "reason", "", "`why`, for the record")
	jsonFlag(cmd, &c.asJSON)
	return cmd
}

// applier makes the policies equal a file.
type applier struct {
	*app
	settings           *config.Settings
	file, reason       string
	dryRun, yes, prune bool
	arm                bool
	asJSON, withoutWAL bool
	conn               *pgx.Conn
	members            []replication.Member
	policyFile         *policyfile.File
}

func (a *applier) run(ctx context.Context) error {
	text, err := os.ReadFile(a.file)
	if err != nil {
		return invalid(fmt.Errorf("read the policy file: %w", err))
	}
	if a.policyFile, err = policyfile.Parse(a.file, text); err != nil {
		return err
	}
	if a.conn, err = connect(ctx, a.settings.Database.Owner, a.settings.Roles.Owner, "lapse apply"); err != nil {
		return err
	}
	defer hangUp(a.conn)
	installed, err := requireInstallation(ctx, a.conn, a.settings)
	if err != nil {
		return err
	}
	a.withoutWAL = !installed.auditRequired

	changes, err := a.difference(ctx)
	if err != nil {
		return err
	}
	err = a.apply(ctx, changes)
	if a.asJSON {
		err = errors.Join(err, a.printJSON(map[string]any{"changes": changes}))
	}
	return err
}

// apply prints what differs and brings it into force.
func (a *applier) apply(ctx context.Context, changes []change) error {
	wanted := slices.ContainsFunc(changes, func(c change) bool { return c.writes() })
	if !a.asJSON {
		a.print(changes, wanted)
	}
	switch {
	case !wanted:
		return unfit(changes)
	case a.dryRun:
		return errNeedsPerson
	}
	if err := a.confirm(); err != nil {
		return err
	}
	if err := a.bring(ctx, changes); err != nil {
		return err
	}
	return unfit(changes)
}

// unfit says that a person should look at a table on which a policy in force cannot delete. Who paused it knows.
func unfit(changes []change) error {
	if slices.ContainsFunc(changes, func(c change) bool { return c.Unfit && c.ToState != schemas.Paused }) {
		return errNeedsPerson
	}
	return nil
}

// bring brings the changes into force, in three steps. A policy that fails does not keep the others from it.
//
//	what needs no table    pauses, drops, longer versions: one transaction each, which takes the gates and no other lock
//	the rest               one transaction each: gates, deleter, version, and then the tables that are to be published
//	dropped tables         leave their publications, if nobody is using them; deleters that nothing needs go
func (a *applier) bring(ctx context.Context, changes []change) error {
	var failed []error
	each := func(does func(ctx context.Context, c *change) error) {
		for i := range changes {
			c := &changes[i]
			if ctx.Err() != nil || a.conn.IsClosed() || c.failed {
				continue
			}
			if err := does(ctx, c); err != nil {
				c.failed = true
				failed = append(failed, fmt.Errorf("policy %s: %w", c.Policy, err))
			}
		}
	}
	each(func(ctx context.Context, c *change) error {
		if !c.Writes() || !c.Careful() {
			return nil
		}
		return a.write(ctx, c)
	})
	each(func(ctx context.Context, c *change) error {
		switch {
		case !c.Applied && c.Writes():
			return a.write(ctx, c)
		case len(c.Publish) > 0 || c.Grant:
			return a.mend(ctx, c)
		}
		return nil
	})
	each(func(ctx context.Context, c *change) error {
		a.leave(ctx, c)
		return nil
	})
	if err := a.dropDeleters(ctx); err != nil {
		failed = append(failed, err)
	}
	if len(failed) == 0 {
		return context.Cause(ctx)
	}
	return errors.Join(failed...)
}

func (a *applier) print(changes []change, wanted bool) {
	for i := range changes {
		c := &changes[i]
		if diff := c.Diff(); diff != "" {
			fmt.Fprintln(a.out, strings.TrimRight(diff, "\n"))
		}
		if len(c.Publish) > 0 {
			fmt.Fprintf(a.out, "  publish %s\n", strings.Join(c.Publish, ", "))
		}
		if c.Grant {
			fmt.Fprintf(a.out, "  grant %s its rights on every partition of %s\n", a.settings.Roles.Deleter(c.Resolved.Definition.TableOwner), c.Table)
		}
		if len(c.Leave) > 0 {
			fmt.Fprintf(a.out, "  no longer publish %s\n", strings.Join(c.Leave, ", "))
		}
	}
	if !wanted {
		fmt.Fprintln(a.out, "nothing to do")
	}
	if a.dryRun && slices.ContainsFunc(changes, func(c change) bool { return c.counts() }) {
		fmt.Fprintln(a.out, "how many rows newly fall due is counted when it is applied")
	}
}

// confirm asks, where there is somebody to ask.
func (a *applier) confirm() error {
	switch {
	case a.yes:
		return nil
	case !a.asks:
		return wrongUsage("there is nobody to ask: give --yes to apply this, or --dry-run to look")
	}
	return a.ask("apply this?", "nothing was applied")
}

// ask asks a person, who must be there. Any answer but yes is an error with the words of declined.
func (a *app) ask(question, declined string) error {
	fmt.Fprint(a.err, question+" [y/N] ")
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	default:
		return errors.New(declined)
	}
}

// write brings one policy into force: version, state, and where it needs its table the deleter's rights and publication, in
// one transaction.
//
//	crash before its commit    nothing of this policy is there
//	crash before its arming    the executor notes the position where the auditor must pass
//	crash after it             it is there whole; the next apply finds no difference and goes on with the others
func (a *applier) write(ctx context.Context, c *change) error {
	roles, id, version := a.settings.Roles, c.ID, c.ToVersion
	counted := a.countFormer(ctx, c)
	bring := func(needsTable bool) error {
		return retryGated(ctx, a.conn, a.log, "apply policy "+string(c.Policy), roles, func(tx pgx.Tx) (err error) {
			if needsTable {
				if err := setup.EnsureDeleter(ctx, tx, tableOf(c.Resolved), roles); err != nil {
					return err
				}
			}
			if id, version, err = planner.Write(ctx, tx, &c.Change, roles, a.reason); err != nil || !needsTable {
				return err
			}
			return join(ctx, tx, c.tables, roles)
		})
	}
	err := bring(c.Resolved != nil && !c.Careful())
	if state := schemas.StateOf(err); c.Grant && c.Careful() && (state == schemas.SQLStateInsufficientPrivilege || state == schemas.SQLStateUndefinedObject) {
		err = bring(true) // the functions cannot be given to a deleter that is gone
	}
	if err != nil {
		return err
	}
	c.Applied = true
	if c.ToState == schemas.Arming {
		if err := noteArming(ctx, a.conn, id); err != nil {
			return err
		}
	}
	a.countPresent(ctx, c, counted)
	if !a.asJSON {
		a.report(c, version)
	}
	return nil
}

// noteArming takes down the position that the auditor must pass, so that `lapse audit --once` is enough to arm the policy.
func noteArming(ctx context.Context, conn *pgx.Conn, id schemas.PolicyID) error {
	if _, err := conn.Exec(ctx, `select lapse.advance_arming($1)`, int32(id)); err != nil {
		return fmt.Errorf("note where the auditor must pass: %w", err)
	}
	return nil
}

func (a *applier) report(c *change, version schemas.PolicyVersion) {
	fmt.Fprintf(a.out, "applied %s: version %d, %s\n", c.Policy, version, c.ToState)
	if c.NewlyDue != nil {
		fmt.Fprintf(a.out, "  %s\n", c.NewlyDue)
	}
	switch {
	case c.ToState == schemas.Arming:
		fmt.Fprintln(a.out, "  it deletes once the auditor has read past this moment")
	case c.HeldBack:
		fmt.Fprintf(a.out, "  it is held back, and deletes nothing until `lapse apply --arm` or `lapse policy arm %s` says yes\n", c.Policy)
	}
}

// mend publishes what a policy in force lacks in a publication, and gives its deleter the rights that it lacks.
func (a *applier) mend(ctx context.Context, c *change) error {
	err := retryLocked(ctx, a.conn, a.log, "publish the tables of policy "+string(c.Policy), func(tx pgx.Tx) error {
		if err := setup.EnsureDeleter(ctx, tx, tableOf(c.Resolved), a.settings.Roles); err != nil {
			return err
		}
		return join(ctx, tx, c.tables, a.settings.Roles)
	})
	c.Applied = c.Applied || err == nil
	return err
}

// leave takes the tables of a dropped policy out of their publications, as far as that goes without anybody's waiting.
func (a *applier) leave(ctx context.Context, c *change) {
	for _, m := range c.leaving {
		table := schemas.Identifier(m.Schema, m.Name)
		err := leave(ctx, a.conn, m.OID, a.settings.Roles)
		if err == nil {
			continue
		}
		problem := fmt.Sprintf("%s is still published, although no policy needs it there (%v): alter publication %s drop table %s", table, err, m.Publication, table)
		c.Warnings = append(c.Warnings, problem)
		if !a.asJSON {
			fmt.Fprintf(a.out, "  warning: %s\n", problem)
		}
	}
}

// dropDeleters removes the roles that delete for nobody any more.
func (a *applier) dropDeleters(ctx context.Context) error {
	if ctx.Err() != nil || a.conn.IsClosed() {
		return nil
	}
	// It takes back what was granted on a superuser's tables, for which PostgreSQL locks them: nobody is waited for.
	if _, err := a.conn.Exec(ctx, `set lock_timeout = '10ms'`); err != nil {
		return fmt.Errorf("drop deleters: %w", err)
	}
	warnings, err := setup.DropUnusedDeleters(ctx, a.conn, a.settings.Roles)
	if schemas.StateOf(err) == schemas.SQLStateLockNotAvailable {
		warnings, err = append(warnings, err.Error()), nil
	}
	for _, warning := range warnings {
		a.log.Warn("a role is left over", "problem", warning)
	}
	return err
}
