package change

import (
	"context"
	"fmt"

	"lapse/planner/database"
	"lapse/planner/record"
	"lapse/schemas"
)

// Before a file may arm a version, the version is compared with what was accepted: the version in force, unless it waits for a person itself,
// and the last armed version, under the policy's name and on its table. So neither two small steps, nor another name, nor a name that comes
// back can arm more than a person has accepted.

// versionKey names a policy version.
type versionKey struct {
	id      schemas.PolicyID
	version schemas.PolicyVersion
}

// formerVersions are the versions that a person has accepted in this database.
type formerVersions struct {
	armed    map[schemas.PolicyID]*record.Version // the last of each policy that was armed
	armedOn  map[uint32]*record.Version           // the last on each table
	inForce  map[versionKey]*record.Version
	newestID map[schemas.PolicyName]storedName // all names that ever were in force
}

// storedName is a policy name that is or was in force. A name keeps its id forever, so it has one history.
type storedName struct {
	Name    schemas.PolicyName
	ID      schemas.PolicyID
	Version schemas.PolicyVersion // the newest
	InForce schemas.PolicyVersion // or the last that was
}

// lastArmedSQL finds versions that are armed or arming, or were: the last of each policy, and the last on each table.
const lastArmedSQL = `
	with was as (
	  select s.policy_id, s.version, p.table_oid, max(s.changed_at) as at
	    from lapse.policy_state s
	    join lapse.policy p on p.id = s.policy_id and p.version = s.version
	   where s.state in ('arming', 'armed')
	   group by s.policy_id, s.version, p.table_oid
	), last(policy_id, version, on_table) as (
	  (select distinct on (was.policy_id) was.policy_id, was.version, false from was order by was.policy_id, was.version desc)
	  union all
	  (select distinct on (was.table_oid) was.policy_id, was.version, true
	     from was order by was.table_oid, was.at desc, was.policy_id desc, was.version desc)
	)
	select ` + record.VersionSQL + `, last.on_table
	  from last
	  join lapse.policy p on p.id = last.policy_id and p.version = last.version`

// heldAgainstSQL finds, for versions in force that wait for a person, the versions that they were held back against.
const heldAgainstSQL = `
	select ` + record.VersionSQL + `, false
	  from lapse.gate g
	  join lapse.policy v on v.id = g.policy_id and v.version = g.version
	  join lapse.policy p on p.id = g.policy_id and p.version = (v.spec ->> 'held_against')::int
	 where g.held_back = g.version`

// loadFormerVersions reads the accepted versions.
func loadFormerVersions(ctx context.Context, q database.Querier) (*formerVersions, error) {
	f := &formerVersions{
		armed: map[schemas.PolicyID]*record.Version{}, armedOn: map[uint32]*record.Version{}, inForce: map[versionKey]*record.Version{},
		newestID: map[schemas.PolicyName]storedName{},
	}
	written, err := database.Collect[storedName](ctx, q, `
		select p.name, p.id, max(p.version), coalesce(max(g.version), 0)
		  from lapse.policy p
		  left join lapse.gate g on g.policy_id = p.id
		 group by p.name, p.id`)
	if err != nil {
		return nil, fmt.Errorf("load the policies on record: %w", err)
	}
	for _, w := range written {
		f.newestID[w.Name] = w
	}
	type row struct {
		Version record.Version
		OnTable bool
	}
	for _, query := range []string{lastArmedSQL, heldAgainstSQL} {
		rows, err := database.Collect[row](ctx, q, query)
		if err != nil {
			return nil, fmt.Errorf("load the versions that were armed: %w", err)
		}
		for i := range rows {
			v := &rows[i].Version
			switch id := v.Definition.ID; {
			case query == heldAgainstSQL:
				f.inForce[versionKey{id, v.Definition.Version}] = v
			case rows[i].OnTable:
				f.armedOn[v.Table] = v
			default:
				f.armed[id] = v
			}
		}
	}
	return f, nil
}

// beyond says under which accepted version fewer rows may be due than under next, the next version of policy id, such as "version 3, which is in
// force"; "" for none. p is the policy in force, or nil. A policy that sets a column, and the one that deletes what is set, are compared with
// each other until each was armed itself.
func (f *formerVersions) beyond(p *record.InForce, id schemas.PolicyID, next *record.Version) string {
	more := func(v *record.Version) bool { return v != nil && record.MoreFallDue(v, next) }
	last, onTable := f.armed[id], f.armedOn[next.Table]
	if more(last) {
		return fmt.Sprintf("version %d, the last that was armed", last.Definition.Version)
	}
	partner := onTable != nil && (onTable.Spec.Soft != nil) != (next.Spec.Soft != nil) && last != nil
	if more(onTable) && onTable.Definition.ID != id && !partner {
		return fmt.Sprintf("policy %s, the last that was armed on this table", onTable.Definition.Name)
	}
	if p == nil {
		return ""
	}
	if p.HeldVersion != p.Version && more(p.Current()) {
		return fmt.Sprintf("version %d, which is in force", p.Version)
	}
	if before := f.inForce[versionKey{p.ID, p.Spec.HeldAgainst}]; p.HeldVersion == p.Version && more(before) {
		return fmt.Sprintf("version %d, which was in force before", before.Definition.Version)
	}
	return ""
}
