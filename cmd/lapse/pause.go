package main

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/internal/status"
	"lapse/planner/database"
)

func (a *app) pauseCommand() *cobra.Command {
	return a.haltCommand(true, &cobra.Command{
		Use:   "pause --all",
		Short: "Stop every deletion in this database",
		Long: `Stops every deletion in this database, whatever the state of its policies, until "lapse resume --all". When it returns, no batch runs
and none begins. Each batch checks the switch itself. To stop one policy: "lapse policy pause NAME".`,
		Example: `  lapse pause --all --reason "incident 17"`,
	})
}

func (a *app) resumeCommand() *cobra.Command {
	return a.haltCommand(false, &cobra.Command{
		Use:   "resume --all",
		Short: "Allow deletions in this database again",
		Long: `Takes back "lapse pause --all", and the stop that the auditor sets when batches come out unverified: find the cause first.
Policies that are paused by themselves stay paused: "lapse policy resume NAME".`,
		Example: `  lapse resume --all --reason "incident 17 is over"`,
	})
}

// maxReason is the largest number of characters of a reason or a matter. The log keeps them forever.
const maxReason = 200

const reasonFlag = "`why`, in 200 characters at most: the log keeps it for ever, so name a ticket and no person"

func checkReason(reason string) error { return checkKept("--reason", reason) }

// checkKept refuses a text that is too long for the log.
func checkKept(flag, text string) error {
	if utf8.RuneCountInString(text) > maxReason {
		return wrongUsage("%s: more than %d characters: the log keeps it for ever, so name a ticket and no person", flag, maxReason)
	}
	return nil
}

func (a *app) haltCommand(halted bool, cmd *cobra.Command) *cobra.Command {
	var all bool
	var reason string
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("%s takes no policy: for some, lapse policy %s %s", cmd.CommandPath(), cmd.Name(), strings.Join(args, " "))
		}
		return nil
	}
	cmd.RunE = a.does(func(cmd *cobra.Command, _ []string) error {
		if !all {
			return wrongUsage("%s every policy of the database with --all, or some with: lapse policy %s NAME", cmd.Name(), cmd.Name())
		}
		if err := checkReason(reason); err != nil {
			return err
		}
		h, err := a.halt(cmd.Context(), halted, reason)
		if err != nil {
			return err
		}
		if a.asJSON {
			return a.printJSON(h)
		}
		fmt.Fprintln(a.out, onOneLine(h.String()))
		return nil
	})
	cmd.Flags().BoolVar(&all, "all", false, "all policies of this database")
	cmd.Flags().StringVar(&reason, "reason", "", reasonFlag)
	a.jsonFlag(cmd)
	return cmd
}

// halt sets the switch while it has the gates locked: no batch runs meanwhile, and later batches see the row.
func (a *app) halt(ctx context.Context, halted bool, reason string) (*status.Halt, error) {
	owner, _, err := a.openOwner(ctx, "lapse pause")
	if err != nil {
		return nil, err
	}
	defer database.Close(owner.Conn)
	var h status.Halt
	err = owner.Gated(ctx, "turn the switch for all policies", func(tx pgx.Tx) error {
		was, err := status.ReadHalt(ctx, tx)
		if err != nil || was.Halted == halted {
			h = was
			return err
		}
		if _, err := tx.Exec(ctx, `insert into lapse.halt (halted, reason) values ($1, $2)`, halted, reason); err != nil {
			return fmt.Errorf("record it: %w", err)
		}
		h, err = status.ReadHalt(ctx, tx)
		h.Changed = true
		return err
	})
	if err != nil {
		return nil, err
	}
	return &h, nil
}
