package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/internal/config"
	"lapse/internal/setup/access"
	"lapse/internal/setup/apply"
	"lapse/internal/setup/site"
	"lapse/internal/yamldoc"
	"lapse/planner/change"
	"lapse/planner/database"
	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/planner/survey"
	"lapse/schemas"
)

func (a *app) planCommand() *cobra.Command {
	var c surveyor
	cmd := &cobra.Command{
		Use:   "plan [POLICY...]",
		Short: "Show what is due and how it would be found; delete nothing",
		Long: `Counts what is due under each policy in force (or those named), says how old the oldest is, what a cascade would delete, by
which index it is found, in which shards, how long deleting it would take, and what blocks it. It counts through the
policies' own functions. A version that is held back is planned next to the one in force, with the number of rows that newly fall due.

With -f it reads the policies of a file instead, which need not be applied; the database needs no "lapse init". It reports everything that
"lapse apply" of that file would refuse, including missing rights, and still counts what can be counted. It has the
rights of the login and no more, even a superuser's: nothing is written, the transaction is read only while rows are counted, and
rows are counted with the rights of the table's owner. In an installed database missing grants are tried, and undone; a login that
does not apply policies counts there, and is warned that the rest is not checked.

Beyond a million rows, or a minute, a count is an estimate and says so; --exact counts all.

Exit codes: 2 when apply would refuse a policy of the file, 3 when a policy could not be counted, or would stop and ask,
or seems to read local times by the wrong zone.`,
		Example: `  lapse plan -f policies.yaml
  lapse plan
  lapse plan sessions-30d --sql --at 2026-12-24T00:00:00Z`,
	}
	cmd.ValidArgsFunction = a.completeInForce
	var at string
	cmd.RunE = a.does(func(cmd *cobra.Command, args []string) error {
		if at != "" {
			when, err := readMoment("--at "+at, at)
			if err != nil {
				return err
			}
			if when.IsZero() { // the zero time means now
				return wrongUsage("--at %s: nothing was due then", at)
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
	flags.StringArrayVarP(&c.files, "file", "f", nil, policyFilesFlag+"; applied or not")
	flags.StringVar(&at, "at", "", "count what is due at this `time`, or at the beginning of a day in UTC, instead of now")
	flags.BoolVar(&c.exact, "exact", false, "count all, however long it takes")
	flags.BoolVar(&c.sql, "sql", false, "print the statement that finds the rows, and its EXPLAIN")
	a.verboseFlag(cmd, "name all partitions that can have due rows, and all statements that make an index")
	a.jsonFlag(cmd)
	return cmd
}

// surveyor shows what policies would delete.
type surveyor struct {
	*app
	settings   *config.Settings
	names      []string
	files      []string
	at         time.Time
	exact, sql bool
	far        *progress
}

// plan is the result for one policy.
type plan struct {
	*survey.Survey
	Errors []mistake `json:"errors"` // why a policy in a file cannot be applied
	// HeldVersion is the version of the policy that waits to be accepted, 0 for none. It has its own plan. There NewlyDue is how many rows are
	// due under it in addition to those under the version in force; nil if that was not counted.
	HeldVersion schemas.PolicyVersion `json:"held_back"`
	NewlyDue    *int64                `json:"newly_due,omitempty"`
}

// countAtMost is the number at which counting stops.
const countAtMost = 1000000

func (c *surveyor) ask() survey.Ask {
	ask := survey.Ask{At: c.at, AtMost: countAtMost}
	if c.exact {
		ask.AtMost = 0
	}
	return ask
}

// patience are the settings of a session that counts. As startup parameters they survive the RESET ALL before and after a survey.
func (c *surveyor) patience() map[string]string {
	settings := map[string]string{"lock_timeout": countLockTimeout, "statement_timeout": countStatementTimeout}
	if c.exact {
		settings["statement_timeout"] = "0"
	}
	return settings
}

func (c *surveyor) run(ctx context.Context) error {
	c.far = c.progress("policy")
	survey := c.surveyInForce
	if len(c.files) > 0 {
		survey = c.surveyFile
	}
	plans, err := survey(ctx)
	c.far.end()
	if plans == nil {
		return err
	}
	if c.asJSON {
		err = errors.Join(err, c.printJSON(plans))
	} else {
		c.printAll(plans)
	}
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(plans, func(p plan) bool {
		return p.Trouble != "" || p.Breaker.WouldTrip || p.Local != nil && p.Local.Question != ""
	}):
		return errNeedsPerson
	}
	return nil
}

func (c *surveyor) surveyInForce(ctx context.Context) ([]plan, error) {
	as := session{command: "lapse plan", to: c.settings.Database.Executor, role: c.settings.Roles.Executor, with: c.patience()}
	over, _, err := c.openInstalled(ctx, c.settings, as)
	if err != nil {
		return nil, err
	}
	defer database.Close(over)
	conn, err := c.open(ctx, c.settings, as)
	if err != nil {
		conn = over // slower: the session is cleaned for each count
	} else {
		defer database.Close(conn)
	}
	policies, err := record.LoadInForce(ctx, over)
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
	plans := []plan{}
	for i := range policies {
		if !c.wants(known[i]) {
			continue
		}
		c.far.at("counting", i+1, len(policies))
		ask := c.ask()
		ask.Over = over
		s, err := ask.InForce(ctx, conn, &policies[i])
		if err != nil {
			return nil, err
		}
		held := policies[i].HeldVersion
		plans = append(plans, plan{Survey: s, HeldVersion: held})
		waiting := policies[i].Waiting()
		if waiting == nil {
			continue
		}
		ask.At = s.At
		next, err := ask.InForce(ctx, conn, waiting)
		if err != nil {
			return nil, err
		}
		p := plan{Survey: next, HeldVersion: held}
		if newly := next.Due - s.Due; next.DueIs == survey.Exact && s.DueIs == survey.Exact {
			p.NewlyDue = &newly
		}
		plans = append(plans, p)
	}
	return plans, nil
}

// draft checks policies before they are applied, with the rights of the login that will apply them.
func (a *app) draft(s *config.Settings, command string, with map[string]string) *database.Draft {
	return &database.Draft{Roles: s.Roles, Connect: func(ctx context.Context) (*pgx.Conn, error) {
		return a.open(ctx, s, session{command: command, to: s.Database.Owner, superuser: true, with: with})
	}}
}

// surveyFile surveys the policies of a file. It returns the errors that keep them from being applied next to the plans.
func (c *surveyor) surveyFile(ctx context.Context) ([]plan, error) {
	file, err := c.readPolicyFiles(c.files)
	if err != nil {
		return nil, err
	}
	if err := c.checkNames(namesIn(file)); err != nil {
		return nil, withProblems(file, err)
	}
	draft := c.draft(c.settings, "lapse plan", c.patience())
	looks := &apply.Applier{Session: site.Session{Roles: c.settings.Roles, Log: c.log}, AuditRequired: c.settings.Audit == config.AuditRequired, Draft: draft, Far: c.far.at}
	conn, refused := c.openToApply(ctx)
	if conn != nil {
		defer database.Close(conn)
		looks.Conn = conn
	}
	changes, mistakes, err := looks.Preview(ctx, file)
	switch {
	case err != nil && refused != nil:
		return nil, withProblems(file, refused)
	case err != nil:
		return nil, withProblems(file, err)
	}
	mistakes = slices.DeleteFunc(mistakes, func(m *yamldoc.Error) bool { return !c.wants(m.Policy) && !slices.Contains(file.Problems, m) })
	plans, unfit, err := c.surveyChanges(ctx, draft, changes)
	if err != nil {
		return nil, err
	}
	mistakes = lacking(plans, append(mistakes, unfit...))
	if len(mistakes) == 0 {
		return plans, refused
	}
	mistakes = mistakes.Sorted(file.Names)
	return blame(plans, mistakes), errors.Join(mistakes, refused)
}

// mayNotApply is the warning of a policy that this login lacks rights to apply.
const mayNotApply = "this login may not apply it, and what else apply asks for was not checked: plan as the login that applies, a superuser or one with what `lapse apply --grants` prints"

// lacking makes one warning of what only this login lacks, such as right after init: the file has no mistake there, and apply says each right.
func lacking(plans []plan, mistakes yamldoc.Errors) yamldoc.Errors {
	return slices.DeleteFunc(mistakes, func(m *yamldoc.Error) bool {
		var grant *access.GrantError
		at := slices.IndexFunc(plans, func(p plan) bool { return string(p.Policy) == m.Policy })
		if at < 0 || !errors.As(m, &grant) || !grant.Login {
			return false
		}
		if s := plans[at].Survey; !slices.Contains(s.Warnings, mayNotApply) {
			s.Warnings = append(s.Warnings, mayNotApply)
		}
		return true
	})
}

// surveyChanges surveys the changes that a file makes. It returns errors for rows that do not fit next to the plans.
func (c *surveyor) surveyChanges(ctx context.Context, draft *database.Draft, changes apply.Changes) (plans []plan, unfit yamldoc.Errors, err error) {
	defer draft.Together()()
	plans = []plan{}
	for i := range changes {
		c.far.at("counting", i+1, len(changes))
		switch made := &changes[i]; {
		case made.Kind == change.Missing || !c.wants(string(made.Policy)):
		case made.Resolved == nil: // a policy in force that can do without its table
			s := survey.None(made.Policy)
			s.Table, s.Warnings = made.Table, []string{"it is paused, and its table was not read: nothing was counted"}
			if made.Unfit {
				s.Trouble, s.Warnings = strings.Join(made.Warnings, "; "), []string{}
			}
			plans = append(plans, plan{Survey: s})
		default:
			s, err := change.SurveyDraft(ctx, draft, c.ask(), made.Resolved)
			if err != nil {
				return nil, nil, err
			}
			unfit = append(unfit, made.Misfits(s)...)
			plans = append(plans, plan{Survey: s})
		}
	}
	return plans, unfit, nil
}

// openToApply opens a session like apply. It returns nil, without an error, if Lapse is not installed, because a plan needs no installation:
// missing roles, or roles that belong to another database's installation, are no obstacle. It does not need the role that applies either: a login
// that can read the table may see what would be deleted.
func (c *surveyor) openToApply(ctx context.Context) (*pgx.Conn, error) {
	as := session{command: "lapse plan", to: c.settings.Database.Owner, superuser: true, with: c.patience()}
	login, err := c.open(ctx, c.settings, as)
	if err != nil {
		return nil, err
	}
	defer database.Close(login)
	var there bool
	if err := login.QueryRow(ctx, `select to_regnamespace('lapse') is not null`).Scan(&there); err != nil || !there {
		return nil, err
	}
	as.role = c.settings.Roles.Owner
	conn, _, err := c.openInstalled(ctx, c.settings, as)
	var refused *connectError
	switch {
	case errors.Is(err, site.ErrNotInstalled):
		return nil, nil
	case errors.As(err, &refused) && schemas.StateOf(err) == schemas.SQLStateInsufficientPrivilege:
		c.log.Warn("rows are counted; whether apply would refuse the file for what is installed here is not checked: this login does not apply policies",
			"login", refused.login, "fix", "--database with the login that applies: a superuser, or a member of "+c.settings.Roles.Owner)
		return nil, nil
	}
	return conn, err
}

// namesIn returns the names in a file, including those of policies with mistakes.
func namesIn(file *policyfile.File) []string {
	var known []string
	for _, p := range file.Policies {
		known = append(known, string(p.Name))
	}
	for _, problem := range file.Problems {
		if problem.Policy != "" && !slices.Contains(known, problem.Policy) {
			known = append(known, problem.Policy)
		}
	}
	return known
}

// blame adds mistakes to the plans of their policies. A policy without a plan gets one without counts.
func blame(plans []plan, mistakes yamldoc.Errors) []plan {
	for _, m := range mistakes {
		at := slices.IndexFunc(plans, func(p plan) bool { return string(p.Policy) == m.Policy })
		if at < 0 {
			at = len(plans)
			plans = append(plans, plan{Survey: survey.None(schemas.PolicyName(m.Policy))})
		}
		plans[at].Errors = append(plans[at].Errors, mistakeIn(m))
	}
	return plans
}

func (c *surveyor) wants(name string) bool {
	return len(c.names) == 0 || slices.Contains(c.names, name)
}

// checkNames refuses names of unknown policies.
func (c *surveyor) checkNames(known []string) error {
	for _, name := range c.names {
		if !slices.Contains(known, name) {
			return unknownPolicy(name, known)
		}
	}
	return nil
}

// unknownPolicy says that a policy does not exist, and which policies do.
func unknownPolicy(name string, known []string) error {
	switch near := yamldoc.Nearest(name, known); {
	case near != "":
		return wrongUsage("there is no policy %q: did you mean %q?", name, near)
	case len(known) == 0:
		return wrongUsage("there is no policy %q: none is in force", name)
	}
	return wrongUsage("there is no policy %q: there are %s", name, strings.Join(known, ", "))
}
