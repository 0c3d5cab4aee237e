package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/planner"
)

func (a *app) pauseCommand() *cobra.Command {
	return a.haltCommand(true, &cobra.Command{
		Use:   "pause --all",
		Short: "Stop every deletion in this database",
		Long: `Stops every deletion in this database, whatever the state of its policies, until "lapse resume --all". When it returns, no batch runs
and none begins. Each batch asks for the switch itself. To stop one policy: "lapse policy pause NAME".`,
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

// maxReason is what lapse.halt and lapse.clock take.
const maxReason = 2000

func checkReason(reason string) error {
	if len(reason) > maxReason {
		return wrongUsage("--reason: more than %d bytes", maxReason)
	}
	return nil
}

func (a *app) haltCommand(halted bool, cmd *cobra.Command) *cobra.Command {
	var all bool
	var reason string
	cmd.Args = cobra.NoArgs
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
		fmt.Fprintln(a.out, h)
		return nil
	})
	cmd.Flags().BoolVar(&all, "all", false, "all policies of this database")
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the record")
	a.jsonFlag(cmd)
	return cmd
}

// halt is how the switch for all policies stands.
type halt struct {
	Halted  bool      `json:"paused"`
	Since   time.Time `json:"since,omitzero"`
	By      string    `json:"by,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Changed bool      `json:"changed"`
}

// String is the line for a person.
func (h *halt) String() string {
	text := "deletions are allowed"
	if h.Halted {
		text = "every deletion in this database is paused"
	}
	if !h.Since.IsZero() {
		text += fmt.Sprintf(" since %s, by %s", h.Since.UTC().Format(time.RFC3339), h.By)
		if h.Reason != "" {
			text += ": " + h.Reason
		}
	}
	return text
}

// readHalt returns how the switch stands. Nobody has ever used it where Since is zero.
func readHalt(ctx context.Context, q planner.Querier) (halt, error) {
	var h halt
	err := q.QueryRow(ctx, `select h.halted, h.at, h.by, h.reason from lapse.halt h order by h.id desc limit 1`).
		Scan(&h.Halted, &h.Since, &h.By, &h.Reason)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return h, fmt.Errorf("look whether every deletion is paused: %w", err)
	}
	return h, nil
}

// halt turns the switch. Under the gates' lock no batch runs, and those that come later see the row.
func (a *app) halt(ctx context.Context, halted bool, reason string) (*halt, error) {
	owner, _, err := a.openOwner(ctx, "lapse pause")
	if err != nil {
		return nil, err
	}
	defer closeConn(owner.Conn)
	var h halt
	err = owner.Gated(ctx, "turn the switch for all policies", func(tx pgx.Tx) error {
		was, err := readHalt(ctx, tx)
		if err != nil || was.Halted == halted {
			h = was
			return err
		}
		if _, err := tx.Exec(ctx, `insert into lapse.halt (halted, reason) values ($1, $2)`, halted, reason); err != nil {
			return fmt.Errorf("record it: %w", err)
		}
		h, err = readHalt(ctx, tx)
		h.Changed = true
		return err
	})
	if err != nil {
		return nil, err
	}
	return &h, nil
}
