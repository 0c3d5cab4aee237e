package record

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"lapse/planner/database"
	"lapse/schemas"
)

// LastPass is the holder in lapse.worker of why an ended process's pass was stopped: a row for each policy.
const LastPass = "last pass"

// Stay is a reason why due rows of a policy stay.
type Stay struct {
	Reason schemas.HeldBack `json:"reason"`
	Detail string           `json:"detail"` // details, and what to do about it
	// NeedsPerson says that they stay until a person acts.
	NeedsPerson bool `json:"needs_person"`

	stopped bool // the policy is stopped by an error that its executor reported
}

// EndedRun is how a policy's last run ended.
type EndedRun struct {
	At       time.Time
	Limited  bool   // at a limit
	LeftDue  *int64 // nil if not counted
	LeftHeld *int64
	// Watermark is when the oldest of LeftDue fell due; nil if not known.
	Watermark *time.Time
}

// Counted is a count of due rows while the policy could not delete.
type Counted struct {
	At     time.Time
	Due    int64
	Exact  bool       // otherwise there are more, or it is PostgreSQL's estimate
	Oldest *time.Time // when the oldest of them fell due; nil if not known
}

// Overdue is what is known about a policy's due rows, from the latest source: a look that found none, the end of a run, the breaker, or a
// count. It is nil if nothing is known: a run has begun or ended since, and what it left was not counted.
func (p *InForce) Overdue() *Counted {
	known := Counted{At: p.LookedAt, Exact: true}
	if p.LastRun != nil && p.LastRun.StartedAt.After(known.At) {
		known = Counted{At: p.LastRun.StartedAt, Due: unknownDue}
	}
	if e := p.Ended; e != nil && e.At.After(known.At) {
		known = Counted{At: e.At, Due: unknownDue}
		if e.LeftDue != nil {
			known = Counted{At: e.At, Due: *e.LeftDue, Exact: true, Oldest: e.Watermark}
		}
	}
	if t := p.Tripped; t != nil && t.At.After(known.At) {
		known = Counted{At: t.At, Due: t.Due, Exact: true, Oldest: &t.At} // the oldest was due by then
	}
	if c := p.Counted; c != nil && c.At.After(known.At) && (!Live(p.State) || c.At.After(p.Since)) { // what was counted before it was armed is old
		oldest := known.Oldest
		if known = *c; known.Due > 0 && known.Oldest == nil && p.Tripped != nil {
			known.Oldest = oldest
		}
	}
	if known.At.IsZero() || known.Due == unknownDue {
		return nil
	}
	return &known
}

// unknownDue is a number of due rows that was not counted.
const unknownDue = -1

// OverdueFor is how long the oldest due row has been due, as far as known; if it was not counted, how long a run has been due that tries all due
// rows. Runs that a lock kept from some of them, and from counting them, come and go meanwhile.
func (p *InForce) OverdueFor(now time.Time) time.Duration {
	o := p.Overdue()
	switch {
	case o != nil && o.Due > 0 && o.Oldest != nil:
		return max(0, now.Sub(*o.Oldest))
	case o == nil && Live(p.State):
		whole := p.LookedAt
		if p.Success != nil && p.Success.After(whole) {
			whole = *p.Success
		}
		if since, err := p.Schedule.Next(whole, p.Since); err == nil {
			return max(0, now.Sub(since))
		}
	}
	return 0
}

