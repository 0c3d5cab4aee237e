package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lapse/internal/setup/site"
	"lapse/internal/setup/tables"
	"lapse/planner/database"
	"lapse/planner/run"
	"lapse/schemas"
)

func (a *app) quarantineCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quarantine",
		Short: "Rows that could not be deleted",
		Long: `Lists rows that are due and could not be deleted, retries them, or forgets them. A foreign key that still refers to a
row keeps it, for instance, or a trigger that raises an error. Such a row waits here while all others are deleted: a minute first, and
twice as long after each further try, up to a day. A row that is gone, or no longer due, leaves by itself.`,
		Example: "  lapse quarantine list sessions-30d\n  lapse quarantine retry sessions-30d --all",
		Args:    cobra.ArbitraryArgs,
		RunE:    noCommand,
	}
	cmd.AddCommand(
		a.quarantineListCommand(),
		a.quarantineChangeCommand("retry", "Make the next run retry rows", `Makes the next run retry rows in quarantine, whenever their next try would be; for instance after their cause was fixed. How often each
was tried stays on record, and a row that fails again waits twice as long as before.`, "to be tried in the next run", tables.RetryQuarantined),
		a.quarantineChangeCommand("forgive", "Take rows out of the quarantine", `Takes rows out of the quarantine, as if they had never been tried. This neither deletes nor keeps a row: the next run finds them
as it finds every due row, tries them, and enters those that fail again, with a pause of a minute. To keep a row, place a
hold on it, or make it not due.`, "taken out, and found by the next run where still due", tables.ForgiveQuarantined),
	)
	return cmd
}

func (a *app) quarantineListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [POLICY]",
		Short: "List the rows in quarantine",
		Long: `Lists the rows in quarantine, those first that are tried next: key, PostgreSQL's message, and how often each was tried. What
blocks them is printed below; --verbose prints each row's table, since when it is here, and when it is tried again.
Where a foreign key blocks them, a query below finds the rows that refer to due ones.

Keys are personal data: nothing else of Lapse prints them. The login must be able to become the catalog's owner. The exit code is 3 if
there are any.`,
		Example:           "  lapse quarantine list\n  lapse quarantine list sessions-30d --json",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeOneInForce,
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			var policy schemas.PolicyName
			if len(args) > 0 {
				policy = schemas.PolicyName(args[0])
			}
			rows, err := a.readQuarantine(cmd.Context(), policy)
			if err != nil {
				return err
			}
			if a.asJSON {
				err = a.printJSON(quarantineList{rows})
			} else {
				err = a.printQuarantine(rows)
			}
			if err == nil && len(rows) > 0 {
				err = errNeedsPerson
			}
			return err
		}),
	}
	a.verboseFlag(cmd, "print each row's table, what is in the way, since when, and the next try too")
	a.jsonFlag(cmd)
	return cmd
}

// quarantineList is the result of `lapse quarantine list`, and changedRows that of retry and forgive.
type (
	quarantineList struct {
		Rows []tables.Quarantined `json:"rows"`
	}
	changedRows struct {
		Policy string `json:"policy"`
		Rows   int64  `json:"rows"`
	}
)

func (a *app) readQuarantine(ctx context.Context, policy schemas.PolicyName) ([]tables.Quarantined, error) {
	owner, _, err := a.openOwner(ctx, "lapse quarantine")
	if err != nil {
		return nil, err
	}
	defer database.Close(owner.Conn)
	rows, err := tables.Quarantine(ctx, owner, policy)
	return rows, quarantineMistake(err)
}

// quarantineMistake marks an error as the command line's fault if it names a policy or a key that does not exist.
func quarantineMistake(err error) error {
	var policy *tables.UnknownPolicyError
	var keys *tables.UnknownKeysError
	switch {
	case errors.As(err, &policy):
		return unknownPolicy(string(policy.Policy), policy.Known)
	case errors.As(err, &keys):
		return invalid(err)
	}
	return err
}

