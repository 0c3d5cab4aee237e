package survey

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/functions"
	"lapse/planner/index"
	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/planner/schedule"
	"lapse/schemas"
)

// Survey is what a policy would delete at an instant, and how.
type Survey struct {
	Policy  schemas.PolicyName    `json:"policy"`
	Version schemas.PolicyVersion `json:"version,omitempty"` // 0: not applied
	State   schemas.State         `json:"state,omitempty"`
	Table   string                `json:"table"`
	At      time.Time             `json:"at,omitzero"` // the cutoff
	Due     int64                 `json:"due"`
	DueIs   Count                 `json:"due_is,omitempty"`     // "" if nothing was counted
	Held    int64                 `json:"held"`                 // rows that would be due without a hold on them or on rows that a cascade deletes
	HeldIs  Count                 `json:"held_is,omitempty"`    // "" if not counted, as for a policy that is not applied
	Oldest  *time.Time            `json:"oldest_due,omitempty"` // the column's value, in UTC; nil if finding it would take a search
	Newest  *time.Time            `json:"newest_due,omitempty"`
	Unread  *Unread               `json:"unread"`               // nil if every value can be read, or none was checked
	Local   *LocalTime            `json:"local_time,omitempty"` // nil if the expiry has a zone, or reads no column
	// Cascades are the tables whose rows a cascade would delete, to any depth.
	Cascades []Cascade `json:"cascades"`
	Sets     string    `json:"sets,omitempty"` // the column that is set in due rows, which stay; "" if they are deleted
	// Drops are the partitions that would be dropped whole if a count finds that every row of them is due.
	Drops []Drop `json:"drops,omitempty"`

	Method Method              `json:"method"`
	Shape  string              `json:"shape,omitempty"` // of the batches on the largest leaf
	Index  string              `json:"index,omitempty"` // the one that PostgreSQL would use, or the existing one
	Better string              `json:"better_index"`    // what another one would gain, and the statements that make it; "" for nothing
	Order  []string            `json:"order"`           // what batches are ordered by
	Shards []database.Relation `json:"shards"`          // one for each leaf
	Likely []database.Relation `json:"-"`               // the shards that can have due rows by their bounds
	Slices int                 `json:"slices"`          // of each leaf, by hash
	Ranges int                 `json:"ranges"`          // of the due time, or with a heap shape of the file, of a leaf with much that is due

	RowsPerSecond float64       `json:"rows_per_second"`
	SpeedFrom     SpeedSource   `json:"pace_from"`
	Estimate      time.Duration `json:"estimate_seconds"`
	Beside        time.Duration `json:"estimate_beside_application_seconds,omitempty"` // at gentle pace, while other sessions are active
	Limit         string        `json:"max_rows_per_run,omitempty"`                    // as the file says it
	RowsPerRun    int64         `json:"rows_per_run,omitempty"`                        // allowed rows per run, by the catalog; 0: no limit, or a share of a table that was never analyzed
	Runs          int64         `json:"runs,omitempty"`                                // how many such runs it takes
	Gentle        bool          `json:"gentle,omitempty"`                              // the speed is that of gentle pace: measured, or on an otherwise idle server
	Window        string        `json:"window,omitempty"`                              // the only time in which it deletes
	Windows       int64         `json:"windows,omitempty"`                             // how many openings of the window it takes
	Breaker       Breaker       `json:"breaker"`

	Statement string `json:"statement"` // the pick on the largest leaf
	Explain   string `json:"explain,omitempty"`

	Warnings []string `json:"warnings"`
	Trouble  string   `json:"trouble,omitempty"` // why nothing was counted
}

// None is an empty survey, for a policy that could not be counted.
func None(name schemas.PolicyName) *Survey {
	return &Survey{Policy: name, Cascades: []Cascade{}, Order: []string{}, Shards: []database.Relation{}, Warnings: []string{}}
}

// Count says how exact a number of rows is.
type Count string

// The grades of a count.
const (
	Exact     Count = "exact"
	Estimated Count = "estimate"  // PostgreSQL's, or computed from a part
	MoreThan  Count = "more_than" // counted up to this number, and PostgreSQL expects no more
)

// Cascade is a table whose rows a cascade deletes.
type Cascade struct {
	Table      string `json:"table"`
	Rows       *int64 `json:"rows,omitempty"`
	RowsAre    Count  `json:"rows_are,omitempty"`
	NotCounted string `json:"not_counted,omitempty"` // why
}

// Breaker says whether the policy would stop and ask before it deletes that much.
type Breaker struct {
	WouldTrip bool   `json:"would_trip"`
	Why       string `json:"why,omitempty"`
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
	Measured SpeedSource = "measured" // this policy's batches at this pace, of the last week
	Stated   SpeedSource = "stated"   // no batch of this policy yet
	Rated    SpeedSource = "rate"     // the policy's rate, which is less than that
)

// statedSpeed is a measured speed of deletion, in rows a second, on two cores shared by database, broker and auditor: it only tells minutes from
// days.
const statedSpeed = 50000

// GentleShare is the share of the time in which all batches at gentle pace together may work, without their pauses, while other sessions are active; QuietShare is that
// share while none is.
const (
	GentleShare = 0.05
	QuietShare  = 0.5
)

