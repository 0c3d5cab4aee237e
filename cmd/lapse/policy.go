package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/internal/config"
	"lapse/internal/setup/access"
	"lapse/planner"
	"lapse/schemas"
)

func (a *app) policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "State of policies",
		Long: `Lists policies, shows one and its history, and says something about policies beside their file. What they say is in the policy file, and
"lapse apply" brings it into force.`,
		Example: "  lapse policy list\n  lapse policy show sessions-30d\n  lapse policy pause sessions-30d",
		Args:    cobra.ArbitraryArgs,
		RunE:    noCommand,
	}
	cmd.AddCommand(a.policyListCommand(), a.policyShowCommand(), a.policyHistoryCommand())
	cmd.AddCommand(a.policyStateCommands()...)
	return cmd
}

func (a *app) policyListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the policies in force and their state",
		Long: `Lists the policies in force, and what a person should know of each: that it is held back, that every deletion is paused, that its table
is gone, that a row of a shard resisted. Below it stand roles that nothing needs any more.`,
		Example: "  lapse policy list --json",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			l, err := a.listPolicies(cmd.Context())
			if err != nil {
				return err
			}
			if !a.asJSON {
				return a.printPolicies(l)
			}
			for _, problem := range l.leftOver {
				a.log.Warn("a role is left over", "problem", problem)
			}
			return a.printJSON(l.lines)
		}),
	}
	a.verboseFlag(cmd, "print the last run too, and since when and why the policy is in its state")
	a.jsonFlag(cmd)
	return cmd
}

// policyList is what `lapse policy list` shows.
type policyList struct {
	at         time.Time // the server's clock
	lines      []policyLine
	halt       halt
	restored   string   // why nothing is deleted: this is not the server that somebody accepted; "" where it is
	leftOver   []string // roles that nothing needs
	unattended []schemas.PolicyName
	auditOff   bool
}

// policyLine is one policy of the list.
type policyLine struct {
	Policy       schemas.PolicyName    `json:"policy"`
	Version      schemas.PolicyVersion `json:"version"`
	State        schemas.State         `json:"state"`
	Since        time.Time             `json:"since"`
	Table        string                `json:"table"`
	Reason       string                `json:"reason,omitempty"` // why it is in its state, as it was said
	LastRun      *lastRun              `json:"last_run,omitempty"`
	Looked       *time.Time            `json:"looked_at"`             // when it was last found that nothing is due, if that is known and no run came after
	Next         *time.Time            `json:"next_run,omitempty"`    // of an armed policy
	Lag          float64               `json:"lag_seconds,omitempty"` // for how long a run has been due that is not over
	HeldBack     schemas.PolicyVersion `json:"held_back"`             // the version that waits for a yes; 0 for none
	PausedForAll bool                  `json:"paused_for_all,omitempty"`
	Suspended    string                `json:"suspended,omitempty"` // why no policy deletes: a restore, a promotion
	Tripped      string                `json:"tripped,omitempty"`   // more was due at once than was to be expected
	TrippedAt    *time.Time            `json:"tripped_at,omitempty"`
	Trouble      string                `json:"trouble,omitempty"`
	Aside        *asideShards          `json:"put_aside,omitempty"`
	Quarantine   *restingRows          `json:"quarantine,omitempty"`
	Stays        []planner.Stay        `json:"held_back_by"` // why due rows stay
	Overdue      *overdue              `json:"overdue,omitempty"`

	remedy string // what to do about Trouble, where that does not say it
}

// overdue is what is known of the due rows of a policy.
type overdue struct {
	Due       int64      `json:"due"`
	Exact     bool       `json:"exact"` // otherwise there are more, or PostgreSQL expects as many
	Oldest    *time.Time `json:"oldest_due,omitempty"`
	Seconds   float64    `json:"seconds"` // since the oldest fell due
	CountedAt time.Time  `json:"counted_at"`
}

// overdueOf is what is known of the due rows of a policy; nil where nothing is.
func overdueOf(p *planner.InForce, now time.Time) *overdue {
	o := p.Overdue()
	if o == nil {
		return nil
	}
	return &overdue{o.Due, o.Exact, o.Oldest, p.OverdueFor(now).Seconds(), o.At}
}

// text is for a person; "" where there is nothing to say.
func (o *overdue) text() string {
	if o == nil || o.Due == 0 {
		return ""
	}
	text := counted(o.Due, "row")
	if !o.Exact {
		text = "at least " + text
	}
	if o.Due == 1 {
		text += " is due"
	} else {
		text += " are due"
	}
	if o.Seconds > 0 {
		text += ", the oldest for " + short(time.Duration(o.Seconds*float64(time.Second)))
	}
	return text
}