func (a *app) printQuarantine(rows []tables.Quarantined) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(a.out, "no row is in quarantine")
		return err
	}
	if err := a.printTable(a.quarantineTable(rows)); err != nil {
		return err
	}
	shown := map[string]bool{}
	for i := range rows {
		r, next := &rows[i], ""
		if way := inTheWay(r); way != "-" && !a.verbose && !shown[string(r.Policy)+way] {
			shown[string(r.Policy)+way] = true
			fmt.Fprintf(a.out, "%s: in the way: %s\n", r.Policy, onOneLine(way))
		}
		switch {
		case r.Finds != "":
			next = fmt.Sprintf("what refers to due rows by %s:\n  %s", onOneLine(r.Constraint), onOneLine(r.Finds))
		case r.Trigger != "":
			next = onOneLine(fmt.Sprintf("trigger %s of %s: %s", r.Trigger, r.Relation, run.TriggerAdvice(r.Function, r.SQLState == schemas.SQLStateQueryCanceled)))
		}
		if next != "" && !shown[next] {
			shown[next] = true
			fmt.Fprintln(a.out, next)
		}
	}
	return nil
}

// quarantineTable makes a table with a line for each row.
func (a *app) quarantineTable(rows []tables.Quarantined) *table {
	t := newTable("POLICY…", "KEY…", "SQLSTATE", "TRIES")
	if a.verbose {
		t = newTable("POLICY…", "TABLE…", "KEY…", "SQLSTATE", "IN THE WAY…", "TRIES", "SINCE", "NEXT TRY")
	}
	for i := range rows {
		if r := &rows[i]; a.verbose {
			t.row(r.Policy, r.Table, r.Key.String(), r.SQLState, inTheWay(r), r.Tries, r.Since.UTC().Format(time.RFC3339), r.NextTry.UTC().Format(time.RFC3339))
		} else {
			t.row(r.Policy, r.Key.String(), r.SQLState, r.Tries)
		}
	}
	return t
}

// inTheWay names what kept a row from being deleted; "-" if PostgreSQL gave no name.
func inTheWay(r *tables.Quarantined) string {
	switch {
	case r.Constraint != "":
		return r.Constraint + " of " + r.Relation
	case r.Column != "":
		return "not null of " + r.Relation + "." + r.Column
	case r.Trigger != "":
		return "trigger " + r.Trigger + " of " + r.Relation
	}
	return "-"
}

// quarantineChange changes rows in quarantine, and returns their number.
type quarantineChange func(ctx context.Context, s *site.Session, policy schemas.PolicyName, keys [][]string) (int64, error)

func (a *app) quarantineChangeCommand(verb, short, long, done string, change quarantineChange) *cobra.Command {
	var all bool
	var keys []string
	cmd := &cobra.Command{
		Use:   verb + " POLICY",
		Short: short,
		Long: long + `

Name rows by --key, once for each: the value of the key's column, or a JSON array of texts if the key has several columns, in the order in
which "lapse quarantine list" shows them.`,
		Example: fmt.Sprintf("  lapse quarantine %[1]s sessions-30d --all\n  lapse quarantine %[1]s sessions-30d --key 4711\n  lapse quarantine %[1]s visits-1y --key '[\"4711\",\"7\"]'", verb),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("name one policy: lapse quarantine %s POLICY", verb)
			}
			return nil
		},
		ValidArgsFunction: a.completeOneInForce,
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			if all == (len(keys) > 0) {
				return wrongUsage("say which rows: --key KEY, or --all of the policy's")
			}
			wanted, err := rowKeys(keys)
			if err != nil {
				return err
			}
			owner, _, err := a.openOwner(cmd.Context(), "lapse quarantine")
			if err != nil {
				return err
			}
			defer database.Close(owner.Conn)
			rows, err := change(cmd.Context(), owner, schemas.PolicyName(args[0]), wanted)
			if err != nil {
				return quarantineMistake(err)
			}
			if a.asJSON {
				return a.printJSON(changedRows{args[0], rows})
			}
			_, err = fmt.Fprintf(a.out, "policy %s: %s %s\n", args[0], countedAre(rows, "row"), done)
			return err
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "all rows of the policy")
	cmd.Flags().StringArrayVar(&keys, "key", nil, "the row with this `key`; of several columns a JSON array of texts, '[\"4711\",\"7\"]', in the order of quarantine list; may be repeated")
	a.jsonFlag(cmd)
	return cmd
}

// rowKeys parses keys as a person writes them: a text, or a JSON array of texts. A single value that begins with [ needs an array.
func rowKeys(texts []string) ([][]string, error) {
	keys := make([][]string, len(texts))
	for i, text := range texts {
		if !strings.HasPrefix(text, "[") {
			keys[i] = []string{text}
			continue
		}
		if err := json.Unmarshal([]byte(text), &keys[i]); err != nil {
			return nil, wrongUsage(`--key: a key that begins with [ is a JSON array of texts, such as ["4711","7"]`)
		}
	}
	return keys, nil
}
