package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"lapse/internal/setup/site"
	"lapse/internal/setup/tables"
	"lapse/planner"
	"lapse/planner/database"
)

func (a *app) scaffoldCommand() *cobra.Command {
	var c scaffolder
	var option string
	cmd := &cobra.Command{
		Use:   "scaffold --table SCHEMA.TABLE --option expires_at|ttl|sidecar --after DURATION",
		Short: "Give the rows of a table without a timestamp a due time",
		Long: `Prints, or with --execute runs, the SQL that gives each row of a table a due time, and the policy for it:

  expires_at   a column, which a trigger sets to so long after the INSERT unless the row has one
  ttl          created_at and ttl_seconds, with defaults, and the column computed from the two by triggers
  sidecar      a registry beside the table, with its primary key, filled by a trigger; the table stays as it is

Existing rows get no due time, and are never deleted. --backfill prints the SQL that gives them one too; run it as the
table's owner. Nothing rewrites the table, and nothing waits for its lock longer than a quarter of a second at a time.

Running it twice changes nothing. --drop removes triggers and functions and leaves the data; --drop-columns also removes what was
added to the table, and the sidecar. Columns that were there before stay.`,
		Example: `  lapse scaffold --table shop.carts --option expires_at --after "90 days" --refresh
  lapse scaffold --table shop.carts --option sidecar --after "30 days" --execute
  lapse scaffold --table shop.carts --option sidecar --drop --execute`,
		Args: needsFlag("--table"),
	}
	cmd.RunE = a.does(func(cmd *cobra.Command, _ []string) error {
		c.app, c.does.Option = a, planner.ScaffoldOption(option)
		if err := c.check(); err != nil {
			return err
		}
		return c.run(cmd.Context())
	})
	flags := cmd.Flags()
	flags.StringVar(&c.does.Table, "table", "", "the `table`, with its schema")
	flags.StringVar(&option, "option", "", "`how`: expires_at, ttl or sidecar")
	flags.StringVar(&c.does.After, "after", "", "how long a row is kept: a `duration` as in the policy file")
	flags.StringVar(&c.does.Column, "column", "expires_at", "the `name` of the column with the due time")
	flags.BoolVar(&c.does.Refresh, "refresh", false, "an UPDATE restarts the time")
	flags.BoolVar(&c.does.Backfill, "backfill", false, "also print the SQL for existing rows")
	flags.BoolVar(&c.execute, "execute", false, "run the SQL instead of printing it")
	flags.BoolVar(&c.does.Drop, "drop", false, "remove the triggers and functions")
	flags.BoolVar(&c.does.DropData, "drop-columns", false, "with --drop: also remove the columns and the sidecar that were made")
	a.jsonFlag(cmd)
	return cmd
}

// scaffolder prints or runs a scaffold.
type scaffolder struct {
	*app
	does    tables.Scaffolder
	execute bool
}

func (c *scaffolder) check() error {
	d := &c.does
	switch {
	case d.Table == "":
		return wrongUsage("name the table: --table SCHEMA.TABLE")
	case d.Option != planner.ScaffoldExpiresAt && d.Option != planner.ScaffoldTTL && d.Option != planner.ScaffoldSidecar:
		return wrongUsage("--option is expires_at, ttl or sidecar")
	case d.After == "" && !d.Drop:
		return wrongUsage("say how long a row is kept: --after \"90 days\"")
	case d.DropData && !d.Drop:
		return wrongUsage("--drop-columns needs --drop")
	case d.Backfill && d.Drop:
		return wrongUsage("--backfill and --drop exclude each other")
	case d.Backfill && c.execute:
		return wrongUsage("a backfill runs the table's own triggers, and is for its owner to run: leave --execute or --backfill out")
	}
	return nil
}

// scaffolded is the result of `lapse scaffold`.
type scaffolded struct {
	Table    string `json:"table"`
	Executed bool   `json:"executed"`
	SQL      string `json:"sql"`
	Backfill string `json:"backfill"`
	Policy   string `json:"policy"` // for the policy file
}

func (c *scaffolder) run(ctx context.Context) error {
	s, err := c.settings()
	if err != nil {
		return err
	}
	conn, err := c.open(ctx, s, session{command: "lapse scaffold", to: s.Database.Owner})
	if err != nil {
		return err
	}
	defer database.Close(conn)
	c.does.Session = site.Session{Conn: conn, Roles: s.Roles, Log: c.log}
	w, err := c.does.Preview(ctx)
	var problem *tables.ScaffoldError
	if errors.As(err, &problem) {
		return invalid(err)
	}
	if err != nil {
		return err
	}
	if c.execute {
		if err := c.does.Execute(ctx, w); err != nil {
			return err
		}
	}
	entry := ""
	if !c.does.Drop {
		entry = w.Entry()
	}
	switch {
	case c.asJSON:
		return c.printJSON(scaffolded{c.does.Table, c.execute, w.SQL, w.Backfill, entry})
	case c.execute && c.does.Drop:
		_, err = fmt.Fprintf(c.out, "%s: the scaffold was removed\n", c.does.Table)
	case c.execute:
		_, err = fmt.Fprintf(c.out, "%s: the scaffold was made. For the policy file:\n\npolicies:\n%s", c.does.Table, entry)
	default:
		_, err = fmt.Fprint(c.raw(), w.SQL, w.Backfill)
	}
	return err
}
