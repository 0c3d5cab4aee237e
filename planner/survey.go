package planner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/schemas"
)

// Survey is what a policy would delete at an instant, and how it would go about it.
type Survey struct {
	Policy  schemas.PolicyName    `json:"policy"`
	Version schemas.PolicyVersion `json:"version,omitempty"` // 0: not applied
	State   schemas.State         `json:"state,omitempty"`
	Table   string                `json:"table"`
	At      time.Time             `json:"at"` // the cutoff
	Due     int64                 `json:"due"`
	Oldest  *time.Time            `json:"oldest_due,omitempty"` // the column's value, in UTC
	Newest  *time.Time            `json:"newest_due,omitempty"`

	Method Method     `json:"method"`
	Index  string     `json:"index,omitempty"` // the one that PostgreSQL would use, or that there is
	Order  []string   `json:"order"`           // what batches are ordered by
	Shards []Relation `json:"shards"`          // one for each leaf

	RowsPerSecond float64       `json:"rows_per_second"`
	SpeedFrom     SpeedSource   `json:"pace_from"`
	Estimate      time.Duration `json:"estimate_ns"`

	Statement string `json:"statement"` // the pick on the largest leaf
	Explain   string `json:"explain,omitempty"`

	Warnings []string `json:"warnings,omitempty"`
	Trouble  string   `json:"trouble,omitempty"` // why the table is not the policy's any more: nothing was counted
}

// Method is how due rows are found.
type Method string

// The methods of finding rows.
const (
	IndexOrder Method = "index"      // in an index's order
	IndexSort  Method = "index+sort" // through an index, and then sorted
	Sequential Method = "sequential" // every batch reads the whole leaf
)

// SpeedSource says where a speed comes from.
type SpeedSource string

// The sources of a speed.
const (
	Measured SpeedSource = "measured" // this policy's batches of the last week
	Stated   SpeedSource = "stated"   // no batch of this policy yet
)

// statedSpeed is what deleting ran at, in rows a second, on two cores that database, broker and auditor shared: it says
// minutes or days, no more.
const statedSpeed = 50000

// SurveyInForce surveys a policy that is applied, through its survey function: nothing of the table is read or planned in
// this session itself. conn is a session with the executor's rights. at is the cutoff; zero is the server's clock. It takes no
// lock that others wait for, and changes nothing.
//
// The table's code may run inside the function, with its owner's rights, and may change the session: it is made clean before
// and afterwards.
func SurveyInForce(ctx context.Context, conn *pgx.Conn, p *InForce, at time.Time) (*Survey, error) {
	s := &surveyor{definition: &p.Definition, table: p.TableOID, survey: Survey{
		Policy: p.Name, Version: p.Version, State: p.State, Table: p.TableName, At: at, Trouble: p.Trouble,
	}}
	err := s.run(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("survey policy %s: %w", p.Name, err)
	}
	return &s.survey, nil
}

// cleanSession undoes what code inside a function may have done to a session, and forgets the statements that pgx has
// prepared in it.
func cleanSession(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "reset all; discard temp", pgx.QueryExecModeSimpleProtocol)
	if err == nil {
		err = conn.DeallocateAll(ctx)
	}
	if err != nil {
		return fmt.Errorf("make the session clean: %w", err)
	}
	return nil
}

// surveyor fills in a survey.
type surveyor struct {
	definition *Definition
	table      uint32
	survey     Survey
}

func (s *surveyor) run(ctx context.Context, conn *pgx.Conn) error {
	v, d := &s.survey, s.definition
	if v.At.IsZero() {
		if err := conn.QueryRow(ctx, `select clock_timestamp()`).Scan(&v.At); err != nil {
			return err
		}
	}
	v.At = v.At.UTC().Truncate(time.Microsecond)
	if v.Trouble != "" {
		return nil
	}
	var leaves []Relation
	err := pinned(ctx, conn, func(tx pgx.Tx) (err error) { leaves, err = s.shards(ctx, tx); return err })
	if err != nil {
		return err
	}
	if err := s.measure(ctx, conn); err != nil {
		return err
	}
	if err := s.count(ctx, conn, leaves); err != nil {
		if v.Trouble = trouble(err); v.Trouble != "" {
			return nil
		}
		return err
	}
	if v.Index == "" {
		if v.Index, _, err = findIndex(ctx, conn, d, leaves); err != nil {
			return err
		}
	}
	if warning := d.Expire.Index().Warning; warning != "" {
		v.Warnings = append(v.Warnings, warning)
	}
	return s.warn(ctx, conn, leaves)
}

