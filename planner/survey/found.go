package survey

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/functions"
	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/schemas"
)

// found is the result of a survey function. If another version of Lapse made the function, fields may be missing.
type found struct {
	Due      int64           `json:"due"`
	DueIs    Count           `json:"due_is"`
	Oldest   *time.Time      `json:"-"` // in a column of its own: JSON's texts of instants before Christ cannot be read
	Newest   *time.Time      `json:"-"`
	Held     *int64          `json:"held"`  // nil if not counted
	Ahead    *float64        `json:"ahead"` // seconds; nil if no index tells, or if no value is near to now
	Leaf     uint32          `json:"leaf,string"`
	Plan     json.RawMessage `json:"plan"`
	Explain  string          `json:"explained"`
	Spans    []span          `json:"spans"` // of the leaves with much that is due, the fullest first
	Unread   *Unread         `json:"unread"`
	Cascades []struct {
		Table string `json:"table"`
		Rows  *int64 `json:"rows"`
		Why   string `json:"why"`
	} `json:"cascades"`
}

// extent says how far a survey function counts: nil means to the end, 0 not at all.
type extent struct {
	atMost  *int64 // rows that are counted
	through *int64 // rows that are searched for values that cannot be read; 0: what cascades delete is not counted either
}

// upTo counts so many rows.
func upTo(most int64) extent { return extent{&most, new(int64)} }

// callSurvey asks a survey function.
func callSurvey(ctx context.Context, q database.Querier, function string, at time.Time, to extent) (*found, error) {
	var text []byte
	f := &found{}
	err := q.QueryRow(ctx, "select s.oldest, s.newest, to_jsonb(s) - 'oldest' - 'newest' from "+function+"($1, $2, $3) s",
		pgx.QueryExecModeCacheDescribe, at, to.atMost, to.through).Scan(&f.Oldest, &f.Newest, &text)
	if err != nil {
		return nil, fmt.Errorf("count what is due: %w", err)
	}
	if err := json.Unmarshal(text, f); err != nil {
		return nil, fmt.Errorf("read what was counted: %w", err)
	}
	return f, nil
}

// take copies the result into the survey.
func (s *surveyor) take(f *found) error {
	v := &s.survey
	v.Due, v.DueIs, v.Explain, v.Unread = f.Due, f.DueIs, f.Explain, f.Unread
	s.takeHeld(f)
	v.Ranges = max(mostRanges(cutSpans(f.Spans, rangesOfLeaf)), 1)
	v.Oldest, v.Newest = utc(f.Oldest), utc(f.Newest)
	s.readLocal(f)
	for _, c := range f.Cascades {
		cascade := Cascade{Table: c.Table, Rows: c.Rows, NotCounted: c.Why}
		if c.Rows != nil {
			cascade.RowsAre = Exact
			if f.DueIs != Exact {
				scaled := int64(float64(*c.Rows) / float64(min(functions.Followed, max(f.Due, 1))) * float64(f.Due))
				cascade.Rows, cascade.RowsAre = &scaled, Estimated
			}
		}
		v.Cascades = append(v.Cascades, cascade)
	}
	s.estimate()
	p, err := f.read()
	if err != nil {
		return err
	}
	if p.Node != "" {
		v.Method, v.Index = p.method(false)
	}
	v.Shape = s.definition.Shapes()[0]
	if v.Shape == functions.ShapeRange && slices.Contains(heaps(f.Spans, p, s.definition.Condition().Certain()), f.Leaf) {
		v.Shape, v.Ranges = functions.ShapeHeap, rangesOfLeaf
	}
	for _, leaf := range v.Shards {
		if leaf.OID == f.Leaf {
			v.Statement = s.definition.Statement(v.Shape, leaf.Name, s.cutoff, s.bound)
		}
	}
	return nil
}