// Stays says why due rows of the policy stay, the reason that needs a person most first. whole is why nothing is deleted in the whole database, nil
// if something is; more are reasons that only executors at work know. If no row is known to be due, the only reason is an error that stopped the
// policy. Rows that wait only for the policy's schedule do not count.
func (p *InForce) Stays(now time.Time, whole *Stay, more ...Stay) []Stay {
	var all []Stay
	add := func(reason schemas.HeldBack, detail string) {
		at := slices.IndexFunc(all, func(s Stay) bool { return s.Reason == reason })
		switch {
		case at < 0:
			all = append(all, Stay{Reason: reason, Detail: detail})
		case detail != "":
			all[at].Detail = detail // the detail of the executors at work
		}
	}
	if !p.nothingDue(now) {
		if p.State == schemas.Paused {
			add(schemas.HeldByPause, fmt.Sprintf("the policy is paused: `lapse policy resume %s`", p.Name))
		}
		if Live(p.State) {
			p.stops(now, whole, add)
		}
	}
	if p.HeldVersion != 0 { // what is due under that version is not counted
		add(schemas.HeldByVersion, p.HeldVersionText())
	}
	if Live(p.State) {
		p.leaves(now, add)
		for _, s := range more {
			// The error that stopped the policy also stopped the look that would show whether a row is due.
			if s.stopped || !p.nothingDue(now) {
				add(s.Reason, s.Detail)
			}
		}
	}
	late := p.OverdueFor(now) > p.Latitude
	for i := range all {
		all[i].NeedsPerson = all[i].Reason.NeedsPerson(late)
	}
	slices.SortStableFunc(all, func(a, b Stay) int {
		return cmp.Compare(slices.Index(schemas.HeldBackReasons, a.Reason), slices.Index(schemas.HeldBackReasons, b.Reason))
	})
	return all
}

// believed is how long "no row is due" is used: rows fall due, and executors at work look more often.
const believed = 10 * time.Minute

// Stopped is why nothing is deleted in the whole database, by the switch and by what executors at work report; nil if nothing is stopped.
func Stopped(ctx context.Context, q database.Querier) (*Stay, error) {
	all, err := database.Collect[struct{ Reason, Detail string }](ctx, q, `
		select * from (
		  (select case when h.alarm then 'guard' else 'pause' end,
		          format('every deletion in this database was paused at %s UTC by %s: %s: `+"`lapse resume --all --reason TEXT`"+`',
		                 to_char(h.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'), left(h.by, 63), left(h.reason, 500))
		     from (select * from lapse.halt order by id desc limit 1) h
		    where h.halted)
		  union all
		  (select w.held_back, w.reason from lapse.worker w
		    where w.policy_id = 0 and w.held_back <> '' and w.at > clock_timestamp() - interval '25 seconds'
		    order by w.at desc limit 1)) s
		 limit 1`)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &Stay{Reason: schemas.HeldBack(all[0].Reason), Detail: all[0].Detail}, nil
}

// Unattended are the policies that would delete and are late by more than their latitude, while no executor has reported for two minutes;
// none if every deletion is paused. It is no reason of Stays, because a running executor reports its own.
func Unattended(ctx context.Context, q database.Querier, policies []InForce, now time.Time) ([]schemas.PolicyName, error) {
	late := []schemas.PolicyName{}
	for i := range policies {
		p := &policies[i]
		next, err := p.NextRun()
		if Live(p.State) && err == nil && max(now.Sub(next), p.OverdueFor(now)) > p.Latitude {
			late = append(late, p.Name)
		}
	}
	if len(late) == 0 {
		return late, nil
	}
	var attended bool
	err := q.QueryRow(ctx, `
		select exists (select from lapse.worker w where w.policy_id = 0 and w.at > clock_timestamp() - interval '2 minutes')
		       or coalesce((select h.halted from lapse.halt h order by h.id desc limit 1), false)`).Scan(&attended)
	if err != nil {
		return nil, fmt.Errorf("ask whether an executor runs: %w", err)
	}
	if attended {
		return []schemas.PolicyName{}, nil
	}
	return late, nil
}

