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

Policies that are in force and not in the file stay, unless --prune is given.`,
		Example: `  lapse apply -f policies.yaml --dry-run
  lapse apply -f policies.yaml --yes --reason "ticket 4711"`,
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
	asJSON, withoutWAL bool
	conn               *pgx.Conn
	members            []replication.Member
	policyFile         *planner.PolicyFile
}

// change is what apply does about one policy.
type change struct {
	planner.Change
	Publish []string `json:"publish,omitempty"` // tables that join a publication
	Applied bool     `json:"applied"`
	Grant   bool     `json:"grant,omitempty"` // the deleter lacks a right, on a partition made since for instance
	Leave   []string `json:"leave,omitempty"` // tables that leave their publication: no policy needs them there
	tables  []uint32 // all that must be published
	leaving []uint32
}

func (c *change) writes() bool { return c.Writes() || len(c.Publish) > 0 || c.Grant }

func (a *applier) run(ctx context.Context) error {
	text, err := os.ReadFile(a.file)
	if err != nil {
		return invalid(fmt.Errorf("read the policy file: %w", err))
	}
	if a.policyFile, err = planner.ParsePolicyFile(a.file, text); err != nil {
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
		return nil
	case a.dryRun:
		return errNeedsPerson
	}
	if err := a.confirm(); err != nil {
		return err
	}
	for i := range changes {
		if !changes[i].writes() {
			continue
		}
		if err := a.write(ctx, &changes[i]); err != nil {
			return fmt.Errorf("policy %s: %w", changes[i].Policy, err)
		}
		changes[i].Applied = true
	}
	return nil
}

// difference compares the file with what is in force, and refuses what cannot be written.
func (a *applier) difference(ctx context.Context) ([]change, error) {
	differences, err := planner.Difference(ctx, a.conn, a.policyFile, a.prune)
	if err != nil {
		return nil, err
	}
	if a.members, err = replication.Members(ctx, a.conn); err != nil {
		return nil, err
	}
	var refused []error
	changes := make([]change, 0, len(differences))
	for _, d := range differences {
		c := change{Change: d}
		if d.Resolved != nil && !a.withoutWAL {
			for _, table := range d.Resolved.Published {
				c.tables = append(c.tables, table.OID)
				if !isMember(a.members, table.OID) {
					c.Publish = append(c.Publish, table.Name)
				}
			}
			if err := checkIdentities(ctx, a.conn, c.tables); err != nil {
				refused = append(refused, fmt.Errorf("policy %s: %w", d.Policy, err))
			}
		}
		if c.Resolved != nil {
			if c.Grant, err = a.lacksDeleter(ctx, c.Resolved); err != nil {
				return nil, err
			}
		}
		if c.Resolved != nil && c.writes() {
			if err := a.mayDelete(ctx, &c); err != nil {
				refused = append(refused, fmt.Errorf("policy %s: %w", d.Policy, err))
			}
		}
		changes = append(changes, c)
	}
	if err := a.leavers(ctx, changes); err != nil {
		return nil, err
	}
	return changes, errors.Join(refused...)
}

// leavers finds the tables of dropped policies that no other policy needs in a publication. There they would do harm: a
// published table that loses its primary key refuses its own deletes.
func (a *applier) leavers(ctx context.Context, changes []change) error {
	if !slices.ContainsFunc(changes, func(c change) bool { return c.Kind == planner.Removed }) {
		return nil
	}
	needed := map[uint32]bool{}
	for i := range changes {
		c := &changes[i]
		if c.Kind == planner.Removed {
			continue
		}
		tables, err := reachedBy(ctx, a.conn, c.Policy)
		if err != nil {
			return err
		}
		for _, oid := range append(tables, c.tables...) {
			needed[oid] = true
		}
	}
	for i := range changes {
		c := &changes[i]
		if c.Kind != planner.Removed {
			continue
		}
		tables, err := reachedBy(ctx, a.conn, c.Policy)
		if err != nil {
			return err
		}
		for _, m := range a.members {
			if m.Publication != replication.Ledger && slices.Contains(tables, m.OID) && !needed[m.OID] {
				c.Leave = append(c.Leave, pgx.Identifier{m.Schema, m.Name}.Sanitize())
				c.leaving = append(c.leaving, m.OID)
			}
		}
	}
	return nil
}

// lacksDeleter says whether the deleter of the table's owner lacks something.
func (a *applier) lacksDeleter(ctx context.Context, r *planner.Resolved) (lacks bool, err error) {
	err = pgx.BeginFunc(ctx, a.conn, func(tx pgx.Tx) error {
		lacks, err = setup.MissingDeleter(ctx, tx, tableOf(r), a.settings.Roles)
		return err
	})
	return lacks, err
}

// tableOf is a policy's table, for its deleter.
func tableOf(r *planner.Resolved) setup.Table {
	t := setup.Table{
		OID: r.TableOID, Name: r.Definition.Table, Owner: r.TableOwner, OwnerOID: r.Definition.TableOwner, Column: r.Definition.Column,
	}
	for _, l := range r.Leaves {
		t.Leaves = append(t.Leaves, setup.Relation(l))
	}
	return t
}

// mayDelete says whether the deletion functions can be given their rights on the table. It gives them, and takes them
// back, so that a missing right is known before anything is written.
func (a *applier) mayDelete(ctx context.Context, c *change) error {
	tx, err := a.conn.Begin(ctx)
	if err != nil {
		return err
	}
	return errors.Join(setup.EnsureDeleter(ctx, tx, tableOf(c.Resolved), a.settings.Roles), tx.Rollback(ctx))
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
}

// confirm asks, where there is somebody to ask.
func (a *applier) confirm() error {
	if a.yes {
		return nil
	}
	if !a.asks {
		return wrongUsage("there is nobody to ask: give --yes to apply this, or --dry-run to look")
	}
	fmt.Fprint(a.err, "apply this? [y/N] ")
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	default:
		return errors.New("nothing was applied")
	}
}

// write brings one policy into force: membership, publication and version in one transaction.
//
//	crash before its commit    nothing of this policy is there
//	crash before its arming    the executor notes the position where the auditor must pass
//	crash after it             it is there whole; the next apply finds no difference and goes on with the others
func (a *applier) write(ctx context.Context, c *change) error {
	roles, id, version := a.settings.Roles, c.ID, c.ToVersion
	err := retryLocked(ctx, a.conn, a.log, "apply policy "+string(c.Policy), func(tx pgx.Tx) (err error) {
		if c.Resolved != nil {
			if err := setup.EnsureDeleter(ctx, tx, tableOf(c.Resolved), roles); err != nil {
				return err
			}
			if err := join(ctx, tx, c.tables, roles); err != nil {
				return err
			}
		}
		if !c.Writes() {
			return nil
		}
		if id, version, err = planner.Write(ctx, tx, &c.Change, roles, a.reason); err != nil {
			return err
		}
		return leave(ctx, tx, c.leaving, roles)
	})
	if err != nil {
		return err
	}
	if c.ToState == schemas.Arming {
		// The position that the auditor must pass is taken down here, so that `lapse audit --once` is enough to arm it.
		if _, err := a.conn.Exec(ctx, `select lapse.advance_arming($1)`, int32(id)); err != nil {
			return fmt.Errorf("note where the auditor must pass: %w", err)
		}
	}
	if a.asJSON {
		return nil
	}
	fmt.Fprintf(a.out, "applied %s: version %d, %s\n", c.Policy, version, c.ToState)
	if c.ToState == schemas.Arming {
		fmt.Fprintln(a.out, "  it deletes once the auditor has read past this moment")
	}
	return nil
}
