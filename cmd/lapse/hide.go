package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"lapse/internal/setup/site"
	"lapse/internal/setup/tables"
	"lapse/planner"
	"lapse/planner/database"
	"lapse/planner/record"
	"lapse/schemas"
)

func (a *app) hideCommand() *cobra.Command {
	c := hider{app: a}
	var as string
	cmd := &cobra.Command{
		Use:   "hide --policy NAME",
		Short: "Hide rows as soon as they are due, before they are deleted",
		Long: `Prints, or with --execute runs, the SQL that hides the rows of a policy's table as soon as they are due:

  view     a view beside the table, TABLE_live, without them; the application reads it instead of the table
  policy   row security on the table itself; the application changes nothing

Row security does not apply to the table's owner, nor to Lapse's deleter, which has the owner's rights: due rows are still
deleted. An application that logs in as the owner sees them all: let it read the view. Superusers, and roles with BYPASSRLS, see
them too. Under row security nobody else can change or delete a due row, or make a row due by an UPDATE. Queries of a partition
by its own name are not filtered.

Under a policy with action: soft, rows whose column is set, by anybody, are hidden too. A policy that deletes such rows
later has nothing more to hide.

It hides what the policy says now: run it again after the policy changes. Running it twice changes nothing. --drop takes
it back, also for a policy that was dropped. A table's columns cannot be dropped, or change their type, while a view or a policy reads them: --drop first.`,
		Example: `  lapse hide --policy sessions-30d
  lapse hide --policy sessions-30d --as policy --execute
  lapse hide --policy sessions-30d --as policy --drop --execute`,
		Args: needsFlag("--policy"),
	}
	cmd.RunE = a.does(func(cmd *cobra.Command, _ []string) error {
		c.does.As = planner.HideAs(as)
		switch {
		case c.policy == "":
			return wrongUsage("name the policy: --policy NAME")
		case c.does.As != planner.HideView && c.does.As != planner.HidePolicy:
			return wrongUsage("--as takes view or policy")
		}
		return c.run(cmd.Context())
	})
	flags := cmd.Flags()
	flags.StringVar(&c.policy, "policy", "", "the `policy` whose due rows are hidden")
	flags.StringVar(&as, "as", string(planner.HideView), "`how`: view or policy")
	flags.BoolVar(&c.execute, "execute", false, "run the SQL instead of printing it")
	flags.BoolVar(&c.does.Drop, "drop", false, "show the rows again")
	a.jsonFlag(cmd)
	return cmd
}

// hider prints or runs the statements that hide due rows.
type hider struct {
	*app
	does    tables.Hider
	policy  string
	execute bool
}

// hidden is the result of `lapse hide`.
type hidden struct {
	Policy   string         `json:"policy"`
	As       planner.HideAs `json:"as"`
	Executed bool           `json:"executed"`
	SQL      string         `json:"sql"`
	Warnings []string       `json:"warnings"`
}

func (c *hider) run(ctx context.Context) error {
	s, err := c.settings()
	if err != nil {
		return err
	}
	w, err := c.read(ctx)
	var problem *tables.ScaffoldError
	if errors.As(err, &problem) {
		return invalid(err)
	}
	if err != nil {
		return err
	}
	if c.execute {
		conn, err := c.open(ctx, s, session{command: "lapse hide", to: s.Database.Owner})
		if err != nil {
			return err
		}
		defer database.Close(conn)
		c.does.Session = site.Session{Conn: conn, Roles: s.Roles, Log: c.log}
		if err := c.does.Execute(ctx, w); err != nil {
			return err
		}
	}
	for _, warning := range w.Warnings {
		fmt.Fprintf(c.err, "warning: %s\n", warning)
	}
	switch {
	case c.asJSON:
		return c.printJSON(hidden{c.policy, c.does.As, c.execute, w.SQL, w.Warnings})
	case !c.execute:
		_, err = fmt.Fprint(c.raw(), w.SQL)
	case c.does.Drop:
		_, err = fmt.Fprintf(c.out, "%s: due rows are shown again\n", c.policy)
	case c.does.As == planner.HideView:
		_, err = fmt.Fprintf(c.out, "%s: due rows are not in %s\n", c.policy, schemas.Identifier(w.Schema, w.ViewName()))
	default:
		_, err = fmt.Fprintf(c.out, "%s: due rows are hidden, except from the table's owner and the deleter\n", c.policy)
	}
	return err
}

// read reads the policy and its table as the catalog's owner.
func (c *hider) read(ctx context.Context) (*tables.Hiding, error) {
	owner, _, err := c.openOwner(ctx, "lapse hide")
	if err != nil {
		return nil, err
	}
	defer database.Close(owner.Conn)
	c.does.Session = *owner
	policies, err := policiesNamed(ctx, owner.Conn, []string{c.policy})
	if err != nil && c.does.Drop {
		// The view and function outlive the policy.
		table, lookErr := record.LastTable(ctx, owner.Conn, c.policy)
		if table != 0 {
			c.does.TableOID = table
			return c.does.Preview(ctx, &planner.Hide{})
		}
		err = cmp.Or(lookErr, err)
	}
	if err != nil {
		return nil, err
	}
	p := &policies[0]
	if p.Trouble != "" {
		return nil, fmt.Errorf("policy %s: %s: %s", p.Name, p.Trouble, p.Remedy())
	}
	if err := c.hidesMore(ctx, owner.Conn, p); err != nil {
		return nil, err
	}
	c.does.TableOID = p.TableOID
	return c.does.Preview(ctx, planner.HideUnder(&p.Definition))
}

// hidesMore refuses to let a policy that deletes replace the hiding of a policy that sets columns, because it would hide other rows: a table has
// only one view and one function.
func (c *hider) hidesMore(ctx context.Context, conn database.DB, p *record.InForce) error {
	if c.does.Drop || p.Definition.Soft != nil {
		return nil
	}
	all, err := record.LoadInForce(ctx, conn)
	if err != nil {
		return err
	}
	for i := range all {
		if all[i].TableOID == p.TableOID && all[i].Definition.Soft != nil {
			return &tables.ScaffoldError{Problem: fmt.Sprintf("policy %s deletes rows that policy %s has set, and those are hidden with --policy %s", p.Name, all[i].Name, all[i].Name)}
		}
	}
	return nil
}