// warn names foreign keys that a deletion would look through without an index.
func (s *surveyor) warn(ctx context.Context, q Querier, leaves []Relation) error {
	oids := []uint32{s.table}
	for _, l := range leaves {
		oids = append(oids, l.OID)
	}
	cascades, err := cascadeLeaves(ctx, q, oids)
	if err != nil {
		return err
	}
	unindexed, err := findUnindexed(ctx, q, s.table, leaves, cascades)
	s.survey.Warnings = append(s.survey.Warnings, unindexed...)
	return err
}

// trouble is what stands in the way of one policy alone, "" for an error that concerns more.
func trouble(err error) string {
	var server *pgconn.PgError
	switch state := schemas.StateOf(err); {
	case state == "":
		return ""
	case strings.HasPrefix(state, "LP") && errors.As(err, &server):
		return server.Message // a text of ours, with names and no values
	case state == schemas.SQLStateUndefinedFunction:
		return "its functions are gone: run `lapse apply`"
	case state == schemas.SQLStateLockNotAvailable, state == schemas.SQLStateQueryCanceled:
		return "somebody holds a lock on the table, or counting takes too long (SQLSTATE " + state + ")"
	default:
		return "counting fails with SQLSTATE " + state
	}
}

// count asks the survey function, in a session made clean on both sides.
func (s *surveyor) count(ctx context.Context, conn *pgx.Conn, leaves []Relation) error {
	v, d := &s.survey, s.definition
	var largest *uint32
	if len(leaves) > 0 {
		largest = &leaves[0].OID
	}
	var found []byte
	if err := cleanSession(ctx, conn); err != nil {
		return err
	}
	err := conn.QueryRow(ctx, "select due, oldest, newest, plan, coalesce(explained, '') from "+SurveyFunction(d.ID, d.Version)+"($1, $2)",
		pgx.QueryExecModeDescribeExec, v.At, largest).Scan(&v.Due, &v.Oldest, &v.Newest, &found, &v.Explain)
	if err != nil {
		err = fmt.Errorf("count what is due: %w", err)
	}
	if cleaned := cleanSession(ctx, conn); err == nil {
		err = cleaned
	}
	if err != nil {
		return err
	}
	for _, instant := range []*time.Time{v.Oldest, v.Newest} {
		if instant != nil {
			*instant = instant.UTC()
		}
	}
	v.Estimate = time.Duration(float64(v.Due) / v.RowsPerSecond * float64(time.Second)).Round(time.Millisecond)
	return s.readPlan(found)
}

// measure takes the speed from the ledger: rows by the time that batches took, pauses between them left out.
func (s *surveyor) measure(ctx context.Context, q Querier) error {
	v := &s.survey
	v.RowsPerSecond, v.SpeedFrom = statedSpeed, Stated
	var measured *float64
	err := q.QueryRow(ctx, `
		select (sum(r.deleted) / nullif(sum(extract(epoch from r.finished_at - b.started_at)), 0))::float8
		  from (select b.batch, b.started_at
		          from lapse.batch b
		         where b.policy_id = $1 and b.started_at > clock_timestamp() - interval '7 days'
		         order by b.started_at desc
		         limit 1000) b
		  join lapse.batch_result r on r.batch = b.batch`, s.definition.ID).Scan(&measured)
	if err != nil {
		return fmt.Errorf("read the speed of former batches: %w", err)
	}
	if measured != nil && *measured > 0 {
		v.RowsPerSecond, v.SpeedFrom = *measured, Measured
	}
	return nil
}
