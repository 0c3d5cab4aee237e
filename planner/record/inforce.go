package record

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"lapse/planner/database"
	"lapse/planner/functions"
	"lapse/planner/policyfile"
	"lapse/planner/schedule"
	"lapse/schemas"
)

// InForce is a policy version that is in force, as it was when it was loaded. The deletion function checks version,
// state and hold version again, under the gate's lock.
type InForce struct {
	ID          schemas.PolicyID
	Version     schemas.PolicyVersion
	Name        schemas.PolicyName
	State       schemas.State
	Since       time.Time // when it came into this state
	ArmedAt     time.Time // as Since, but an edit of a live policy does not count: when a person last said yes to what is due
	Schedule    schedule.Schedule
	Definition  functions.Definition
	TableOID    uint32
	TableName   string
	HoldVersion schemas.HoldVersion
	Batch       int
	Limits      policyfile.Limits
	LastRun     *Run                  // the one begun last, of any version
	LastPicked  int64                 // rows that it found
	CutShort    bool                  // it was of another version, and unfinished when this version came into force
	Unfinished  *Run                  // the run of this version to continue
	LookedAt    time.Time             // when a look last found nothing due, if known
	HeldVersion schemas.PolicyVersion // the version that waits for a person, because more falls due under it; 0 for none
	LeftBehind  bool                  // the last run left due rows that were locked
	Trusted     bool                  // triggers may run inside its deletions, and delete more from its table
	Tripped     *Trip                 // nil while no breaker is open
	Accepted    int64                 // rows that a person allowed: the next run deletes at most these, without the breaker
	Quarantine  Quarantine
	PutAside    int        // shards of the last run in which not even one row was found in time
	Ended       *EndedRun  // the run that ended last; nil for none
	Success     *time.Time // when a run last ended that tried all due rows; nil for never
	Watermark   *time.Time // no row that fell due before was left then, except held ones; nil if not known
	Counted     *Counted   // what is due while the policy cannot delete; nil if it was not counted
	Latitude    time.Duration
	Said        []Stay // why due rows stay, as running executors report
	Refused     *Stay  // why the last pass of an ended executor was stopped, if none has tried since
	Trouble     string // why the table is no longer the policy's, "" while it is

	Spec Spec
	Held *Version // the version that is held back, nil if it is the one in force, or if there is none

	outdated func() error // see Know
}

// NextRun returns when the policy's next run is due. An unfinished run is due since it began. So is the rest of a run that a new version cut short.
// A look that found nothing counts as a run.
func (p *InForce) NextRun() (time.Time, error) { return p.NextRunSince(p.LookedAt) }

// NextRunSince is NextRun if a look last found nothing due at lookedAt.
func (p *InForce) NextRunSince(lookedAt time.Time) (time.Time, error) {
	if p.Unfinished != nil {
		return p.Unfinished.StartedAt, nil
	}
	var last time.Time
	if p.LastRun != nil {
		last = p.LastRun.StartedAt
	}
	if lookedAt.After(last) {
		return p.Schedule.Next(lookedAt, p.Since)
	}
	if p.CutShort {
		return last, nil
	}
	next, err := p.Schedule.Next(last, p.Since)
	limited := p.Ended != nil && p.Ended.Limited // what a run may delete is not to be had again before its time, for a row that was locked
	if soon := last.Add(leftBehindPause); p.LeftBehind && !limited && soon.Before(next) {
		next = soon
	}
	return next, err
}

// Current is the version in force.
func (p *InForce) Current() *Version {
	return &Version{Table: p.TableOID, Definition: p.Definition, Spec: p.Spec}
}

// Waiting is the policy as it would be with the held-back version in force; nil if no other version waits.
func (p *InForce) Waiting() *InForce {
	if p.Held == nil {
		return nil
	}
	is := *p
	is.Version, is.Definition, is.Spec, is.Held, is.outdated = p.HeldVersion, p.Held.Definition, p.Held.Spec, nil, nil
	is.Schedule, is.Batch, is.Limits, is.Trusted = is.Spec.Schedule(is.Name), is.Definition.Batch, is.Spec.Limits, is.Spec.Triggers.Trusted
	is.State, is.LastRun, is.Unfinished, is.Tripped, is.Accepted = schemas.Observing, nil, nil, nil, 0
	return &is
}