// restingRows are the rows of a policy that could not be deleted.
type restingRows struct {
	Rows    int64     `json:"rows"`
	Oldest  time.Time `json:"oldest"`
	NextTry time.Time `json:"next_try"`
}

// quarantineOf counts the rows of a policy in quarantine; nil for none.
func quarantineOf(p *planner.InForce) *restingRows {
	if p.Quarantine.Rows == 0 {
		return nil
	}
	rows := restingRows(p.Quarantine)
	return &rows
}

// asideShards are the shards of the last run of which a row resisted.
type asideShards struct {
	Shards    int       `json:"shards"`
	SQLStates []string  `json:"sqlstates"`
	Next      time.Time `json:"next_try"`
}

// text says why, and what to do about it where the SQLSTATE alone tells.
func (a *asideShards) text() string {
	why := make([]string, len(a.SQLStates))
	for i, state := range a.SQLStates {
		why[i] = "SQLSTATE " + state
		switch state {
		case schemas.SQLStateLockNotAvailable:
			why[i] += ", somebody holds a lock: pg_locks shows who"
		case schemas.SQLStateQueryCanceled:
			why[i] += ", not even one row is found in time: `lapse plan` names the index"
		}
	}
	return fmt.Sprintf("%s put aside (%s), next try %s", counted(a.Shards, "shard"), strings.Join(why, "; "), a.Next.UTC().Format(time.RFC3339))
}

// notes are what a person should know, for the table.
func (l *policyLine) notes() []string {
	var notes []string
	for _, stay := range l.Stays {
		if stay.Reason == schemas.HeldByPause && l.PausedForAll {
			continue // it is said once, above
		}
		notes = append(notes, fmt.Sprintf("%s: %s", stay.Reason, cmp.Or(withoutName(l.Policy, stay.Detail), stay.Reason.Means())))
	}
	if due := l.Overdue.text(); due != "" && len(l.Stays) > 0 {
		notes = append(notes, due)
	}
	if l.Trouble != "" && l.State != schemas.Armed && l.State != schemas.Arming {
		note := l.Trouble
		if l.remedy != "" {
			note += ": " + l.remedy
		}
		notes = append(notes, note)
	}
	if l.Aside != nil {
		notes = append(notes, l.Aside.text())
	}
	if q := l.Quarantine; q != nil && !l.staysBy(schemas.HeldByQuarantine) {
		text := planner.Quarantine(*q)
		notes = append(notes, fmt.Sprintf("%s, next try %s: `lapse quarantine list %s`", &text, q.NextTry.UTC().Format(time.RFC3339), l.Policy))
	}
	return append(notes, l.LastRun.notes()...)
}

func (a *app) listPolicies(ctx context.Context) (*policyList, error) {
	owner, settings, err := a.openOwner(ctx, "lapse policy")
	if err != nil {
		return nil, err
	}
	defer closeConn(owner.Conn)
	return a.readPolicies(ctx, owner.Conn, settings)
}

// readPolicies reads the catalog, and nothing of a user's tables.
func (a *app) readPolicies(ctx context.Context, conn *pgx.Conn, s *config.Settings) (*policyList, error) {
	inForce, err := planner.LoadInForce(ctx, conn)
	if err != nil {
		return nil, err
	}
	l := &policyList{lines: []policyLine{}}
	if err := conn.QueryRow(ctx, `select clock_timestamp()`).Scan(&l.at); err != nil {
		return nil, fmt.Errorf("read the server's clock: %w", err)
	}
	if err := conn.QueryRow(ctx, `select not i.audit_required from lapse.installation i`).Scan(&l.auditOff); err != nil {
		return nil, fmt.Errorf("read whether an audit is required: %w", err)
	}
	if l.halt, err = readHalt(ctx, conn); err != nil {
		return nil, err
	}
	if l.restored, err = a.restored(ctx, conn, s); err != nil {
		return nil, err
	}
	whole, err := stopped(ctx, conn, l.restored)
	if err != nil {
		return nil, err
	}
	for i := range inForce {
		line, err := readPolicy(ctx, conn, &inForce[i], l, whole)
		if err != nil {
			return nil, err
		}
		l.lines = append(l.lines, line)
	}
	if l.unattended, err = planner.Unattended(ctx, conn, inForce, l.at); err != nil {
		return nil, err
	}
	l.leftOver, err = leftOverDeleters(ctx, conn)
	return l, err
}

