package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"

	"lapse/planner/expiry"
	"lapse/planner/policyfile"
	"lapse/planner/schedule"
)

// entry is a policy of the file as PostgreSQL reads its texts. Nothing of its table has been looked at.
type entry struct {
	policy policyfile.Policy // latitude in PostgreSQL's spelling
	table  string            // schema.table, quoted where SQL wants it; "" where that is no name
	expire expiry.Kind       // its columns without numbers and types
	when   schedule.Schedule
	floors []Floor
}

// readEntry reads a policy's texts. What PostgreSQL cannot read is among the problems.
func readEntry(ctx context.Context, db DB, p policyfile.Policy) (e *entry, problems policyfile.Problems, err error) {
	err = pinned(ctx, db, func(tx pgx.Tx) error {
		e, problems, err = readEntryIn(ctx, tx, &p)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read policy %s: %w", p.Name, err)
	}
	return e, problems, nil
}

func readEntryIn(ctx context.Context, tx pgx.Tx, p *policyfile.Policy) (e *entry, wrong policyfile.Problems, err error) {
	e = &entry{policy: *p}
	complain := func(key, problem string) { wrong = append(wrong, policyfile.Problem{Key: key, Text: problem}) }
	every, latitude := expiry.Interval{Microseconds: leastEvery}, expiry.Interval{}
	kind, problems, err := expiry.Read(ctx, tx, p.Expire)
	if err != nil {
		return nil, nil, err
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
			return nil, nil, err
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
		return nil, nil, err
	}
	e.floors = floors
	for _, problem := range unreadable {
		complain("", problem)
	}
	if p.Latitude != "" {
		e.policy.Latitude = latitude.String()
	}
	return e, wrong, e.readTable(ctx, tx)
}

// leastEvery is how often a policy may run, in microseconds: an executor does not look more often.
const leastEvery = 100_000

// readTable writes the table's name as the catalog has it. What is wrong with the name is said where the table is looked
// for.
func (e *entry) readTable(ctx context.Context, tx pgx.Tx) error {
	err := expiry.Attempt(ctx, tx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `select string_agg(quote_ident(n), '.') from unnest(parse_ident($1)) n`, e.policy.Table).Scan(&e.table)
	})
	if expiry.IsDataException(err) {
		return nil
	}
	return err
}

// onRecord is the version that e makes of one on record, p, without a look at the table: the columns are those on record. It
// is nil unless it is certain from the record alone that no more falls due under e: it is the same entry, or a longer one, or
// another schedule, batch, owner, basis or latitude.
func (e *entry) onRecord(p *version) *version {
	recalled := e.expire.Recall(p.definition.Expire)
	if e.table != p.definition.Table || recalled == nil || e.policy.Where != p.spec.Where {
		return nil
	}
	if actionName(e.policy.Action.Kind) != p.spec.Action || p.spec.Soft != nil && e.policy.Action.Column != p.spec.Soft.Name {
		return nil // what may be dropped or set is for the table to say
	}
	if triggersSpec(e.policy.Triggers) != p.spec.Triggers || !reflect.DeepEqual(e.policy.Shards, p.spec.Shards) {
		return nil // what is trusted, and which columns there are, is for the table to say
	}
	if cmp.Or(e.policy.Evidence, evidenceClaimed) != p.spec.Evidence || !slices.Equal(e.policy.Events.Columns, p.spec.Events.Columns) ||
		e.policy.Moves != p.spec.Moves {
		return nil // what the log has of a row is for the table to say
	}
	v := &version{table: p.table, definition: p.definition, spec: p.spec}
	v.definition.Expire, v.definition.Batch = recalled, e.policy.Batch
	if v.definition.condition().MoreThan(p.definition.condition()) {
		return nil
	}
	e.fill(&v.spec, &v.definition)
	e.holdTo(v)
	return v
}

// fill writes into a spec what the file says, and the definition's expiry.
func (e *entry) fill(s *spec, d *Definition) {
	p := &e.policy
	s.Expire = expiry.Record{Kind: d.Expire}
	s.Every, s.Daily, s.Cron, s.Window, s.Batch = nil, p.Daily, p.Cron, p.Window, d.Batch
	if s.Apart = nil; p.Cron != nil {
		s.Apart = &expiry.Interval{Days: int32(p.Cron.Apart())}
	}
	s.Where, s.WhereRead, s.Limits, s.Shards, s.Index = p.Where, d.Where, p.Limits, p.Shards, p.Index
	if p.Daily == nil && p.Cron == nil {
		every := e.when.Every
		s.Every = &every
	}
	s.Triggers = triggersSpec(p.Triggers)
	s.Soft = d.Soft
	s.Moves = p.Moves
	s.Action, s.Evidence, s.Due, s.Events = actionName(p.Action.Kind), cmp.Or(p.Evidence, evidenceClaimed), nil, eventsOf(p)
	if p.Evidence == policyfile.EvidenceDue {
		s.Due, _ = expiry.Elsewhere(d.Expire)
	}
	s.Owner, s.Basis, s.Latitude = p.Owner, p.Basis, p.Latitude
	s.Slices, s.Ranges, s.HeldAgainst, s.Functions = d.Slices, d.ranged(), 0, d.digest()
}

// checkArithmetic makes the functions' text once, and PostgreSQL compute the bound from its clock once, so that neither can
// fail first when rows are to be deleted. It returns what is wrong, and with which key.
func checkArithmetic(ctx context.Context, db DB, d *Definition) (key, problem string, err error) {
	if _, err := d.functionsText(); err != nil {
		return "table", lastFact(err), nil
	}
	bound := d.Expire.Bound("clock_timestamp()")
	if bound.IsZero() {
		return "", "", nil
	}
	err = expiry.Attempt(ctx, db, func(tx pgx.Tx) error {
		var value string
		return tx.QueryRow(ctx, `select (`+bound.Value+`)::text`).Scan(&value)
	})
	if expiry.IsDataException(err) && bound.OutOfRange.Text != "" {
		return "expire." + bound.OutOfRange.Key, bound.OutOfRange.Text, nil
	}
	if err != nil {
		return "", "", errors.Join(errors.New("count back from now"), err)
	}
	return "", "", nil
}
