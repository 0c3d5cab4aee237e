package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"lapse/planner/database"
	"lapse/planner/record"
	"lapse/schemas"
)

func (a *app) policyHistoryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "history NAME",
		Short: "List every version and state of a policy: who, when, why, and what differed",
		Long: `Lists the history of a policy, oldest first: every version, with what differs from the one before, and every state that it entered,
each with who did it, when and why. Dropped policies have a history too. With --json each version also has its entry of
the policy file as it was written, and the one before.

The login needs only the executor's or the auditor's rights.`,
		Example: `  lapse policy history sessions-30d
  lapse policy history sessions-30d --json`,
		Args:              onePolicy("history"),
		ValidArgsFunction: a.completeRecorded,
	}
	cmd.RunE = a.does(func(cmd *cobra.Command, args []string) error {
		record, err := a.readRecord(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		steps := policySteps(record)
		if a.asJSON {
			return a.printJSON(policyPast{record.Name, record.Version, record.State, steps})
		}
		for i := range steps {
			steps[i].show(a)
		}
		return nil
	})
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) readRecord(ctx context.Context, name string) (*record.Policy, error) {
	conn, _, err := a.openReader(ctx)
	if err != nil {
		return nil, err
	}
	defer database.Close(conn)
	return readPolicyRecord(ctx, conn, name)
}

// policyPast is what `lapse policy history` prints.
type policyPast struct {
	Policy  schemas.PolicyName    `json:"policy"`
	Version schemas.PolicyVersion `json:"version"`
	State   schemas.State         `json:"state"`
	History []policyStep          `json:"history"`
}

// policyStep is one thing that became of a policy: a version, or a state where State is set.
type policyStep struct {
	At          time.Time             `json:"at"`
	By          string                `json:"by"`
	Reason      string                `json:"reason,omitempty"`
	Version     schemas.PolicyVersion `json:"version"`
	State       schemas.State         `json:"state,omitempty"`
	Changes     []record.FieldChange  `json:"changes,omitempty"`
	MoreFallDue bool                  `json:"more_fall_due,omitempty"`
	HeldAgainst schemas.PolicyVersion `json:"held_against,omitempty"` // it was held back: more fell due than under this version
	Entry       string                `json:"entry,omitempty"`
	FormerEntry string                `json:"former_entry,omitempty"`
}

// policySteps are all of them, oldest first.
func policySteps(record *record.Policy) []policyStep {
	steps := make([]policyStep, 0, len(record.Versions)+len(record.States))
	for i := range record.Versions {
		v := &record.Versions[i]
		steps = append(steps, policyStep{
			At: v.At, By: v.By, Reason: v.Reason, Version: v.Definition.Version, Changes: v.Changes, MoreFallDue: v.MoreDue, HeldAgainst: v.Spec.HeldAgainst,
			Entry: v.Entry, FormerEntry: v.Former,
		})
	}
	for _, s := range record.States {
		steps = append(steps, policyStep{At: s.At, By: s.By, Reason: s.Reason, Version: s.Version, State: s.State})
	}
	slices.SortStableFunc(steps, func(a, b policyStep) int { return a.At.Compare(b.At) })
	return steps
}

func (s *policyStep) show(a *app) {
	what := fmt.Sprintf("version %d", s.Version)
	if s.State != "" {
		what = fmt.Sprintf("%s, version %d", s.State, s.Version)
	}
	fmt.Fprintf(a.out, "%s  %s, by %s%s\n", s.At.UTC().Format(time.RFC3339), what, s.By, because(s.Reason))
	for _, change := range s.Changes {
		fmt.Fprintf(a.out, "    %s\n", change)
	}
	if s.HeldAgainst != 0 {
		fmt.Fprintf(a.out, "    held back: more rows may fall due than under version %d\n", s.HeldAgainst)
	} else if s.MoreFallDue {
		fmt.Fprintln(a.out, "    more rows may fall due than under the version in force before")
	}
}