// estimate says how long the policy takes alone. Policies that are due at the same time share the time of gentle pace with it.
func (s *surveyor) estimate() {
	v := &s.survey
	share := s.limits.PaceShare()
	v.Gentle = share == 0 && s.limits.Pace != policyfile.PaceUnlimited
	switch {
	case v.SpeedFrom == Measured: // with the pauses that there were
	case share > 0:
		v.RowsPerSecond *= share
	case v.Gentle:
		beside := v.RowsPerSecond * GentleShare
		if rate := float64(s.limits.Rate); rate > 0 {
			beside = min(beside, rate)
		}
		v.Beside = time.Duration(float64(v.Due) / beside * float64(time.Second)).Round(time.Millisecond)
		v.RowsPerSecond *= QuietShare
	}
	if rate := float64(s.limits.Rate); rate > 0 && rate < v.RowsPerSecond {
		v.RowsPerSecond, v.SpeedFrom, v.Gentle = rate, Rated, false
	}
	v.Estimate = time.Duration(float64(v.Due) / v.RowsPerSecond * float64(time.Second)).Round(time.Millisecond)
	v.Limit = s.limits.RowsPerRun()
	if s.rows >= 0 || s.limits.MaxPercent == 0 {
		v.RowsPerRun = s.limits.RowsOf(s.rows)
	}
	if most := v.RowsPerRun; most > 0 {
		v.Runs = max(1, (v.Due+most-1)/most)
	}
	if s.window != nil {
		open := s.window.Length()
		v.Window, v.Windows = s.window.String(), max(1, int64((v.Estimate+open-1)/open))
	}
}

// takeHeld copies how much is held.
func (s *surveyor) takeHeld(f *found) {
	v := &s.survey
	if f.Held == nil {
		return
	}
	v.Held, v.HeldIs = *f.Held, Exact
	if most := s.ask.AtMost; most > 0 && v.Held > most {
		v.Held, v.HeldIs = most, MoreThan
	}
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	in := t.UTC()
	return &in
}

// breaker says whether the breaker would stop the run, by its causes. It predicts nothing that cannot be counted.
func (s *surveyor) breaker(call countAt, f *found) error {
	if s.accepted > 0 {
		return nil
	}
	v := &s.survey
	err := s.fraction(call)
	if err == nil && !v.Breaker.WouldTrip {
		err = s.past(call, f)
	}
	if database.Trouble(err) != "" {
		return nil
	}
	return err
}

// fraction checks whether more of the table is due than max_fraction. It counts the table's rows if the table was never analyzed.
func (s *surveyor) fraction(call countAt) error {
	v, most, rows := &s.survey, s.limits.MaxFraction, s.rows
	if most == 0 || most == 1 || v.Due == 0 {
		return nil
	}
	if rows < 0 {
		v.Breaker = Breaker{Why: fmt.Sprintf("how many rows %s has is not known, so that a run counts them for max_fraction: analyze it", v.Table)}
		counted, err := ever(v.At, int64(math.Ceil(float64(v.Due)/most)), call)
		if err != nil {
			return err
		}
		rows = float64(counted)
	}
	v.Breaker = Breaker{}
	if float64(v.Due) > most*rows {
		v.Breaker = Breaker{WouldTrip: true, Why: fmt.Sprintf("more than max_fraction, %g, of the about %.0f rows of %s are due", most, rows, v.Table)}
	}
	return nil
}

// past checks whether most of the due rows are from the absurd past.
func (s *surveyor) past(call countAt, f *found) error {
	old, err := pastDue(s.definition.Expire, s.survey.At, f, func(at time.Time, most int64) (*found, error) {
		found, err := call(at, upTo(most))
		if schemas.StateOf(err) == schemas.SQLStateQueryCanceled {
			return call(at, upTo(0))
		}
		return found, err
	})
	if old > 0 {
		s.survey.Breaker = Breaker{WouldTrip: true, Why: fmt.Sprintf("most of the rows that are due expired by a time before %d, which is hardly true of them", record.Absurd.Year())}
	}
	return err
}
