package resolve

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/policyfile"
	"lapse/planner/record"
	"lapse/planner/schedule"
)

// Entry is a policy of the file as PostgreSQL reads its texts, without any check of its table.
type Entry struct {
	Problems policyfile.Problems // texts that PostgreSQL cannot read

	policy policyfile.Policy // latitude in PostgreSQL's spelling
	table  string            // schema.table, quoted as in SQL; "" if it is no name, or was not read
	expire expiry.Kind       // its columns without numbers and types
	when   schedule.Schedule
	floors []functions.Floor
}

// ReadEntry reads a policy's texts.
func ReadEntry(ctx context.Context, db database.DB, p policyfile.Policy) (e *Entry, err error) {
	err = database.Pinned(ctx, db, func(tx pgx.Tx) error {
		if e, err = readEntryIn(ctx, tx, &p); err != nil {
			return err
		}
		return e.readTable(ctx, tx)
	})
	if err != nil {
		return nil, fmt.Errorf("read policy %s: %w", p.Name, err)
	}
	return e, nil
}

func readEntryIn(ctx context.Context, tx pgx.Tx, p *policyfile.Policy) (*Entry, error) {
	e := &Entry{policy: *p}
	complain := func(key, problem string) {
		e.Problems = append(e.Problems, policyfile.Problem{Key: key, Text: problem})
	}
	every, latitude := expiry.Interval{Microseconds: leastEvery}, expiry.Interval{}
	kind, problems, err := expiry.Read(ctx, tx, p.Expire)
	if err != nil {
		return nil, err
	}
	e.expire = kind
	for _, problem := range problems {
		complain("expire."+problem.Key, problem.Text)
	}
	for _, duration := range []struct {
		key, text string
		into      *expiry.Interval
	}{
		{"every", p.Every, &every},
		{"latitude", p.Latitude, &latitude},
	} {
		if duration.text == "" {
			continue
		}
		i, problem, err := expiry.ReadInterval(ctx, tx, duration.text)
		if err != nil {
			return nil, err
		}
		if problem != "" {
			complain(duration.key, problem)
			continue
		}
		*duration.into = i
	}
	e.when = schedule.Schedule{Daily: p.Daily, Cron: p.Cron, Window: p.Window}
	if p.Every != "" {
		e.when.Every = every
	}
	if every.Months == 0 && every.Exact() < leastEvery {
		complain("every", "every must be at least 100 milliseconds")
	}
	floors, unreadable, err := readFloors(ctx, tx, p.Floors)
	if err != nil {
		return nil, err
	}
	e.floors = floors
	for _, problem := range unreadable {
		complain("", problem)
	}
	if p.Latitude != "" {
		e.policy.Latitude = latitude.String()
	}
	return e, nil
}

// leastEvery is the shortest interval between runs, in microseconds: an executor does not look more often.
const leastEvery = 100_000

// readTable writes the table's name as the catalog does. Errors in the name are reported when the table is looked up.
func (e *Entry) readTable(ctx context.Context, tx pgx.Tx) error {
	err := expiry.Attempt(ctx, tx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `select string_agg(quote_ident(n), '.') from unnest(parse_ident($1)) n`, e.policy.Table).Scan(&e.table)
	})
	if expiry.IsDataException(err) {
		return nil
	}
	return err
}

// OnRecord returns the version that e makes of p, a version on record, with the columns on record and without reading the table. It returns
// nil unless the record alone shows that no more rows fall due under e: e is the same entry, or a longer one, or has another schedule,
// batch, owner, basis or latitude.
func (e *Entry) OnRecord(p *record.Version) *record.Version {
	recalled := e.expire.Recall(p.Definition.Expire)
	if e.table != p.Definition.Table || recalled == nil {
		return nil
	}
	if record.ActionName(e.policy.Action.Kind) != p.Spec.Action || p.Spec.Soft != nil && e.policy.Action.Column != p.Spec.Soft.Name {
		return nil // the table decides what may be dropped or set
	}
	if is, was := e.policy.Terms.Recorded(), p.Spec.Terms; !reflect.DeepEqual(ofTable(is), ofTable(was)) {
		return nil
	}
	v := &record.Version{Table: p.Table, Definition: p.Definition, Spec: p.Spec}
	v.Definition.Expire, v.Definition.Batch = recalled, e.policy.Batch
	if v.Definition.Condition().MoreThan(p.Definition.Condition()) {
		return nil
	}
	e.fill(&v.Spec, &v.Definition)
	e.holdTo(v)
	return v
}

// ofTable are the terms whose meaning depends on the table: what is trusted, which columns exist, what the log contains of a row. A new term is
// among them unless it is removed here.
func ofTable(t policyfile.Terms) policyfile.Terms {
	t.Daily, t.Cron, t.Window = nil, nil, nil
	t.Batch, t.Limits, t.Index, t.Events.Values = 0, policyfile.Limits{}, "", ""
	t.Owner, t.Basis, t.Latitude = "", "", ""
	return t
}

// fill writes into a spec what the file says, and the definition's expiry.
func (e *Entry) fill(s *record.Spec, d *functions.Definition) {
	p := &e.policy
	s.Terms, s.Expire = p.Recorded(), expiry.Record{Kind: d.Expire}
	s.Every, s.Apart, s.WhereRead = nil, nil, d.Where
	if p.Cron != nil {
		s.Apart = &expiry.Interval{Days: int32(p.Cron.Apart())}
	}
	if p.Daily == nil && p.Cron == nil {
		every := e.when.Every
		s.Every = &every
	}
	s.Action, s.Soft, s.Due = record.ActionName(p.Action.Kind), d.Soft, nil
	if p.Evidence == policyfile.EvidenceDue {
		s.Due, _ = expiry.Elsewhere(d.Expire)
	}
	s.Slices, s.Ranges, s.HeldAgainst, s.Functions = d.Slices, d.Ranged(), 0, d.Digest()
}

// CheckArithmetic writes the functions' text, unless their digest shows that it can be written, and lets PostgreSQL compute the bound from its clock once, so that neither can first fail
// when rows are to be deleted. It returns the problem and its key.
func CheckArithmetic(ctx context.Context, db database.DB, v *record.Version) (key, problem string, err error) {
	err = expiry.Attempt(ctx, db, func(tx pgx.Tx) (err error) {
		key, problem, err = checkArithmetic(ctx, tx, v)
		return err
	})
	return key, problem, err
}

// checkArithmetic is CheckArithmetic as the last statement of a transaction: it aborts it if there is a problem. A digest of the text shows
// that it can be written, but for the floors.
func checkArithmetic(ctx context.Context, tx pgx.Tx, v *record.Version) (key, problem string, err error) {
	d := &v.Definition
	if v.Spec.Functions == "" || len(d.Floors) > 0 {
		if _, err := d.Text(); err != nil {
			return "table", lastFact(err), nil
		}
	}
	bound := d.Expire.Bound("clock_timestamp()")
	if bound.IsZero() {
		return "", "", nil
	}
	var value string
	err = tx.QueryRow(ctx, `select (`+bound.Value+`)::text`).Scan(&value)
	if expiry.IsDataException(err) && bound.OutOfRange.Text != "" {
		return "expire." + bound.OutOfRange.Key, bound.OutOfRange.Text, nil
	}
	if err != nil {
		return "", "", errors.Join(errors.New("count back from now"), err)
	}
	return "", "", nil
}

// lastFact returns an error's text without its first layer.
func lastFact(err error) string {
	message := err.Error()
	if _, fact, layered := strings.Cut(message, ": "); layered {
		return fact
	}
	return message
}
