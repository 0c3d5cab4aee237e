package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"lapse/internal/status"
	"lapse/planner/database"
	"lapse/planner/record"
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
		past := status.PastOf(record)
		if a.asJSON {
			return a.printJSON(past)
		}
		for i := range past.History {
			showStep(a, &past.History[i])
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

// showStep prints a step of the history and, below it, what changed.
func showStep(a *app, s *status.Step) {
	fmt.Fprintf(a.out, "%s  %s\n", s.At.UTC().Format(time.RFC3339), onOneLine(s.Text()))
	for _, line := range s.Details() {
		fmt.Fprintf(a.out, "    %s\n", line)
	}
}