// HeldVersionText says which version waits and for what, and what is deleted meanwhile; "" if none waits.
func (p *InForce) HeldVersionText() string { return HeldVersionText(p.Name, p.Version, p.HeldVersion) }

// Live reports whether a policy in this state deletes, or will without another decision of a person.
func Live(s schemas.State) bool { return s == schemas.Arming || s == schemas.Armed }

// leftBehindPause is how soon a run follows one that left locked due rows.
const leftBehindPause = 5 * time.Minute

// inForceRow is a row of LoadInForce's query.
type inForceRow struct {
	Is                string // of VersionSQL, as of Held
	State             schemas.State
	HoldVersion       schemas.HoldVersion
	Since             time.Time
	ArmedAt           time.Time
	LastRun           pgtype.UUID
	LastVersion       *schemas.PolicyVersion
	LastCutoff        *time.Time
	LastStarted       *time.Time
	LastPicked        int64
	CutShort          bool
	UnfinishedRun     pgtype.UUID
	UnfinishedCutoff  *time.Time
	UnfinishedStarted *time.Time
	LookedAt          *time.Time
	HeldVersion       schemas.PolicyVersion
	LeftBehind        bool
	TrippedAt         *time.Time
	TrippedDue        *int64
	TrippedRows       *int64
	TrippedCause      *TripCause
	TrippedCompared   *int64
	Accepted          int64
	Quarantined       int64
	OldestQuarantined *time.Time
	NextTry           *time.Time
	PutAside          int
	EndedAt           *time.Time
	EndedLimited      *bool
	LeftDue           *int64
	LeftHeld          *int64
	EndedWatermark    *time.Time
	Success           *time.Time
	Watermark         *time.Time
	CountedAt         *time.Time
	CountedDue        *int64
	CountedExact      *bool
	CountedOldest     *time.Time
	Latitude          float64
	SaidReasons       []schemas.HeldBack
	SaidTexts         []string
	SaidStops         []bool
	RefusedAt         *time.Time
	RefusedReason     schemas.HeldBack
	RefusedText       string
	TableNow          *string // the table's name, nil when it is gone
	Held              *string // the version that is held back, if another one is in force
}

