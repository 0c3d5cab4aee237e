package planner

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// Survey is what a policy would delete at an instant, and how it would go about it.
type Survey struct {
	Policy  PolicyName    `json:"policy"`
	Version PolicyVersion `json:"version,omitempty"` // 0: not applied
	State   schemas.State `json:"state,omitempty"`
	Table   string        `json:"table"`
	At      time.Time     `json:"at"` // the cutoff
	Due     int64         `json:"due"`
	Oldest  *time.Time    `json:"oldest_due,omitempty"` // the column's value, in UTC
	Newest  *time.Time    `json:"newest_due,omitempty"`

	Method Method     `json:"method"`
	Index  string     `json:"index,omitempty"` // the one that PostgreSQL would use, or that there is
	Order  []string   `json:"order"`           // what batches are ordered by
	Shards []Relation `json:"shards"`          // one for each leaf

	RowsPerSecond float64       `json:"rows_per_second"`
	PaceFrom      Pace          `json:"pace_from"`
	Estimate      time.Duration `json:"estimate_ns"`

	Statement   string `json:"statement"` // the pick on the largest leaf
	Explain     string `json:"explain,omitempty"`
	ExplainNote string `json:"explain_note,omitempty"` // why there is no EXPLAIN
}

// Method is how due rows are found.
type Method string

// The methods of finding rows.
const (
	IndexOrder Method = "index"      // in an index's order
	IndexSort  Method = "index+sort" // through an index, and then sorted
	Sequential Method = "sequential" // every batch reads the whole leaf
)

// Pace says where a speed comes from.
type Pace string

// The sources of a speed.
const (
	Measured Pace = "measured" // this policy's batches of the last week
	Stated   Pace = "stated"   // no batch of this policy yet
)

// statedPace is what deleting ran at, in rows a second, on two cores that database, broker and auditor shared: it says
// minutes or days, no more.
const statedPace = 50000

// SurveyInForce surveys a policy that is applied, through its survey function: the executor's rights are enough. at is
// the cutoff; zero is the server's clock. It takes no lock that waits or is waited for, and changes nothing.
func SurveyInForce(ctx context.Context, db DB, p *InForce, at time.Time) (*Survey, error) {
	s := &surveyor{
		definition: &p.Definition, table: p.TableOID, pace: p.ID,
		count: fmt.Sprintf("select due, oldest, newest from %s($1)", SurveyFunction(p.ID, p.Version)),
		survey: Survey{
			Policy: p.Name, Version: p.Version, State: p.State, Table: p.TableName, At: at,
		},
	}
	return s.run(ctx, db)
}

// SurveyResolved surveys a policy that is only in a file. The session must be allowed to read the table.
func SurveyResolved(ctx context.Context, db DB, r *Resolved, at time.Time) (*Survey, error) {
	d := &r.Definition
	cutoff := "$1::timestamptz"
	bound := "(" + d.bound(cutoff) + ")::" + string(d.ColumnType)
	s := &surveyor{
		definition: d, table: r.TableOID,
		count: fmt.Sprintf("select count(*), min(%s), max(%s)\n  from %s as t\n where %s <= %s\n   and %s",
			d.instant(), d.instant(), d.Table, d.column(), bound, d.due(cutoff, bound)),
		survey: Survey{Policy: r.Policy.Name, Table: d.Table, At: at},
	}
	return s.run(ctx, db)
}

// surveyor fills in a survey.
type surveyor struct {
	definition *Definition
	table      uint32
	pace       PolicyID // whose batches tell the speed; 0 for nobody's
	count      string   // $1 is the cutoff
	survey     Survey
}

func (s *surveyor) run(ctx context.Context, db DB) (*Survey, error) {
	v := &s.survey
	err := pinned(ctx, db, func(tx pgx.Tx) error {
		if v.At.IsZero() {
			if err := tx.QueryRow(ctx, `select clock_timestamp()`).Scan(&v.At); err != nil {
				return err
			}
		}
		v.At = v.At.UTC().Truncate(time.Microsecond)
		// Behind a row-security policy that hides due rows this would count none.
		if _, err := tx.Exec(ctx, `set local row_security = off`); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, s.count, v.At).Scan(&v.Due, &v.Oldest, &v.Newest); err != nil {
			return fmt.Errorf("count what is due: %w", err)
		}
		if err := s.measure(ctx, tx); err != nil {
			return err
		}
		return s.explain(ctx, tx)
	})
	if err != nil {
		return nil, fmt.Errorf("survey policy %s: %w", v.Policy, err)
	}
	for _, instant := range []*time.Time{v.Oldest, v.Newest} {
		if instant != nil {
			*instant = instant.UTC()
		}
	}
	return v, nil
}

// measure takes the speed from the ledger: rows by the time that batches took, pauses between them left out.
func (s *surveyor) measure(ctx context.Context, tx pgx.Tx) error {
	v := &s.survey
	v.RowsPerSecond, v.PaceFrom = statedPace, Stated
	if s.pace != 0 {
		var measured *float64
		err := tx.QueryRow(ctx, `
			select (sum(r.deleted) / nullif(sum(extract(epoch from r.finished_at - b.started_at)), 0))::float8
			  from (select b.batch, b.started_at
			          from lapse.batch b
			         where b.policy_id = $1 and b.started_at > clock_timestamp() - interval '7 days'
			         order by b.started_at desc
			         limit 1000) b
			  join lapse.batch_result r on r.batch = b.batch`, s.pace).Scan(&measured)
		if err != nil {
			return fmt.Errorf("read the speed of former batches: %w", err)
		}
		if measured != nil && *measured > 0 {
			v.RowsPerSecond, v.PaceFrom = *measured, Measured
		}
	}
	v.Estimate = time.Duration(float64(v.Due) / v.RowsPerSecond * float64(time.Second)).Round(time.Millisecond)
	return nil
}
