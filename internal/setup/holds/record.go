package holds

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/schemas"
)

// Record is a hold as published, with its state.
type Record struct {
	ID       schemas.HoldID `json:"hold"`
	Table    string         `json:"table"`
	Columns  []string       `json:"columns"`        // the columns that it reads
	Keys     *int64         `json:"keys,omitempty"` // how many; nil: it is a condition
	Matter   string         `json:"matter"`
	Reason   string         `json:"reason"`
	PlacedAt time.Time      `json:"placed_at"`
	PlacedBy string         `json:"placed_by"`
	State    string         `json:"state"` // requested, effective, releasing or released
	// EnforcedUntil is when a hold that is being released ends.
	EnforcedUntil *time.Time `json:"enforced_until,omitempty"`
	// EffectiveAt is a position of the log above which every commit obeys the hold; "" while it is requested.
	EffectiveAt string `json:"effective_at,omitempty"`
	Digest      string `json:"digest"`
}

// Change is a change of a hold's state.
type Change struct {
	State         string     `json:"state"`
	At            time.Time  `json:"at"`
	By            string     `json:"by"`
	Reason        string     `json:"reason,omitempty"`
	MovedTo       string     `json:"moved_to"` // the table; "" if it did not move
	EnforcedUntil *time.Time `json:"enforced_until,omitempty"`
	Position      string     `json:"position"`
}

// Read lists the holds by number: all of them, or only the enforced ones.
func Read(ctx context.Context, q database.Querier, released bool) ([]Record, error) {
	rows, _ := q.Query(ctx, `
		select h.id, coalesce((select m.table_name from lapse.hold_state m where m.hold = h.id and m.table_oid is not null order by m.id desc limit 1), h.table_name),
		       array(select c ->> 'name' from jsonb_array_elements(h.columns) c), h.keys, h.matter, h.reason, h.placed_at, h.placed_by,
		       case when s.enforced_until <= clock_timestamp() then 'released' else s.state end, s.enforced_until,
		       coalesce((select e.position::text from lapse.hold_state e
		                  where e.hold = h.id and e.state = 'effective'
		                    and e.id > (select max(r.id) from lapse.hold_state r where r.hold = h.id and r.state = 'requested')), ''),
		       encode(h.digest, 'hex')
		  from lapse.hold h
		 cross join lateral (select s.state, s.enforced_until from lapse.hold_state s where s.hold = h.id order by s.id desc limit 1) s
		 where $1 or s.state <> 'released' and coalesce(s.enforced_until > clock_timestamp(), true)
		 order by h.id`, released) // CollectRows has its error
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Record])
	if err != nil {
		return nil, fmt.Errorf("list the holds: %w", err)
	}
	return all, nil
}

// ReadChanges lists the changes of a hold's state, in order.
func ReadChanges(ctx context.Context, q database.Querier, id schemas.HoldID) ([]Change, error) {
	rows, _ := q.Query(ctx, `
		select s.state, s.changed_at, s.changed_by, s.reason, coalesce(s.table_name, ''), s.enforced_until, s.position::text
		  from lapse.hold_state s
		 where s.hold = $1
		 order by s.id`, id) // CollectRows has its error
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Change])
	if err != nil {
		return nil, fmt.Errorf("read the changes of hold %d: %w", id, err)
	}
	return all, nil
}

// Content is what a hold covers. It names rows: it is only shown on explicit request, and never logged.
type Content struct {
	Condition string     `json:"condition"`
	Keys      [][]string `json:"held_keys,omitempty"`
}

// ReadContent reads what a hold covers; nil if the hold is over.
func ReadContent(ctx context.Context, q database.Querier, id schemas.HoldID) (*Content, error) {
	rows, _ := q.Query(ctx, `
		select c.condition, (select jsonb_agg(k.key order by k.key)::text from lapse.hold_key k where k.hold = c.hold)
		  from lapse.hold_content c
		 where c.hold = $1`, id) // CollectRows has its error
	type content struct {
		Condition string
		Keys      *string
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[content])
	if err != nil {
		return nil, fmt.Errorf("read what hold %d is on: %w", id, err)
	}
	if len(all) == 0 {
		return nil, nil
	}
	c := &Content{Condition: all[0].Condition}
	if all[0].Keys != nil {
		if err := json.Unmarshal([]byte(*all[0].Keys), &c.Keys); err != nil {
			return nil, fmt.Errorf("read the keys of hold %d: %w", id, err)
		}
	}
	return c, nil
}
