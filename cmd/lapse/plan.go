package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/internal/config"
	"lapse/internal/yamldoc"
	"lapse/planner"
)

func (a *app) planCommand() *cobra.Command {
	var c surveyor
	cmd := &cobra.Command{
		Use:   "plan [POLICY...]",
		Short: "Show what is due and how it would be found; delete nothing",
		Long: `Counts what is due under each policy in force (or those named), says how old the oldest is, by which index it is
found, in which shards, and how long deleting it would take. It counts through the policies' own functions, so only what is applied.`,
		Example: `  lapse plan
  lapse plan sessions-30d --sql --at 2026-12-24T00:00:00Z`,
	}
	cmd.ValidArgsFunction = a.completeInForce
	var at string
	cmd.RunE = a.does(func(cmd *cobra.Command, args []string) error {
		if at != "" {
			when, err := time.Parse(time.RFC3339, at)
			if err != nil {
				return wrongUsage("--at %s: write the time as in 2026-12-24T00:00:00Z", at)
			}
			c.at = when
		}
		s, err := a.settings()
		if err != nil {
			return err
		}
		c.app, c.settings, c.names = a, s, args
		return c.run(cmd.Context())
	})
	flags := cmd.Flags()
	flags.StringVar(&at, "at", "", "what is due at this `time`, not now")
	flags.BoolVar(&c.sql, "sql", false, "print the statement that finds the rows, and its EXPLAIN")
	jsonFlag(cmd, &c.asJSON)
	return cmd
}

// surveyor shows what policies would delete.
type surveyor struct {
	*app
	settings    *config.Settings
	names       []string
	at          time.Time
	sql, asJSON bool
	conn        *pgx.Conn
}

func (c *surveyor) run(ctx context.Context) (err error) {
	c.conn, _, err = c.openInstalled(ctx, c.settings, session{
		command: "lapse plan", to: c.settings.Database.Executor, role: c.settings.Roles.Executor,
	})
	if err != nil {
		return err
	}
	defer closeConn(c.conn)
	surveys, err := c.surveyInForce(ctx)
	if err != nil {
		return err
	}
	if c.asJSON {
		err = c.printJSON(surveys)
	}
	for i, s := range surveys {
		if c.asJSON {
			break
		}
		if i > 0 {
			fmt.Fprintln(c.out)
		}
		c.print(s)
	}
	if err == nil && slices.ContainsFunc(surveys, func(s *planner.Survey) bool { return s.Trouble != "" }) {
		err = errNeedsPerson
	}
	if err != nil {
		return err
	}
	if len(surveys) == 0 {
		fmt.Fprintln(c.out, "no policy is in force: lapse apply -f FILE brings some")
	}
	return nil
}

func (c *surveyor) surveyInForce(ctx context.Context) ([]*planner.Survey, error) {
	policies, err := planner.LoadInForce(ctx, c.conn)
	if err != nil {
		return nil, err
	}
	known := make([]string, len(policies))
	for i := range policies {
		known[i] = string(policies[i].Name)
	}
	if err := c.checkNames(known); err != nil {
		return nil, err
	}
	surveys := []*planner.Survey{}
	for i := range policies {
		if !c.wants(known[i]) {
			continue
		}
		s, err := planner.SurveyInForce(ctx, c.conn, &policies[i], c.at)
		if err != nil {
			return nil, err
		}
		surveys = append(surveys, s)
	}
	return surveys, nil
}

func (c *surveyor) wants(name string) bool {
	return len(c.names) == 0 || slices.Contains(c.names, name)
}

// checkNames refuses names of policies that are not there.
func (c *surveyor) checkNames(known []string) error {
	for _, name := range c.names {
		if slices.Contains(known, name) {
			continue
		}
		return unknownPolicy(name, known)
	}
	return nil
}

// unknownPolicy says that a policy is not in force, and which are.
func unknownPolicy(name string, known []string) error {
	switch near := yamldoc.Nearest(name, known); {
	case near != "":
		return wrongUsage("there is no policy %q: did you mean %q?", name, near)
	case len(known) == 0:
		return wrongUsage("there is no policy %q: none is in force", name)
	}
	return wrongUsage("there is no policy %q: there are %s", name, strings.Join(known, ", "))
}

func (c *surveyor) print(s *planner.Survey) {
	title := fmt.Sprintf("%s on %s", s.Policy, s.Table)
	if s.Version > 0 {
		title = fmt.Sprintf("%s, version %d, %s, on %s", s.Policy, s.Version, s.State, s.Table)
	}
	fmt.Fprintln(c.out, title)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(c.out, "  %-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	if s.Trouble != "" {
		line("trouble", "%s: nothing was counted, and nothing is deleted", s.Trouble)
		return
	}
	line("due", "%d rows at %s", s.Due, s.At.UTC().Format(time.RFC3339))
	if s.Oldest != nil && s.Newest != nil {
		line("from", "%s to %s", s.Oldest.UTC().Format(time.RFC3339), s.Newest.UTC().Format(time.RFC3339))
	}
	found := string(s.Method)
	if s.Index != "" {
		found += " " + s.Index
	}
	line("found by", "%s, in the order of %s", found, strings.Join(s.Order, ", "))
	if len(s.Shards) == 1 {
		line("shards", "1: %s", s.Shards[0].Name)
	} else {
		line("shards", "%d", len(s.Shards))
	}
	takes := "less than a second"
	if s.Estimate >= time.Second {
		takes = "about " + s.Estimate.Round(time.Second).String()
	}
	line("takes", "%s at %.0f rows per second (%s)", takes, s.RowsPerSecond, s.SpeedFrom)
	for _, warning := range s.Warnings {
		line("warning", "%s", warning)
	}
	if !c.sql {
		return
	}
	for _, text := range []string{s.Statement, s.Explain} {
		if text != "" {
			fmt.Fprintf(c.out, "\n%s\n", indent(text))
		}
	}
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}
