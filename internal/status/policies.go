package status

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/access"
	"lapse/planner/record"
	"lapse/schemas"
)

// List is what `lapse policy list` shows.
type List struct {
	At         time.Time // the server's clock
	Policies   []Line
	Halt       Halt
	Suspended  string   // as given to ReadPolicies
	LeftOver   []string // roles that nothing needs
	Unattended []schemas.PolicyName
	AuditOff   bool
}

// ReadPolicies reads the catalog as its owner, and no user's tables. The number of its queries does not grow with the policies. suspended
// is why no policy deletes, if the catalog alone does not show it: no person has accepted this server; otherwise "".
func ReadPolicies(ctx context.Context, conn *pgx.Conn, suspended string) (*List, error) {
	inForce, err := record.LoadInForce(ctx, conn)
	if err != nil {
		return nil, err
	}
	l := &List{Policies: make([]Line, len(inForce)), Suspended: suspended}
	if err := conn.QueryRow(ctx, `select clock_timestamp(), not i.audit_required from lapse.installation i`).Scan(&l.At, &l.AuditOff); err != nil {
		return nil, fmt.Errorf("read the server's clock, and whether an audit is required: %w", err)
	}
	if l.Halt, err = ReadHalt(ctx, conn); err != nil {
		return nil, err
	}
	whole, err := record.Stopped(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("ask whether nothing is deleted: %w", err)
	}
	if whole == nil && suspended != "" {
		whole = &record.Stay{Reason: schemas.HeldByGuard, Detail: suspended}
	}
	found, err := readRecords(ctx, conn)
	if err != nil {
		return nil, err
	}
	for i := range inForce {
		if l.Policies[i], err = l.line(&inForce[i], &found, whole); err != nil {
			return nil, err
		}
	}
	if l.Unattended, err = record.Unattended(ctx, conn, inForce, l.At); err != nil {
		return nil, err
	}
	l.LeftOver, err = access.UnusedDeleters(ctx, conn)
	for i, role := range l.LeftOver {
		l.LeftOver[i] = fmt.Sprintf("role %[1]s is left over: no policy in force uses it: have a superuser run: drop owned by %[2]s; drop role %[2]s "+
			"(which fails while another database of this cluster uses it)", role, schemas.Identifier(role))
	}
	return l, err
}

// line is the list's line about one policy. whole is why nothing is deleted in the whole database.
func (l *List) line(p *record.InForce, found *records, whole *record.Stay) (Line, error) {
	line := Line{
		Policy: p.Name, Version: p.Version, State: p.State, Since: p.Since, Table: p.TableName, Suspended: l.Suspended,
		HeldVersion: p.HeldVersion, PausedForAll: l.Halt.Halted, Trouble: p.Trouble,
		Stays: p.Stays(l.At, whole, p.Said...), Reason: found.reasons[p.ID], LastRun: found.runs[p.ID],
	}
	if p.Trouble != "" {
		line.remedy = p.Remedy()
	}
	if outdated := p.Outdated(); outdated != nil && line.Trouble == "" {
		line.Trouble = outdated.Error()
	}
	if p.Tripped != nil {
		line.Tripped, line.TrippedAt = p.Tripped.Error(), &p.Tripped.At
	}
	if !p.LookedAt.IsZero() && (line.LastRun == nil || p.LookedAt.After(line.LastRun.Started)) {
		line.Looked = &p.LookedAt
	}
	if o := p.Overdue(); o != nil {
		line.Overdue = &Overdue{o.Due, o.Exact, o.Oldest, p.OverdueFor(l.At).Seconds(), o.At}
	}
	if p.Quarantine.Rows > 0 {
		line.Quarantine = &p.Quarantine
	}
	if p.LastRun != nil {
		line.Aside = found.asides[p.LastRun.ID]
	}
	if p.State == schemas.Armed {
		next, lag, err := nextRun(p, l.At)
		if err != nil {
			return line, fmt.Errorf("policy %s: %w", p.Name, err)
		}
		line.Next, line.Lag = &next, lag.Seconds()
	}
	return line, nil
}

// looksNoted is how old the record of a look that found nothing may be: executors write it at most once a minute.
const looksNoted = 70 * time.Second

// nextRun returns when an armed policy deletes next, in the past if it may now, and how long its run has been overdue. What was not done
// before the window closed waits until it opens, and counts as overdue.
func nextRun(p *record.InForce, now time.Time) (next time.Time, lag time.Duration, err error) {
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