// UnattendedText names them, "" for none.
func UnattendedText(late []schemas.PolicyName) string {
	if len(late) == 0 {
		return ""
	}
	named := make([]string, 0, 3)
	for _, name := range late[:min(len(late), cap(named))] {
		named = append(named, string(name))
	}
	text := "late by more than their latitude: " + strings.Join(named, ", ")
	if more := len(late) - len(named); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// nothingDue reports whether no row is known to be due.
func (p *InForce) nothingDue(now time.Time) bool {
	o := p.Overdue()
	return o != nil && o.Due == 0 && now.Sub(o.At) < believed
}

// stops adds what keeps the policy's next run from beginning, or its open one from continuing.
func (p *InForce) stops(now time.Time, whole *Stay, add func(schemas.HeldBack, string)) {
	next, err := p.NextRun()
	due := err == nil && !next.After(now)
	if whole != nil && due {
		add(whole.Reason, whole.Detail)
	}
	if p.Tripped != nil {
		add(schemas.HeldByBreaker, fmt.Sprintf("%v: `lapse policy arm %s --accept N` deletes N rows, once", p.Tripped, p.Name))
	}
	if w := p.Schedule.Window; w != nil {
		whenever := *p
		whenever.Schedule.Window = nil
		next, err := whenever.NextRun()
		if open, until, failed := w.Open(now); err == nil && failed == nil && !open && !next.After(now) {
			add(schemas.HeldByWindow, fmt.Sprintf("its window %s is closed until %s", w, until.UTC().Format(time.RFC3339)))
		}
	}
}

// leaves adds why the last run left due rows, and the next one would, unless a count says otherwise.
func (p *InForce) leaves(now time.Time, add func(schemas.HeldBack, string)) {
	if p.Trouble != "" {
		add(schemas.HeldByGuard, p.Trouble+": "+p.Remedy())
	} else if outdated := p.Outdated(); outdated != nil {
		add(schemas.HeldByGuard, outdated.Error())
	}
	if p.Refused != nil && !p.nothingDue(now) {
		add(p.Refused.Reason, p.Refused.Detail)
	}
	if p.Quarantine.Rows > 0 {
		add(schemas.HeldByQuarantine, fmt.Sprintf("%s, next try %s: `lapse quarantine list %s`", &p.Quarantine, p.Quarantine.NextTry.UTC().Format(time.RFC3339), p.Name))
	}
	if p.PutAside > 0 {
		add(schemas.HeldByQuarantine, fmt.Sprintf("not even one row of %d shards is found in time: `lapse plan %s` names the index", p.PutAside, p.Name))
	}
	if p.LeftBehind {
		add(schemas.HeldByLock, "somebody has due rows locked: pg_locks shows who")
	}
	if p.Ended != nil && p.Ended.Limited && p.Unfinished == nil && !p.nothingDue(now) {
		add(schemas.HeldByLimit, fmt.Sprintf("max_rows_per_run: %d went in the last run, and the next one goes on", p.LastPicked))
	}
}

// ended copies how runs ended, and what was counted.
func (r *inForceRow) ended(p *InForce) {
	p.PutAside, p.Success, p.Watermark, p.Latitude = r.PutAside, r.Success, r.Watermark, time.Duration(r.Latitude*float64(time.Second))
	if r.EndedAt != nil {
		p.Ended = &EndedRun{At: *r.EndedAt, Limited: *r.EndedLimited, LeftDue: r.LeftDue, LeftHeld: r.LeftHeld, Watermark: r.EndedWatermark}
	}
	if r.CountedAt != nil {
		p.Counted = &Counted{At: *r.CountedAt, Due: *r.CountedDue, Exact: *r.CountedExact, Oldest: r.CountedOldest}
	}
	if r.RefusedAt != nil {
		p.Refused = &Stay{Reason: r.RefusedReason, Detail: fmt.Sprintf("the last pass, until %s: %s", r.RefusedAt.UTC().Format(time.RFC3339), r.RefusedText)}
	}
	for i, reason := range r.SaidReasons {
		p.Said = append(p.Said, Stay{Reason: reason, Detail: r.SaidTexts[i], stopped: r.SaidStops[i]})
	}
}
