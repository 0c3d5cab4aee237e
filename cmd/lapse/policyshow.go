package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"lapse/internal/status"
	"lapse/planner/database"
	"lapse/planner/record"
	"lapse/schemas"
)

func (a *app) policyShowCommand() *cobra.Command {
	var sql bool
	var version int
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show what a policy says, and what it means in this database",
		Long: `Shows the version of a policy that is in force, or was last: its entry of the policy file as it was written, what it was found to
mean in this database (key, cascades, owner of the table, index), its state and since when. --version shows another one.

--sql prints the function that deletes instead, as it is in the database, and says so if one of the version's functions is not
as this lapse makes it; with --verbose it prints all of them, below what the policy says. The login needs only the executor's or the
auditor's rights.`,
		Example: `  lapse policy show sessions-30d
  lapse policy show sessions-30d --sql
  lapse policy show sessions-30d --version 2 --json`,
		Args:              onePolicy("show"),
		ValidArgsFunction: a.completeRecorded,
	}
	cmd.RunE = a.does(func(cmd *cobra.Command, args []string) error {
		if version < 0 {
			return wrongUsage("--version %d: versions count from 1", version)
		}
		v, err := a.readPolicy(cmd.Context(), args[0], schemas.PolicyVersion(version), sql)
		if err != nil {
			return err
		}
		if a.asJSON {
			return a.printJSON(v)
		}
		if sql && !a.verbose {
			printDeletion(a, v)
			return nil
		}
		printShown(a, v)
		return nil
	})
	cmd.Flags().BoolVar(&sql, "sql", false, "print the function that deletes, as it is in the database")
	cmd.Flags().IntVar(&version, "version", 0, "show this version (default: the one in force)")
	a.verboseFlag(cmd, "with --sql print all of the version's functions")
	a.jsonFlag(cmd)
	return cmd
}

// printDeletion prints the function that deletes. Of the other functions it prints only what is wrong with them.
func printDeletion(a *app, v *status.Shown) {
	fmt.Fprintln(a.out, onOneLine(v.Title()))
	var others []string
	for i := range v.Functions {
		f := &v.Functions[i]
		switch {
		case i == 0:
			printFunction(a, f)
		case f.Differs != "":
			fmt.Fprintln(a.out, "\n"+status.FunctionTitle(f))
		case f.Text != "":
			others = append(others, f.Name)
		}
	}
	if len(others) > 0 {
		fmt.Fprintf(a.out, "\n%s delete nothing: they look, find and count; --verbose prints them too\n", strings.Join(others, ", "))
	}
}

func printFunction(a *app, f *record.FunctionText) {
	fmt.Fprintln(a.out, "\n"+status.FunctionTitle(f))
	if f.Text != "" || f.Differs != "" {
		fmt.Fprintln(a.out, f.Comment+strings.TrimRight(f.Text, "\n"))
	}
}

// onePolicy requires exactly one name.
func onePolicy(command string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("name one policy: lapse policy %s NAME", command)
		}
		return nil
	}
}

// readPolicy reads one version; 0 is the one in force or, if there is none, the last one.
func (a *app) readPolicy(ctx context.Context, name string, number schemas.PolicyVersion, sql bool) (*status.Shown, error) {
	conn, s, err := a.openReader(ctx)
	if err != nil {
		return nil, err
	}
	defer database.Close(conn)
	record, err := readPolicyRecord(ctx, conn, name)
	if err != nil {
		return nil, err
	}
	if number == 0 {
		number = record.Version
	}
	if record.At(number) == nil {
		return nil, wrongUsage("policy %s has no version %d: its versions are 1 to %d", name, number, record.Versions[len(record.Versions)-1].Definition.Version)
	}
	return status.ReadShown(ctx, conn, s.Roles, record, number, sql)
}

func printShown(a *app, v *status.Shown) {
	fmt.Fprintln(a.out, onOneLine(v.Title()))
	if held := v.HeldVersionText(); held != "" {
		fmt.Fprintln(a.out, held)
	}
	fmt.Fprintln(a.out, onOneLine(v.Made()))
	fmt.Fprintf(a.out, "\nas it was written:\n%s\n", indent(v.Entry))
	fmt.Fprintln(a.out, "\nwhat it was found to mean:")
	for _, m := range v.Meaning {
		fmt.Fprintf(a.out, "    %-18s %s\n", m.Field, m.Value)
	}
	for i := range v.Functions {
		printFunction(a, &v.Functions[i])
	}
}

// because formats a reason for the end of a line.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + onOneLine(reason)
}
