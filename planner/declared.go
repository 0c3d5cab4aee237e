package planner

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// declared is a policy of the file as PostgreSQL reads its texts. Nothing of its table has been looked at.
type declared struct {
	policy   Policy // latitude in PostgreSQL's spelling
	table    string // schema.table, quoted where SQL wants it; "" where that is no name
	after    Interval
	schedule Schedule
}

// declare reads a policy's texts. What PostgreSQL cannot read is a complaint.
func declare(ctx context.Context, db DB, file string, p Policy) (e *declared, complaints FileErrors, err error) {
	d := &document{file: file}
	err = pinned(ctx, db, func(tx pgx.Tx) error {
		e, err = readDeclared(ctx, tx, d, &p)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read policy %s: %w", p.Name, err)
	}
	if errors.As(d.err(), &complaints) {
		return e, complaints, nil
	}
	return e, nil, nil
}

func readDeclared(ctx context.Context, tx pgx.Tx, d *document, p *Policy) (*declared, error) {
	e := &declared{policy: *p}
	complain := func(key, problem string) { d.complain(p.place(key), "policy %s: %s", p.Name, problem) }
	before, latitude := len(d.errors), Interval{}
	for _, duration := range []struct {
		key, text string
		into      *Interval
	}{
		{"expire.after", p.Expire.After, &e.after},
		{"every", p.Every, &e.schedule.Every},
		{"latitude", p.Latitude, &latitude},
	} {
		if duration.text == "" {
			continue
		}
		i, problem, err := readInterval(ctx, tx, duration.text)
		if err != nil {
			return nil, err
		}
		if problem != "" {
			complain(duration.key, problem)
		}
		*duration.into = i
	}
	e.schedule.Daily = p.Daily
	if every := e.schedule.Every; p.Daily == nil && every.Months == 0 && every.exact() < 1e6 && len(d.errors) == before {
		complain("every", "every must be at least one second")
	}
	if p.Latitude != "" {
		e.policy.Latitude = latitude.String()
	}
	return e, e.readTable(ctx, tx)
}

// readTable writes the table's name as the catalog has it. What is wrong with the name is said where the table is looked
// for.
func (e *declared) readTable(ctx context.Context, tx pgx.Tx) error {
	err := attempt(ctx, tx, func(q Querier) error {
		return q.QueryRow(ctx, `select string_agg(quote_ident(n), '.') from unnest(parse_ident($1)) n`, e.policy.Table).Scan(&e.table)
	})
	if isDataException(err) {
		return nil
	}
	return err
}

// zone is the declared zone as lapse.policy keeps it.
func (e *declared) zone() string {
	if e.policy.Expire.Zone == "UTC" {
		return ""
	}
	return e.policy.Expire.Zone
}

// noMore reports whether it is certain from the record alone that no more falls due under e than under p: it is the same
// entry, or a longer one, or another schedule, batch, owner, basis or latitude.
func (e *declared) noMore(p *InForce) bool {
	was := &p.Definition
	return e.table == p.TableName && e.policy.Expire.Column == was.Column && e.zone() == was.Zone && !e.after.mayBeShorter(was.After)
}

// onRecord is the version that e makes of the one in force, of which noMore is true: the columns are those on record.
func (e *declared) onRecord(p *InForce) *version {
	v := &version{table: p.TableOID, definition: p.Definition, spec: p.spec}
	v.definition.After, v.definition.Batch = e.after, e.policy.Batch
	e.fill(&v.spec, &v.definition)
	return v
}

// fill writes into a spec what the file says, and the definition's expiry.
func (e *declared) fill(s *spec, d *Definition) {
	p := &e.policy
	s.Expire = expireSpec{Column: d.Column, Number: d.Number, Type: d.ColumnType, After: d.After.String(), Zone: d.Zone}
	s.Every, s.Daily, s.Batch = "", p.Daily, d.Batch
	if p.Daily == nil {
		s.Every = e.schedule.Every.String()
	}
	s.Action, s.Triggers, s.Evidence, s.Events = "delete", "refuse", "claimed", eventSpec{Values: "keys"}
	s.Owner, s.Basis, s.Latitude = p.Owner, p.Basis, p.Latitude
	s.HeldAgainst = 0
}

// checkArithmetic makes the functions' text once, and PostgreSQL count back from its clock once, so that neither can fail
// first when rows are to be deleted. It returns what is wrong, and with which key.
func checkArithmetic(ctx context.Context, db DB, d *Definition) (key, problem string, err error) {
	if _, err := d.functionsText(); err != nil {
		return "table", lastFact(err), nil
	}
	err = attempt(ctx, db, func(q Querier) error {
		var bound string
		return q.QueryRow(ctx, `select (`+d.bound("clock_timestamp()")+`)::text`).Scan(&bound)
	})
	if isDataException(err) {
		return "expire.after", fmt.Sprintf("%s before now is before the first instant that PostgreSQL knows", d.After), nil
	}
	if err != nil {
		return "", "", errors.Join(errors.New("count back from now"), err)
	}
	return "", "", nil
}
