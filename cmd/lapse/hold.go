package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lapse/internal/setup/holds"
	"lapse/internal/setup/site"
	"lapse/planner/database"
	"lapse/schemas"
)

func (a *app) holdCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hold",
		Short: "Keep rows from being deleted, whatever a policy says: legal holds",
		Long: `Places, moves, releases and shows legal holds. A hold wins over every policy: the row stays, and so does every row that would take it along
by ON DELETE CASCADE. Holds are on tables, whether or not they have a policy.

The login must be a member of the catalog's owner. It needs no right on the table.`,
		Example: `  lapse hold place --table shop.orders --keys 1017,1018 --matter 2026-14 --reason "claim of a customer"
  lapse hold list
  lapse hold release 1 --reason "settled"`,
		Args: cobra.ArbitraryArgs,
		RunE: noCommand,
	}
	cmd.AddCommand(a.holdPlaceCommand(), a.holdMoveCommand(), a.holdReleaseCommand(), a.holdListCommand(), a.holdShowCommand())
	return cmd
}

// holdNumber parses a hold's number.
func holdNumber(text string) (schemas.HoldID, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return 0, wrongUsage("%q is no hold: name it by its number, as lapse hold list prints it", text)
	}
	return schemas.HoldID(n), nil
}

// oneHold requires exactly one argument, a hold's number.
func oneHold(verb string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("name one hold: lapse hold %s HOLD", verb)
		}
		return nil
	}
}

// holdError marks errors that the command line caused.
func holdError(err error) error {
	var mistaken *holds.Error
	if errors.As(err, &mistaken) {
		return invalid(err)
	}
	return err
}

func (a *app) holdReleaseCommand() *cobra.Command {
	var now bool
	var reason, after string
	cmd := &cobra.Command{
		Use:   "release HOLD --reason TEXT",
		Short: "End a hold, after a cooling-off",
		Long: `Ends a hold. It stays enforced for 30 days more, or as long as --after says, so that a mistake can be found: to keep it, place it again
meanwhile. --now ends it at once. It needs a reason too, and a new one if the hold is being released already.

When the hold is over, its keys or its condition are deleted. The record says that the hold existed.`,
		Example: `  lapse hold release 3 --reason "settled, file closed"
  lapse hold release 3 --now --reason "order of the court, 2026-12-01"`,
		Args: oneHold("release"),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			id, err := holdNumber(args[0])
			if err != nil {
				return err
			}
			if strings.TrimSpace(reason) == "" {
				return wrongUsage("say why the hold ends: --reason TEXT")
			}
			if err := checkReason(reason); err != nil {
				return err
			}
			cooling, err := coolingOff(after, now)
			if err != nil {
				return err
			}
			_, err = a.changeHold(cmd.Context(), id, func(owner *site.Session) error { return holds.Release(cmd.Context(), owner, id, cooling, reason) })
			return err
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", reasonFlag)
	cmd.Flags().BoolVar(&now, "now", false, "end it at once")
	cmd.Flags().StringVar(&after, "after", "", "`days` until it ends (default 30 days)")
	a.jsonFlag(cmd)
	return cmd
}

// coolingOff is how long a released hold stays enforced; 0 for not at all.
func coolingOff(after string, now bool) (time.Duration, error) {
	switch {
	case now && after != "":
		return 0, wrongUsage("--now and --after exclude each other")
	case now:
		return 0, nil
	case after == "":
		return holds.CoolingOff, nil
	}
	number := strings.TrimSpace(strings.TrimSuffix(strings.TrimSuffix(after, "s"), "day"))
	days, err := strconv.Atoi(number)
	if err != nil || days < 1 || days > 36500 {
		return 0, wrongUsage("--after %s: write a number of days, at least 1, as in \"60 days\"; --now ends it at once", after)
	}
	return time.Duration(days) * 24 * time.Hour, nil
}

// changeHold changes a hold, and prints and returns its new state.
func (a *app) changeHold(ctx context.Context, id schemas.HoldID, change func(owner *site.Session) error) (*holds.Record, error) {
	owner, _, err := a.openOwner(ctx, "lapse hold")
	if err != nil {
		return nil, err
	}
	defer database.Close(owner.Conn)
	if err := change(owner); err != nil {
		return nil, holdError(err)
	}
	r, err := readHold(ctx, owner, id)
	switch {
	case err != nil:
		return nil, err
	case a.asJSON:
		return r, a.printJSON(r)
	}
	_, err = fmt.Fprintln(a.out, holdLine(r))
	return r, err
}

// readHold reads one hold.
func readHold(ctx context.Context, owner *site.Session, id schemas.HoldID) (*holds.Record, error) {
	all, err := holds.Read(ctx, owner.Conn, true)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].ID == id {
			return &all[i], nil
		}
	}
	return nil, wrongUsage("there is no hold %d: lapse hold list --all prints all", id)
}

// holdLine describes a hold in one line.
func holdLine(r *holds.Record) string {
	what := "a condition on " + cmp.Or(strings.Join(r.Columns, ", "), "nothing: all rows")
	if r.Keys != nil {
		what = counted(*r.Keys, "key") + " of " + strings.Join(r.Columns, ", ")
	}
	state := r.State
	switch {
	case r.State == "releasing" && r.EnforcedUntil != nil:
		state = "enforced until " + r.EnforcedUntil.UTC().Format(time.RFC3339)
	case r.State == "requested":
		state = "requested: enforced, while a batch that began before may still run"
	case r.EffectiveAt != "" && r.State == "effective":
		state = "effective at " + r.EffectiveAt
	}
	return onOneLine(fmt.Sprintf("hold %d on %s: matter %s, %s, %s", r.ID, r.Table, r.Matter, what, state))
}