// inForceSQL reads the policies that are not dropped. It needs no more than the executor's rights.
const inForceSQL = `
		select ` + VersionSQL + `, g.state, g.hold_version, coalesce(since.at, p.made_at), coalesce(since.armed_at, since.at, p.made_at),
		       last.run, last.version, last.cutoff, last.started_at, coalesce(last.picked, 0), coalesce(last.version <> g.version and last.left_off, false),
		       unfinished.run, unfinished.cutoff, unfinished.started_at,
		       (select l.at from lapse.looked l where l.policy_id = g.policy_id and l.at <= clock_timestamp()), coalesce(g.held_back, 0), coalesce(last.left_behind, false),
		       case when b.accepted is null then b.at end, b.due, b.table_rows, b.cause, b.compared,
		       coalesce(case when b.accepted_at > coalesce(last.started_at, '-infinity') then b.accepted end, 0),
		       coalesce(quarantined.entries, 0), quarantined.oldest, quarantined.next_try,
		       coalesce(last.aside, 0), ended.ended_at, ended.limited, ended.left_due, ended.left_held, ended.watermark, success.ended_at, mark.watermark,
		       counted.counted_at, counted.due, counted.exact, counted.oldest, coalesce(extract(epoch from (p.spec ->> 'latitude')::interval), 86400)::float8,
		       said.reasons, said.texts, said.stops, refused.at, coalesce(refused.held_back, ''), coalesce(refused.reason, ''),
		       (select format('%I.%I', n.nspname, c.relname)
		          from pg_class c join pg_namespace n on n.oid = c.relnamespace
		         where c.oid = g.table_oid),
		       (select ` + VersionSQL + ` from lapse.policy p where p.id = g.policy_id and p.version = g.held_back and g.held_back <> g.version)
		  from lapse.gate g
		  join lapse.policy p on p.id = g.policy_id and p.version = g.version
		 cross join lateral (
		    select max(c.after_run) as after_run
		      from (select c.after_run from lapse.clock c order by c.id desc limit 1) c
		  ) clock
		  left join lateral (
		    select least(max(s.changed_at) filter (where s.state = g.state), clock_timestamp()) as at,
		           least(max(s.changed_at) filter (where not s.continues), clock_timestamp()) as armed_at
		      from lapse.policy_state s
		     where s.policy_id = g.policy_id and (s.state = g.state or g.state = 'armed' and s.state = 'arming')
		  ) since on true
		  left join lateral (
		    select r.run, r.version, r.cutoff, r.started_at, (select sum(s.picked)::bigint from lapse.shard s where s.run = r.run) as picked,
		           exists (select from lapse.shard s where s.run = r.run and (s.left_behind or s.aside and s.sqlstate = '55P03')) as left_behind,
		           (select count(*)::int from lapse.shard s where s.run = r.run and s.aside and not s.done and s.sqlstate <> '55P03') as aside,
		           r.lost_shards or exists (select from lapse.shard s where s.run = r.run and not s.done and not s.aside) as left_off
		      from lapse.run r
		     where r.policy_id = g.policy_id and r.number > coalesce(clock.after_run, 0)
		     order by r.number desc
		     limit 1
		  ) last on true
		  left join lateral (
		    select r.run, r.cutoff, r.started_at
		      from lapse.run r
		     where r.policy_id = g.policy_id and r.version = g.version
		       and exists (select from lapse.shard s where s.run = r.run and not s.done and not s.aside)
		     order by r.number desc
		     limit 1
		  ) unfinished on true
		  left join lateral (
		    select r.ended_at, coalesce(r.ended_by = 'max_rows_per_run', false) as limited, r.left_due, r.left_held, r.watermark
		      from lapse.run r
		     where r.policy_id = g.policy_id and r.ended_at is not null
		     order by r.number desc
		     limit 1
		  ) ended on true
		  left join lateral (
		    select r.ended_at
		      from (select o.run, o.number, o.ended_at, o.outcome from lapse.run o where o.policy_id = g.policy_id order by o.number desc limit 5000) r
		     where r.outcome = 'done' and r.ended_at is not null
		       and coalesce((select false from lapse.shard s where s.run = r.run and s.aside and s.done is not true limit 1), true) -- by the run's index, as far as the first
		     order by r.number desc
		     limit 1
		  ) success on true
		  left join lateral (
		    select r.watermark
		      from (select o.number, o.watermark from lapse.run o where o.policy_id = g.policy_id order by o.number desc limit 200) r
		     where r.watermark is not null
		     order by r.number desc
		     limit 1
		  ) mark on true
		  left join lapse.looked counted on counted.policy_id = g.policy_id and counted.counted_at <= clock_timestamp()
		 cross join lateral (
		    select coalesce(array_agg(w.held_back order by w.at desc), '{}') as reasons, coalesce(array_agg(w.reason order by w.at desc), '{}') as texts,
		           coalesce(array_agg(w.state = 'stopped' order by w.at desc), '{}') as stops
		      from lapse.worker w
		     where w.policy_id = g.policy_id and w.held_back <> '' and w.at > clock_timestamp() - interval '25 seconds' and w.holder <> '` + LastPass + `'
		  ) said
		  left join lateral (
		    select w.at, w.held_back, w.reason
		      from lapse.worker w
		     where w.holder = '` + LastPass + `' and w.policy_id = g.policy_id and w.held_back <> ''
		       and w.at > greatest(since.at, p.made_at, last.started_at, ended.ended_at, (select l.at from lapse.looked l where l.policy_id = g.policy_id))
		       and not exists (select from lapse.worker o where o.policy_id = g.policy_id and o.at > w.at)
		  ) refused on true
		  left join lapse.breaker b on b.policy_id = g.policy_id and b.version = g.version
		  left join (
		    select q.policy_id, count(*) as entries, min(q.entered_at) as oldest, min(q.retry_at) as next_try
		      from lapse.quarantine q
		     group by q.policy_id
		  ) quarantined on quarantined.policy_id = g.policy_id
		 where g.state <> 'dropped'
		 order by g.name`

