package status

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// records are what the list says about policies in addition to what planner loads.
type records struct {
	reasons map[schemas.PolicyID]string
	runs    map[schemas.PolicyID]*LastRun
	asides  map[uuid.UUID]*Aside // by run
}

func readRecords(ctx context.Context, conn *pgx.Conn) (r records, err error) {
	if r.reasons, err = readReasons(ctx, conn); err != nil {
		return r, fmt.Errorf("read why policies are in their states: %w", err)
	}
	if r.runs, err = readLastRuns(ctx, conn); err != nil {
		return r, fmt.Errorf("read the last runs: %w", err)
	}
	if r.asides, err = readAsides(ctx, conn); err != nil {
		return r, fmt.Errorf("count the shards that were put aside: %w", err)
	}
	return r, nil
}

// readReasons reads why policies are in their states, "" if no reason was given. "The auditor has passed", or "no audit", only says how an
// armed policy came to be armed, so it is left out.
func readReasons(ctx context.Context, conn *pgx.Conn) (map[schemas.PolicyID]string, error) {
	rows, err := conn.Query(ctx, `
		select g.policy_id, coalesce((
		  select s.reason from lapse.policy_state s
		   where s.policy_id = g.policy_id
		     and not (s.state in ('arming', 'armed')
		              and (s.reason like 'no auditor to wait for %'
		                   or g.state = 'armed' and (s.reason = 'waiting for the auditor' or s.reason like 'the auditor has passed %')))
		   order by s.changed_at desc limit 1), '')
		  from lapse.gate g`)
	if err != nil {
		return nil, err
	}
	all, id, reason := map[schemas.PolicyID]string{}, schemas.PolicyID(0), ""
	_, err = pgx.ForEachRow(rows, []any{&id, &reason}, func() error {
		all[id] = reason
		return nil
	})
	return all, err
}

// readLastRuns reads what each policy's last run did, even if the clock is no longer compared with it. No executor continues an unfinished
// run of a former version.
func readLastRuns(ctx context.Context, conn *pgx.Conn) (map[schemas.PolicyID]*LastRun, error) {
	all := map[schemas.PolicyID]*LastRun{}
	err := readRuns(ctx, conn, "", 1, func(id schemas.PolicyID, r LastRun) { all[id] = &r })
	return all, err
}

// ReadRuns reads the last runs of a policy, the newest first.
func ReadRuns(ctx context.Context, conn *pgx.Conn, policy schemas.PolicyName, most int) ([]LastRun, error) {
	var all []LastRun
	err := readRuns(ctx, conn, policy, most, func(_ schemas.PolicyID, r LastRun) { all = append(all, r) })
	if err != nil {
		return nil, fmt.Errorf("read the last runs of policy %s: %w", policy, err)
	}
	return all, nil
}

// readRuns reads the last runs of a policy, "" for each of all.
func readRuns(ctx context.Context, conn *pgx.Conn, policy schemas.PolicyName, most int, add func(schemas.PolicyID, LastRun)) error {
	rows, err := conn.Query(ctx, `
		select g.policy_id, r.started_at, r.ended_at, r.due, t.deleted, t.cascaded, t.batches, t.refreshed, t.stepped_over, r.dropped_partitions,
		       r.left_due, r.left_held, r.left_resting, r.watermark,
		       case when r.ended_by = 'accepted' then 'by the rows that were accepted'
		            when r.ended_by is not null then 'by ' || r.ended_by
		            when t.unfinished and r.version = g.version then $1
		            when t.unfinished or r.outcome = 'cut short' or r.outcome is null and r.lost_shards then $2
		            when t.aside > 0 then 'with shards put aside'
		            when t.locked then 'with locked rows left'
		            else 'whole' end,
		       case when r.version = g.version then r.rests_since end, coalesce(r.rests_because, '')
		  from lapse.gate g
		 cross join lateral (select * from lapse.run r where r.policy_id = g.policy_id order by r.number desc limit $4) r
		 cross join lateral lapse.statistics(r.run) t
		 where $3 in ('', g.name)
		 order by r.number desc`, goesOn, cutShort, policy, most)
	if err != nil {
		return err
	}
	id, r := schemas.PolicyID(0), LastRun{}
	into := []any{
		&id, &r.Started, &r.EndedAt, &r.Due, &r.Deleted, &r.Cascaded, &r.Batches, &r.Refreshed, &r.SteppedOver, &r.Partitions,
		&r.LeftDue, &r.LeftHeld, &r.LeftResting, &r.Watermark, &r.Ended, &r.RestsSince, &r.Rests,
	}
	_, err = pgx.ForEachRow(rows, into, func() error {
		add(id, r)
		return nil
	})
	return err
}

// readAsides counts the shards that runs put aside.
func readAsides(ctx context.Context, conn *pgx.Conn) (map[uuid.UUID]*Aside, error) {
	rows, err := conn.Query(ctx, `
		select s.run, count(*), coalesce(array_agg(distinct s.sqlstate::text) filter (where s.sqlstate is not null), '{}'), min(s.retry_at)
		  from lapse.shard s
		 where s.aside and not s.done
		 group by s.run
		having min(s.retry_at) is not null`)
	if err != nil {
		return nil, err
	}
	all, run, a := map[uuid.UUID]*Aside{}, uuid.UUID{}, Aside{}
	_, err = pgx.ForEachRow(rows, []any{&run, &a.Shards, &a.SQLStates, &a.Next}, func() error {
		all[run] = &Aside{a.Shards, a.SQLStates, a.Next}
		return nil
	})
	return all, err
}