// readPolicy reads what the list says of one policy. whole is why nothing is deleted in the whole database.
func readPolicy(ctx context.Context, conn *pgx.Conn, p *planner.InForce, l *policyList, whole *planner.Stay) (line policyLine, err error) {
	line = policyLine{
		Policy: p.Name, Version: p.Version, State: p.State, Since: p.Since, Table: p.TableName, Suspended: l.restored,
		HeldBack: p.HeldBack, PausedForAll: l.halt.Halted, Trouble: p.Trouble, Quarantine: quarantineOf(p),
		Stays: p.Stays(l.at, whole, p.Said...), Overdue: overdueOf(p, l.at),
	}
	if p.Trouble != "" {
		line.remedy = p.Remedy()
	}
	if outdated := p.Outdated(); outdated != nil && line.Trouble == "" {
		line.Trouble = outdated.Error()
	}
	if line.Reason, err = readReason(ctx, conn, p.ID); err != nil {
		return line, err
	}
	if p.Tripped != nil {
		line.Tripped, line.TrippedAt = p.Tripped.Error(), &p.Tripped.At
	}
	if line.LastRun, err = readLastRun(ctx, conn, p.ID); err != nil {
		return line, err
	}
	if !p.LookedAt.IsZero() && (line.LastRun == nil || p.LookedAt.After(line.LastRun.Started)) {
		line.Looked = &p.LookedAt
	}
	if p.State == schemas.Armed {
		next, lag, err := nextRun(p, l.at)
		if err != nil {
			return line, fmt.Errorf("policy %s: %w", p.Name, err)
		}
		line.Next, line.Lag = &next, lag.Seconds()
	}
	if p.LastRun != nil {
		if line.Aside, err = readAside(ctx, conn, p.LastRun.ID); err != nil {
			return line, err
		}
	}
	return line, nil
}

// stopped is why nothing is deleted in the whole database; nil where something is.
func stopped(ctx context.Context, conn *pgx.Conn, restored string) (*planner.Stay, error) {
	whole, err := planner.Stopped(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("ask whether nothing is deleted: %w", err)
	}
	if whole == nil && restored != "" {
		whole = &planner.Stay{Reason: schemas.HeldByGuard, Detail: restored}
	}
	return whole, nil
}

// looksNoted is how old the record of a look that found nothing may be: executors write it once a minute at most.
const looksNoted = 70 * time.Second

// nextRun is when an armed policy deletes next, in the past where it may now, and for how long it has been behind its schedule. What was
// not done before the window closed waits for it to open, and stays behind.
func nextRun(p *planner.InForce, now time.Time) (next time.Time, lag time.Duration, err error) {
	next, err = p.NextRun()
	if err == nil {
		next, err = p.Schedule.Opens(next)
	}
	if err != nil || next.After(now) {
		return next, 0, err
	}
	lag = now.Sub(next)
	if p.Unfinished == nil && lag < looksNoted {
		return now, 0, nil
	}
	opens, err := p.Schedule.Opens(now)
	if opens.After(now) {
		next = opens
	}
	return next, lag, err
}

// readAside counts what a run put aside; nil for nothing.
func readAside(ctx context.Context, conn *pgx.Conn, run uuid.UUID) (*asideShards, error) {
	var aside asideShards
	var next *time.Time
	err := conn.QueryRow(ctx, `
		select count(*), coalesce(array_agg(distinct s.sqlstate) filter (where s.sqlstate is not null), '{}'), min(s.retry_at)
		  from lapse.shard s
		 where s.run = $1 and s.aside and not s.done`, run).Scan(&aside.Shards, &aside.SQLStates, &next)
	if err != nil {
		return nil, fmt.Errorf("count the shards that were put aside: %w", err)
	}
	if aside.Shards == 0 || next == nil {
		return nil, nil
	}
	aside.Next = *next
	return &aside, nil
}

// leftOverDeleters names roles that were made for owners of tables of which none has a policy any more, and could not be
// dropped with the last one.
func leftOverDeleters(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	all, err := access.UnusedDeleters(ctx, conn)
	if err != nil {
		return nil, err
	}
	for i, role := range all {
		all[i] = fmt.Sprintf("role %[1]s is left over: no policy in force uses it: have a superuser run: drop owned by %[2]s; drop role %[2]s "+
			"(which fails while another database of this cluster uses it)", role, schemas.Identifier(role))
	}
	return all, nil
}