// LoadInForce returns every policy that is not dropped, by name. It needs no more than the executor's rights.
func LoadInForce(ctx context.Context, q database.Querier) ([]InForce, error) {
	return new(Versions).LoadInForce(ctx, q)
}

// Remedy says what to do about Trouble.
func (p *InForce) Remedy() string { return AfterChange(p.Name, true) }

func (r *inForceRow) inForce(is, held *Version) InForce {
	d, text := &is.Definition, is.Spec
	p := InForce{
		ID: d.ID, Version: d.Version, Name: d.Name, State: r.State, Since: r.Since, ArmedAt: r.ArmedAt, Schedule: text.Schedule(d.Name), Definition: *d,
		TableOID: is.Table, TableName: d.Table, HoldVersion: r.HoldVersion, Batch: d.Batch, Limits: text.Limits,
		LastPicked: r.LastPicked, CutShort: r.CutShort, HeldVersion: r.HeldVersion, LeftBehind: r.LeftBehind, Accepted: r.Accepted, Trusted: text.Triggers.Trusted, Spec: text, Held: held,
	}
	if r.TrippedAt != nil {
		p.Tripped = &Trip{Cause: *r.TrippedCause, At: *r.TrippedAt, Due: *r.TrippedDue, Rows: *r.TrippedRows, Compared: *r.TrippedCompared}
	}
	if r.Quarantined > 0 {
		p.Quarantine = Quarantine{Rows: r.Quarantined, Oldest: *r.OldestQuarantined, NextTry: *r.NextTry}
	}
	r.ended(&p)
	if r.LookedAt != nil {
		p.LookedAt = *r.LookedAt
	}
	switch {
	case r.TableNow == nil:
		p.Trouble = d.Table + " is gone"
	case *r.TableNow != d.Table:
		p.Trouble = d.Table + " is " + *r.TableNow + " now"
	}
	if r.LastRun.Valid {
		p.LastRun = &Run{ID: uuid.UUID(r.LastRun.Bytes), Policy: d.ID, Version: *r.LastVersion, Cutoff: *r.LastCutoff, StartedAt: *r.LastStarted}
	}
	if r.UnfinishedRun.Valid {
		p.Unfinished = &Run{
			ID: uuid.UUID(r.UnfinishedRun.Bytes), Policy: d.ID, Version: d.Version, Cutoff: *r.UnfinishedCutoff,
			StartedAt: *r.UnfinishedStarted, Resumed: true,
		}
	}
	return p
}

// KeyNames are the columns of the key, in the order in which the quarantine has their values.
func (p *InForce) KeyNames() []string {
	names := make([]string, len(p.Definition.Key))
	for i := range p.Definition.Key {
		names[i] = p.Definition.Key[i].Name
	}
	return names
}

// HeldVersionText says which version waits for whom, and what is deleted meanwhile; "" if none waits.
func HeldVersionText(policy schemas.PolicyName, inForce, held schemas.PolicyVersion) string {
	if held == 0 {
		return ""
	}
	meanwhile := "nothing is deleted until then"
	if inForce != held {
		meanwhile = fmt.Sprintf("version %d goes on until then", inForce)
	}
	return fmt.Sprintf("version %d is held back: `lapse policy arm %s --version %[1]d` says yes, and %[3]s", held, policy, meanwhile)
}

// AfterChange says what to do about a policy whose table has changed since apply. gone: the table may be gone, and then apply refuses a file that
// names it. Apply does not arm a policy that it must compare again.
func AfterChange(policy schemas.PolicyName, gone bool) string {
	text := fmt.Sprintf("run `lapse apply`, and then `lapse policy arm %s` if that leaves it observing", policy)
	if gone {
		text += "; if the table is gone for good, take the policy out of its file and run `lapse apply --prune`"
	}
	return text
}
