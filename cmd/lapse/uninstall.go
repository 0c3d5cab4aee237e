package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/internal/config"
	"lapse/internal/setup/site"
	"lapse/internal/setup/uninstall"
	"lapse/planner/database"
)

func (a *app) uninstallCommand() *cobra.Command {
	u := &uninstaller{app: a}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Print, or run, the removal of Lapse",
		Long: `Without --execute it changes nothing, and prints the SQL that removes Lapse from the database, for psql in this database.

With --execute it asks, and does the same: it pauses every deletion, drops the indexes that Lapse made, then in one transaction the
publications, the schema "lapse" and the roles that deleted, and last the slot. If it is interrupted, run it again. A login
without superuser rights can do it too: the grants that it lacks are printed before anything is changed. Both refuse while an auditor
reads from the slot: changes not yet read would be missing from the evidence. Both refuse while legal holds are in force, unless --drop-holds is
given: nothing would keep their rows any more.

The topics and the keys stay: they are the proof of what was deleted. The roles stay too, because they belong to the cluster; the output says how
to drop those that Lapse made.`,
		Example: `  lapse uninstall > uninstall.sql
  lapse uninstall --execute --database postgres://postgres@127.0.0.1/app --reason "moved to another system"`,
		Args: noArgs,
	}
	cmd.RunE = a.does(func(cmd *cobra.Command, _ []string) (err error) {
		if u.settings, err = a.settings(); err != nil {
			return err
		}
		if u.Executed {
			err = u.execute(cmd.Context())
		} else {
			err = u.print(cmd.Context())
		}
		if u.Installed = !errors.Is(err, site.ErrNotInstalled); !u.Installed {
			err = nil
		}
		if err == nil && a.asJSON {
			return a.printJSON(u.uninstalled)
		}
		if !u.Installed {
			fmt.Fprintln(a.out, "-- nothing is installed in this database")
		}
		return err
	})
	flags := cmd.Flags()
	flags.BoolVar(&u.Executed, "execute", false, "do it")
	flags.BoolVar(&u.yes, "yes", false, "do not ask")
	flags.BoolVar(&u.dropHolds, "drop-holds", false, "also drop legal holds that are in force")
	flags.StringVar(&u.reason, "reason", "", reasonFlag)
	a.jsonFlag(cmd)
	return cmd
}

// uninstaller removes Lapse from a database. See internal/setup for the steps.
type uninstaller struct {
	*app
	settings  *config.Settings
	yes       bool
	dropHolds bool
	reason    string
	uninstalled
}

// uninstalled is the result of `lapse uninstall`.
type uninstalled struct {
	Installed bool     `json:"installed"` // whether Lapse was installed before
	Executed  bool     `json:"executed"`
	SQL       []string `json:"sql"`   // the statements, if they were not executed
	Roles     []string `json:"roles"` // statements that drop roles and other objects of the cluster that no other database needs
	Warnings  []string `json:"warnings"`
}

func (u *uninstaller) connect(ctx context.Context, to config.ConnString, role string) (*pgx.Conn, error) {
	return u.open(ctx, u.settings, session{command: "lapse uninstall", to: to, role: role, superuser: true})
}

func (u *uninstaller) print(ctx context.Context) error {
	conn, err := u.connect(ctx, u.settings.Database.Owner, "")
	if err != nil {
		return err
	}
	defer database.Close(conn)
	if u.SQL, err = uninstall.SQL(ctx, conn, u.settings.Roles, u.settings.Slot, u.dropHolds); err != nil {
		return err
	}
	if u.Roles, err = uninstall.DropRolesSQL(ctx, conn, u.settings.Roles); err != nil || u.asJSON {
		return err
	}
	fmt.Fprintf(u.raw(), "-- This removes Lapse from database %s. Run it there with psql, not in one transaction, as a superuser or a login with the rights that the first\n"+
		"-- statement checks. It is safe to repeat.\n\\set ON_ERROR_STOP on\n", onOneLine(conn.Config().Database))
	for _, sql := range u.SQL {
		fmt.Fprintf(u.out, "\n%s;\n", strings.TrimSuffix(strings.TrimSpace(sql), ";"))
	}
	u.printRoles(u.out, "-- ")
	return nil
}

// printRoles prints the statements that drop the roles.
func (u *uninstaller) printRoles(w io.Writer, before string) {
	if len(u.Roles) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%sThe roles that Lapse made belong to the cluster. Where no other database needs them:\n", before)
	for _, sql := range u.Roles {
		fmt.Fprintf(w, "%s%s;\n", before, onOneLine(sql))
	}
}

func (u *uninstaller) execute(ctx context.Context) error {
	s := u.settings
	owner, err := u.connect(ctx, s.Database.Owner, s.Roles.Owner)
	if err != nil {
		return err
	}
	defer database.Close(owner)
	auditor, err := u.connect(ctx, s.Database.Auditor, "")
	if err != nil {
		return err
	}
	defer database.Close(auditor)
	if err := u.confirm(ctx, u.yes, "remove Lapse from database "+owner.Config().Database, "to look: without --execute", "nothing was changed"); err != nil {
		return err
	}
	text := u.out
	if u.asJSON {
		text = io.Discard
	}
	u.Warnings, err = uninstall.Uninstaller{
		Session: site.Session{Conn: owner, Roles: s.Roles, Log: u.log}, Auditor: auditor, Slot: s.Slot, Reason: u.reason, DropHolds: u.dropHolds,
		Login:    func(ctx context.Context) (*pgx.Conn, error) { return u.connect(ctx, s.Database.Owner, "") },
		Progress: func(step uninstall.Step) { fmt.Fprintf(text, "done: %s\n", step) },
	}.Uninstall(ctx)
	for _, w := range u.Warnings {
		fmt.Fprintf(text, "warning: %s\n", w)
	}
	if err != nil {
		return err
	}
	if u.Roles, err = uninstall.DropRolesSQL(ctx, owner, s.Roles); err != nil {
		return err
	}
	u.printRoles(text, "")
	return nil
}
