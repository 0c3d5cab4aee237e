package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"lapse/internal/setup/holds"
	"lapse/internal/setup/site"
	"lapse/schemas"
)

func (a *app) holdMoveCommand() *cobra.Command {
	var to, reason string
	cmd := &cobra.Command{
		Use:   "move HOLD --to TABLE --reason TEXT",
		Short: "Say which table took the place of a held one",
		Long: `Moves a hold to the table that took the place of its own: one that was rebuilt under another name, or a table that a partition was split
into. It keeps the same keys or condition there; the columns that it reads must exist with the same types. What it
was on before, as far as it still exists, stays held.

Every batch that begins afterwards obeys it. The command returns when no batch that did not see the move can commit any more. If the rows
of a hold are in several tables now, move it to the partitioned table above them, or place it again on each.`,
		Example: `  lapse hold move 3 --to shop.orders_v2 --reason "orders was rebuilt, ticket 4711"`,
		Args:    oneHold("move"),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			id, err := holdNumber(args[0])
			switch {
			case err != nil:
				return err
			case to == "":
				return wrongUsage("name the table that the rows are in now: --to SCHEMA.TABLE")
			case strings.TrimSpace(reason) == "":
				return wrongUsage("say why the hold moves: --reason TEXT")
			}
			if err := checkReason(reason); err != nil {
				return err
			}
			return a.moveHold(cmd.Context(), id, to, reason)
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "schema and name of the `table`, or of a partition")
	cmd.Flags().StringVar(&reason, "reason", "", reasonFlag)
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) moveHold(ctx context.Context, id schemas.HoldID, to, reason string) error {
	r, err := a.changeHold(ctx, id, func(owner *site.Session) error { return holds.Move(ctx, owner, id, to, reason) })
	if err == nil && !a.asJSON {
		_, err = fmt.Fprintf(a.out, "every batch that commits above %s obeys it there\n", r.EffectiveAt)
	}
	return err
}