// Ask says what to survey.
type Ask struct {
	At time.Time // the cutoff; zero is the server's clock
	// AtMost is how far to count. A larger number, or one that takes longer to count than the session's statement_timeout, is an estimate.
	// Zero counts everything, however long it takes.
	AtMost int64
	// Over is another session like the one that counts, for all that InForce reads beside the count. It need not be cleaned, and so plans its
	// statements once for many policies; nil: the session that counts.
	Over *pgx.Conn
}

// InForce surveys a policy that is applied, through its survey function: no session itself reads or plans anything of the table. conn is a session
// with the executor's rights. It takes no lock that writers wait for, and none on partitions that cannot hold due rows, and changes nothing. It
// yields to sessions that wait to change the table: then the number of due rows is an estimate, or missing if an exact count was asked for.
//
// The table's code may run inside the function, with its owner's rights, and may change the session, so the session is cleaned before and
// afterwards.
func (a Ask) InForce(ctx context.Context, conn *pgx.Conn, p *record.InForce) (*Survey, error) {
	s := &surveyor{ask: a, definition: &p.Definition, limits: p.Limits, window: p.Schedule.Window, table: p.TableOID, accepted: p.Accepted, survey: Survey{
		Policy: p.Name, Version: p.Version, State: p.State, Table: p.TableName, Trouble: p.Trouble, Slices: p.Spec.SliceCount(),
	}}
	if outdated := p.Outdated(); outdated != nil && p.Trouble == "" {
		s.survey.Trouble = outdated.Error()
	}
	over := cmp.Or(a.Over, conn)
	pinned := func(work func(q database.Querier) error) error {
		return database.Pinned(ctx, over, func(tx pgx.Tx) error { return work(tx) })
	}
	err := s.run(ctx, over, pinned, func(at time.Time, to extent) (*found, error) {
		return callInForce(ctx, conn, &p.Definition, at, to)
	})
	if err == nil && s.refused {
		var blind *record.RowSecurityError
		if blind, err = p.BehindRowSecurity(ctx, over); blind != nil {
			s.survey.Trouble = blind.Error()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("survey policy %s: %w", p.Name, err)
	}
	return &s.survey, nil
}

// callInForce calls the survey function of a version in force, in a session cleaned before and after.
func callInForce(ctx context.Context, conn *pgx.Conn, d *functions.Definition, at time.Time, to extent) (*found, error) {
	if err := cleanSession(ctx, conn); err != nil {
		return nil, err
	}
	var f *found
	err := database.GivingWay(ctx, conn, nil, func() (err error) {
		f, err = callSurvey(ctx, conn, functions.SurveyFunction(d.ID, d.Version), at, to)
		return err
	})
	if cleaned := cleanSession(ctx, conn); err == nil {
		err = cleaned
	}
	return f, err
}

// cleanSession undoes what code inside a function may have done to a session, and makes pgx forget its prepared statements.
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

// setBounds bounds the statements of a clean session that counts, until it is cleaned. A session for batches has a transaction_timeout (17), which is
// shorter, and would end the session.
func setBounds(ctx context.Context, conn *pgx.Conn, most string) error {
	_, err := conn.Exec(ctx, "set statement_timeout = '"+most+"'; set lock_timeout = '"+judgeLockTimeout+"'; "+
		"select set_config('transaction_timeout', '0', false) where current_setting('transaction_timeout', true) is not null", pgx.QueryExecModeSimpleProtocol)
	return err
}

// surveyor fills in a survey.
type surveyor struct {
	ask        Ask
	definition *functions.Definition
	limits     policyfile.Limits
	window     *schedule.Window
	owner      string // of the catalog, where the survey is a draft's
	table      uint32
	around     *index.Around // nil: not read
	trusts     bool          // code that would run was found by apply, and is trusted
	refused    bool          // counting needs a right that it has not
	zones      []*time.Location
	survey     Survey
	accepted   int64   // rows that a person let go: the next run is not judged
	rows       float64 // that the table has by the catalog, negative where it does not know
	cutoff     string  // texts of the cutoff and of the bound
	bound      string
}

// countAt asks the survey function what is due at an instant, with how far it goes.
type countAt func(at time.Time, to extent) (*found, error)

// run fills in the survey, with what it reads over q. pinned runs work over it with the settings of database.Pinned. It queries nothing after call.
func (s *surveyor) run(ctx context.Context, q database.Querier, pinned func(work func(q database.Querier) error) error, call countAt) error {
	v := &s.survey
	v.At, v.Cascades, v.Warnings = s.ask.At, []Cascade{}, []string{}
	if soft := s.definition.Soft; soft != nil {
		v.Sets = soft.Name
	}
	if v.At.IsZero() {
		if err := q.QueryRow(ctx, `select clock_timestamp()`).Scan(&v.At); err != nil {
			return err
		}
	}
	v.At = v.At.UTC().Truncate(time.Microsecond)
	if v.Trouble != "" {
		return nil
	}
	if v.Version > 0 {
		if err := s.measure(ctx, q); err != nil {
			return err
		}
	} else {
		v.RowsPerSecond, v.SpeedFrom = statedSpeed, Stated
	}
	var serving string
	err := pinned(func(q database.Querier) error {
		leaves, err := s.shards(ctx, q)
		if err != nil {
			return err
		}
		if serving, err = s.indexed(ctx, q, leaves); err != nil {
			return err
		}
		if err := s.drops(ctx, q); err != nil {
			return err
		}
		return s.warn(ctx, q, leaves)
	})
	if err != nil {
		return err
	}
	f, err := s.count(call)
	if err == nil {
		err = s.take(f)
	}
	if err == nil {
		err = s.breaker(call, f)
	}
	if err != nil {
		if v.Trouble = database.Trouble(err); v.Trouble != "" {
			s.refused = schemas.StateOf(err) == schemas.SQLStateInsufficientPrivilege
			return nil
		}
		return err
	}
	if v.Index == "" {
		v.Index = serving
	}
	return nil
}

// indexed returns the index that serves, "" for none, and records what to say about it.
func (s *surveyor) indexed(ctx context.Context, q database.Querier, leaves []database.Relation) (string, error) {
	var found index.Found
	if s.around != nil && s.around.Indexes != nil {
		found = *s.around.Indexes
	} else {
		var err error
		if found, err = index.Find(ctx, q, s.definition, leaves, index.AdvisedPrefix); err != nil {
			return "", err
		}
	}
	s.survey.Warnings = append(s.survey.Warnings, found.Warnings...)
	if found.Better != nil {
		s.survey.Better = found.Better.String()
	}
	return found.Name, nil
}

// count counts as far as asked. If that takes too long, or blocks another session, it returns an estimate.
func (s *surveyor) count(call countAt) (*found, error) {
	if s.ask.AtMost == 0 {
		return call(s.survey.At, extent{})
	}
	through := int64(lookedThrough)
	f, err := call(s.survey.At, extent{&s.ask.AtMost, &through})
	if schemas.StateOf(err) == schemas.SQLStateQueryCanceled {
		return call(s.survey.At, upTo(0))
	}
	return f, err
}

// warn names foreign keys that a deletion would search without an index, or that prevent the deletion of rows, warns of the pace, and reads what
// the question about local times depends on.
func (s *surveyor) warn(ctx context.Context, q database.Querier, leaves []database.Relation) error {
	if err := s.localZones(ctx, q); err != nil {
		return err
	}
	around := s.around
	if around == nil {
		var err error
		if around, err = s.lookAround(ctx, q, leaves); err != nil {
			return err
		}
	}
	err := s.warnOfDraft(ctx, q, slices.Concat(leaves, around.Cascades))
	s.survey.Warnings = append(s.survey.Warnings, around.Warnings...)
	return err
}

func (s *surveyor) lookAround(ctx context.Context, q database.Querier, leaves []database.Relation) (*index.Around, error) {
	oids := []uint32{s.table}
	for _, l := range leaves {
		oids = append(oids, l.OID)
	}
	cascades, err := database.CascadeLeaves(ctx, q, oids)
	if err != nil {
		return nil, err
	}
	pace, err := database.WarnOfPace(ctx, q, s.limits.Pace == policyfile.PaceUnlimited, s.definition.Table, leaves, s.definition.Soft != nil)
	if err != nil {
		return nil, err
	}
	unindexed, err := index.Unindexed(ctx, q, s.table, leaves, cascades)
	if err != nil {
		return nil, err
	}
	blocking, err := database.FindBlocking(ctx, q, s.table, leaves, cascades)
	return &index.Around{Cascades: cascades, Warnings: slices.Concat(pace, unindexed, blocking)}, err
}

// measure takes the speed from the ledger, of batches at the same pace: rows by the time that batches took, and where they share the time with the
// pauses after them.
func (s *surveyor) measure(ctx context.Context, q database.Querier) error {
	v := &s.survey
	v.RowsPerSecond, v.SpeedFrom = statedSpeed, Stated
	var measured *float64
	err := q.QueryRow(ctx, `
		select (sum(r.deleted) / nullif(sum(extract(epoch from case when $2 <> $3 and b.next < r.finished_at + interval '15 s' then b.next else r.finished_at end - b.started_at)), 0))::float8
		  from (select b.batch, b.started_at, lead(b.started_at) over (partition by b.run order by b.started_at) as next
		          from (select b.batch, b.run, b.started_at
		                  from lapse.batch b
		                  join lapse.policy p on p.id = b.policy_id and p.version = b.policy_version
		                 where b.policy_id = $1 and b.started_at > clock_timestamp() - interval '7 days' and coalesce(p.spec ->> 'pace', '') = $2
		                 order by b.started_at desc
		                 limit 1000) b) b
		  join lapse.batch_result r on r.batch = b.batch`, s.definition.ID, s.limits.Pace, policyfile.PaceUnlimited).Scan(&measured)
	if err != nil {
		return fmt.Errorf("read the speed of former batches: %w", err)
	}
	if measured != nil && *measured > 0 {
		v.RowsPerSecond, v.SpeedFrom = *measured, Measured
	}
	return nil
}