func (a *app) holdListCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the holds that are enforced",
		Long: `Lists the holds that are enforced, or all that ever were. If a command that placed a hold was killed before it was done, the hold is
finished first: this waits until no batch that did not see the hold can commit any more. It also records tables that were added below held ones.

It ends with 3 where policies stop because they cannot enforce a hold (its table is gone, or has changed), and says what to do.`,
		Example: `  lapse hold list
  lapse hold list --all --json`,
		Args: noArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			owner, _, err := a.openOwner(cmd.Context(), "lapse hold")
			if err != nil {
				return err
			}
			defer database.Close(owner.Conn)
			return a.listHolds(cmd.Context(), owner, all)
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that are over")
	a.jsonFlag(cmd)
	return cmd
}

// holdList is the result of `lapse hold list`.
type holdList struct {
	Holds  []holds.Record `json:"holds"`
	Faults []string       `json:"faults"` // what is wrong with the holds, and what to do
}

// listHolds prints the holds and their faults.
func (a *app) listHolds(ctx context.Context, owner *site.Session, all bool) error {
	if err := holds.Finish(ctx, owner); err != nil {
		return err
	}
	faults, err := holds.Faults(ctx, owner)
	if err != nil {
		return err
	}
	records, err := holds.Read(ctx, owner.Conn, all)
	if err != nil {
		return err
	}
	if a.asJSON {
		err = a.printJSON(holdList{records, faults})
	} else {
		err = a.printHolds(records)
		for _, fault := range faults {
			fmt.Fprintln(a.out, onOneLine(fault))
		}
	}
	if err == nil && len(faults) > 0 {
		err = errNeedsPerson
	}
	return err
}

// printHolds prints a line for each hold.
func (a *app) printHolds(records []holds.Record) error {
	if len(records) == 0 {
		_, err := fmt.Fprintln(a.out, "there are no holds")
		return err
	}
	t := newTable("HOLD", "TABLE…", "MATTER…", "ON…", "STATE")
	for i := range records {
		r := &records[i]
		state := r.State
		if r.State == "releasing" && r.EnforcedUntil != nil {
			state = "until " + r.EnforcedUntil.UTC().Format(time.DateOnly)
		}
		t.row(r.ID, r.Table, r.Matter, holdOn(r), state)
	}
	return a.printTable(t)
}

// holdOn says in a word or two what a hold covers.
func holdOn(r *holds.Record) string {
	switch {
	case r.Keys != nil:
		return counted(*r.Keys, "key")
	case len(r.Columns) == 0:
		return "all rows"
	}
	return "condition"
}

// shownHold is the result of `lapse hold show`.
type shownHold struct {
	*holds.Record
	Changes []holds.Change `json:"changes"`
	*holds.Content
}

func (a *app) holdShowCommand() *cobra.Command {
	var content bool
	cmd := &cobra.Command{
		Use:   "show HOLD",
		Short: "Show a hold: who, when, why, and what became of it",
		Long: `Shows a hold and every change of its state. --content also prints its keys or condition while it is enforced: they name people's
rows, so take care where the output goes.`,
		Example: `  lapse hold show 3
  lapse hold show 3 --content --json`,
		Args: oneHold("show"),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			id, err := holdNumber(args[0])
			if err != nil {
				return err
			}
			owner, _, err := a.openOwner(cmd.Context(), "lapse hold")
			if err != nil {
				return err
			}
			defer database.Close(owner.Conn)
			shown := shownHold{}
			if shown.Record, err = readHold(cmd.Context(), owner, id); err != nil {
				return err
			}
			if shown.Changes, err = holds.ReadChanges(cmd.Context(), owner.Conn, id); err != nil {
				return err
			}
			if content {
				if shown.Content, err = holds.ReadContent(cmd.Context(), owner.Conn, id); err != nil {
					return err
				}
			}
			if a.asJSON {
				return a.printJSON(shown)
			}
			a.printHold(&shown)
			return nil
		}),
	}
	cmd.Flags().BoolVar(&content, "content", false, "also print its keys or condition")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) printHold(h *shownHold) {
	fmt.Fprintf(a.out, "%s\nplaced %s, by %s%s\n", holdLine(h.Record), h.PlacedAt.UTC().Format(time.RFC3339), h.PlacedBy, because(h.Reason))
	for _, c := range h.Changes {
		until := ""
		if c.EnforcedUntil != nil {
			until = ", enforced until " + c.EnforcedUntil.UTC().Format(time.RFC3339)
		}
		if c.MovedTo != "" {
			until = ", on " + c.MovedTo
		}
		fmt.Fprintf(a.out, "  %s  %s at %s, by %s%s%s\n", c.At.UTC().Format(time.RFC3339), c.State, c.Position, c.By, until, because(c.Reason))
	}
	if h.Content == nil {
		return
	}
	fmt.Fprintf(a.out, "  condition  %s\n", onOneLine(h.Condition))
	for _, key := range h.Content.Keys {
		fmt.Fprintf(a.out, "  key        %s\n", onOneLine(strings.Join(key, ", ")))
	}
}
