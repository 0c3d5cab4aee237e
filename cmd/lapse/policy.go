package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lapse/planner"
	"lapse/schemas"
)

func (a *app) policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "policy",
		Short:   "State of policies",
		Example: "  lapse policy list",
		Args:    cobra.ArbitraryArgs,
		RunE:    noCommand,
	}
	cmd.AddCommand(a.policyListCommand())
	return cmd
}

func (a *app) policyListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the policies in force and their state",
		Example: "  lapse policy list --json",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			policies, err := a.listPolicies(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(policies)
			}
			return a.printPolicies(policies)
		}),
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// policyLine is one policy of the list.
type policyLine struct {
	Policy  planner.PolicyName    `json:"policy"`
	Version planner.PolicyVersion `json:"version"`
	State   schemas.State         `json:"state"`
	Since   time.Time             `json:"since"`
	Table   string                `json:"table"`
	Next    *time.Time            `json:"next_run,omitempty"` // of an armed policy
}

func (a *app) listPolicies(ctx context.Context) ([]policyLine, error) {
	s, err := a.settings()
	if err != nil {
		return nil, err
	}
	conn, err := a.connect(ctx, s, s.Database.Owner, s.Roles.Owner, "lapse policy")
	if err != nil {
		return nil, err
	}
	defer hangUp(conn)
	if _, err := requireInstallation(ctx, conn, s); err != nil {
		return nil, err
	}
	inForce, err := planner.LoadInForce(ctx, conn)
	if err != nil {
		return nil, err
	}
	lines := make([]policyLine, 0, len(inForce))
	for i := range inForce {
		p := &inForce[i]
		line := policyLine{Policy: p.Name, Version: p.Version, State: p.State, Since: p.Since, Table: p.TableName}
		if p.State == schemas.Armed {
			next, err := p.NextRun()
			if err != nil {
				return nil, fmt.Errorf("policy %s: %w", p.Name, err)
			}
			line.Next = &next
		}
		lines = append(lines, line)
	}
	return lines, nil
}

func (a *app) printPolicies(lines []policyLine) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POLICY\tVERSION\tSTATE\tSINCE\tTABLE\tNEXT RUN")
	for _, l := range lines {
		next := "-"
		if l.Next != nil {
			next = l.Next.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", l.Policy, l.Version, l.State, l.Since.UTC().Format(time.RFC3339), l.Table, next)
	}
	return w.Flush()
}
