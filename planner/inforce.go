package planner

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"lapse/schemas"
)

// InForce is a policy version that is in force, as it stood when it was loaded. The deletion function checks version,
// state and hold version again, under the gate's lock.
type InForce struct {
	ID          PolicyID
	Version     PolicyVersion
	Name        PolicyName
	State       schemas.State
	Since       time.Time // when it came into this state
	Schedule    Schedule
	Definition  Definition
	TableOID    uint32
	TableName   string
	HoldVersion int64
	Batch       int
	LastRun     *Run // the one begun last, of any version
	Unfinished  *Run // the one to go on with, of this version

	spec spec
}

// NextRun returns when the policy's next run is due. An unfinished run is due since it began.
func (p *InForce) NextRun() (time.Time, error) {
	if p.Unfinished != nil {
		return p.Unfinished.StartedAt, nil
	}
	var last time.Time
	if p.LastRun != nil {
		last = p.LastRun.StartedAt
	}
	return p.Schedule.Next(last, p.Since)
}

// inForceRow is a row of LoadInForce's query.
type inForceRow struct {
	storedPolicy
	State             schemas.State
	HoldVersion       int64
	Since             time.Time
	LastRun           pgtype.UUID
	LastVersion       *PolicyVersion
	LastCutoff        *time.Time
	LastStarted       *time.Time
	UnfinishedRun     pgtype.UUID
	UnfinishedCutoff  *time.Time
	UnfinishedStarted *time.Time
}

// LoadInForce returns every policy that is not dropped, by name. It needs no more than the executor's rights.
func LoadInForce(ctx context.Context, q Querier) ([]InForce, error) {
	rows, err := collect[inForceRow](ctx, q, `
		select `+specColumns+`, g.state, g.hold_version, coalesce(since.at, p.made_at),
		       last.run, last.version, last.cutoff, last.started_at,
		       unfinished.run, unfinished.cutoff, unfinished.started_at
		  from lapse.gate g
		  join lapse.policy p on p.id = g.policy_id and p.version = g.version
		  left join lateral (
		    select max(s.changed_at) as at
		      from lapse.policy_state s
		     where s.policy_id = g.policy_id and s.state = g.state
		  ) since on true
		  left join lateral (
		    select r.run, r.version, r.cutoff, r.started_at
		      from lapse.run r
		     where r.policy_id = g.policy_id
		     order by r.started_at desc, r.run
		     limit 1
		  ) last on true
		  left join lateral (
		    select r.run, r.cutoff, r.started_at
		      from lapse.run r
		     where r.policy_id = g.policy_id and r.version = g.version
		       and exists (select from lapse.shard s where s.run = r.run and not s.done)
		     order by r.started_at desc, r.run
		     limit 1
		  ) unfinished on true
		 where g.state <> 'dropped'
		 order by g.name`)
	if err != nil {
		return nil, fmt.Errorf("load the policies in force: %w", err)
	}
	all := make([]InForce, 0, len(rows))
	for i := range rows {
		p, err := rows[i].inForce()
		if err != nil {
			return nil, fmt.Errorf("load the policies in force: %w", err)
		}
		all = append(all, p)
	}
	return all, nil
}

func (r *inForceRow) inForce() (InForce, error) {
	definition, schedule, text, err := r.definition()
	if err != nil {
		return InForce{}, err
	}
	p := InForce{
		ID: r.ID, Version: r.Version, Name: r.Name, State: r.State, Since: r.Since, Schedule: schedule, Definition: definition,
		TableOID: r.TableOID, TableName: r.TableName, HoldVersion: r.HoldVersion, Batch: definition.Batch, spec: text,
	}
	if r.LastRun.Valid {
		p.LastRun = &Run{ID: uuid.UUID(r.LastRun.Bytes), Policy: r.ID, Version: *r.LastVersion, Cutoff: *r.LastCutoff, StartedAt: *r.LastStarted}
	}
	if r.UnfinishedRun.Valid {
		p.Unfinished = &Run{
			ID: uuid.UUID(r.UnfinishedRun.Bytes), Policy: r.ID, Version: r.Version, Cutoff: *r.UnfinishedCutoff,
			StartedAt: *r.UnfinishedStarted, Resumed: true,
		}
	}
	return p, nil
}
