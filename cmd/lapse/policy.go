package main

import (
	"context"

	"github.com/spf13/cobra"

	"lapse/internal/status"
	"lapse/planner/database"
)

func (a *app) policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "State of policies",
		Long: `Lists policies, shows one and its history, and changes their state. Their terms are in the policy file, and
"lapse apply" brings it into force.`,
		Example: "  lapse policy list\n  lapse policy show sessions-30d\n  lapse policy pause sessions-30d",
		Args:    cobra.ArbitraryArgs,
		RunE:    noCommand,
	}
	cmd.AddCommand(a.policyListCommand(), a.policyShowCommand(), a.policyHistoryCommand())
	cmd.AddCommand(a.policyStateCommands()...)
	return cmd
}

func (a *app) policyListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the policies in force and their state",
		Long: `Lists the policies in force, and what a person should know about each: it is held back, every deletion is paused, its table
is gone, or rows could not be deleted. Roles that nothing needs any more are listed below it.`,
		Example: "  lapse policy list --json",
		Args:    noArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			l, err := a.listPolicies(cmd.Context())
			if err != nil {
				return err
			}
			if !a.asJSON {
				return a.printPolicies(l)
			}
			for _, problem := range l.LeftOver {
				a.log.Warn("a role is left over", "problem", problem)
			}
			return a.printJSON(l.Policies)
		}),
	}
	a.verboseFlag(cmd, "print the last run too, and since when and why the policy is in its state")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) listPolicies(ctx context.Context) (*status.List, error) {
	owner, settings, err := a.openOwner(ctx, "lapse policy")
	if err != nil {
		return nil, err
	}
	defer database.Close(owner.Conn)
	suspended, err := a.restored(ctx, owner.Conn, settings)
	if err != nil {
		return nil, err
	}
	return status.ReadPolicies(ctx, owner.Conn, suspended)
}
