package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"lapse/internal/config"
	"lapse/internal/setup/holds"
	"lapse/internal/setup/site"
	"lapse/planner/database"
	"lapse/planner/hold"
)

// placing is a hold as described on the command line.
type placing struct {
	*app
	table, where, matter, reason string
	columns, keys                []string
	keysFile                     string
}

func (a *app) holdPlaceCommand() *cobra.Command {
	p := &placing{app: a}
	cmd := &cobra.Command{
		Use:   "place --table TABLE (--keys KEYS | --keys-file FILE | --where CONDITION) --matter CODE --reason TEXT",
		Short: "Place a hold",
		Long: `Places a hold on rows of a table or partition: those with the keys, or those that meet the condition. Every batch that begins
afterwards obeys it. The command returns when no batch that did not see it can commit any more, and prints the log position above which
that is so. If the command is killed before that, the hold is enforced, and "lapse hold list" does the rest.

Keys are values of the table's replica identity, or of the columns that --column names. They are CSV: for one column, several keys
in a line; for several columns, one key in a line. A condition is SQL over the row's own columns, as a policy's where is; if PostgreSQL
cannot tell whether a row meets it (null), the row is held.

It then says which keys match no row of the table, by their numbers, if the login or the role that deletes may read the table:
they are probably mistyped, or were deleted before. The hold is in force for them too.

The same hold for the same matter is not placed twice. Its keys or condition are kept in the database while the hold is enforced, and are
published nowhere.`,
		Example: `  lapse hold place --table shop.orders --keys 1017,1018 --matter 2026-14 --reason "claim of a customer"
  lapse hold place --table shop.orders --column customer --keys-file customers.csv --matter 2026-14 --reason "claim of a customer"
  lapse hold place --table shop.items --where "kind = 'recalled'" --matter 2026-15 --reason "recall"`,
		Args: needsFlag("--table"),
		RunE: a.does(func(cmd *cobra.Command, _ []string) error { return p.run(cmd.Context()) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&p.table, "table", "", "schema and name of the `table`, or of a partition")
	flags.StringArrayVar(&p.columns, "column", nil, "`column` that the keys are values of; may be repeated (default: the replica identity)")
	flags.StringArrayVar(&p.keys, "keys", nil, "`keys`, separated by commas; of several columns one key; may be repeated")
	flags.StringVar(&p.keysFile, "keys-file", "", "`file` with keys as CSV, - for standard input")
	flags.StringVar(&p.where, "where", "", "`condition` in SQL over the row's own columns")
	flags.StringVar(&p.matter, "matter", "", "`code` of the legal matter, in 200 characters at most: the log keeps it for ever")
	flags.StringVar(&p.reason, "reason", "", reasonFlag)
	_ = cmd.MarkFlagFilename("keys-file") // fails if the command lacks the flag
	a.jsonFlag(cmd)
	return cmd
}

func (p *placing) check() error {
	given := 0
	for _, is := range []bool{len(p.keys) > 0, p.keysFile != "", strings.TrimSpace(p.where) != ""} {
		if is {
			given++
		}
	}
	switch {
	case p.table == "":
		return wrongUsage("name the table: --table SCHEMA.TABLE")
	case given != 1:
		return wrongUsage("say which rows are held by one of --keys, --keys-file and --where (\"true\" holds all)")
	case p.where != "" && len(p.columns) > 0:
		return wrongUsage("--column is for keys: a condition names its columns itself")
	case strings.TrimSpace(p.matter) == "":
		return wrongUsage("name the legal matter: --matter CODE")
	case strings.TrimSpace(p.reason) == "":
		return wrongUsage("say why the rows are held: --reason TEXT")
	}
	if err := checkKept("--matter", p.matter); err != nil {
		return err
	}
	return checkReason(p.reason)
}

func (p *placing) run(ctx context.Context) error {
	if err := p.check(); err != nil {
		return err
	}
	order := holds.Order{Matter: p.matter, Reason: p.reason, Request: hold.Request{Table: p.table, Columns: p.columns, Where: p.where}}
	var err error
	if p.where == "" {
		if order.Keys, err = p.readKeys(); err != nil {
			return err
		}
	}
	owner, settings, err := p.openOwner(ctx, "lapse hold")
	if err != nil {
		return err
	}
	defer database.Close(owner.Conn)
	placed, err := holds.Place(ctx, owner, order)
	for _, warning := range placed.Warnings {
		p.log.Warn("the hold is placed, but something is left to do", "what", warning)
	}
	if err != nil {
		return holdError(err)
	}
	return p.print(ctx, owner, &placed, p.match(ctx, settings, placed.Hold))
}

// match compares the hold with the existing rows. The hold is in force, whatever the result.
func (p *placing) match(ctx context.Context, s *config.Settings, held *hold.Hold) hold.Matches {
	draft := p.draft(s, "lapse hold", map[string]string{"lock_timeout": countLockTimeout, "statement_timeout": countStatementTimeout})
	m, err := hold.Match(ctx, draft, held)
	if err != nil {
		m.Trouble = err.Error()
	}
	return m
}

// placedHold is the result of `lapse hold place`.
type placedHold struct {
	*holds.Record
	Warnings []string     `json:"warnings"`
	Match    hold.Matches `json:"match"`
}

func (p *placing) print(ctx context.Context, owner *site.Session, placed *holds.Placed, m hold.Matches) error {
	r, err := readHold(ctx, owner, placed.ID)
	if err != nil {
		return err
	}
	if p.asJSON {
		return p.printJSON(placedHold{r, placed.Warnings, m})
	}
	_, err = fmt.Fprintf(p.out, "%s\nevery batch that commits above %s obeys it\n%s", holdLine(r), r.EffectiveAt, matchLine(placed.Hold.Table, &m))
	return err
}

// mostNumbers is the largest number of keys that a line names by number.
const mostNumbers = 20

// matchLine warns of keys without a row, by number; "" if all have one.
func matchLine(table string, m *hold.Matches) string {
	switch {
	case m.Trouble != "":
		return fmt.Sprintf("it is in force; whether %s has such rows was not looked up: %s\n", table, m.Trouble)
	case len(m.Without) == 0:
		return ""
	case m.Given == 0:
		return fmt.Sprintf("warning: no row of %s meets the condition now; the hold is in force for later rows\n", table)
	}
	numbers := make([]string, 0, mostNumbers)
	for _, n := range m.Without[:min(len(m.Without), mostNumbers)] {
		numbers = append(numbers, strconv.Itoa(n))
	}
	which := strings.Join(numbers, ", ")
	if more := len(m.Without) - len(numbers); more > 0 {
		which += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("warning: %d of %d keys match no row of %s now: number %s, in the order given; the hold is in force for them too\n",
		len(m.Without), m.Given, table, which)
}

// byteOrderMark is written by some programs at the beginning of a text file.
const byteOrderMark = "\ufeff"

// readKeys parses keys as CSV. Errors name lines and never contain a key.
func (p *placing) readKeys() ([][]string, error) {
	what, source := "--keys", io.Reader(strings.NewReader(strings.Join(p.keys, "\n")))
	if p.keysFile != "" {
		what = "--keys-file " + p.keysFile
		source = p.in
		if p.keysFile != "-" {
			file, err := os.Open(p.keysFile)
			if err != nil {
				return nil, invalid(fmt.Errorf("read the keys: %w", err))
			}
			defer func() { _ = file.Close() }()
			source = file
		}
	}
	text := bufio.NewReader(source)
	if mark, _ := text.Peek(len(byteOrderMark)); string(mark) == byteOrderMark {
		_, _ = text.Discard(len(byteOrderMark)) // Peek has read them
	}
	reader := csv.NewReader(text)
	reader.FieldsPerRecord = -1
	lines, err := reader.ReadAll()
	var mistake *csv.ParseError
	if errors.As(err, &mistake) {
		return nil, invalid(fmt.Errorf("read the keys of %s: line %d, column %d: %w", what, mistake.Line, mistake.Column, mistake.Err))
	}
	if err != nil {
		return nil, invalid(fmt.Errorf("read the keys of %s: %w", what, err))
	}
	return lines, nil
}
