package planner

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Resolved is a policy of the file that has been compared with the database: everything that it names is there and fit.
type Resolved struct {
	Policy     Policy
	Definition Definition // ID and Version are zero until Write
	Schedule   Schedule
	TableOID   uint32
	TableOwner string     // the role's name; its oid is the Definition's
	Leaves     []Relation // the table itself, or its partitions that hold rows, ascending by oid
	Cascades   []Relation // what foreign keys take along, as the write-ahead log names it, ascending by oid
	Published  []Relation // what must be in a publication: the table, then the roots of what cascades reach, by name
	Index      string     // the index that serves, "" where there is none or not on every leaf
	Warnings   []string

	spec spec
}

// resolution collects what is wrong with one policy.
type resolution struct {
	tx pgx.Tx
	p  *Policy
	d  *document
	r  *Resolved
}

// Resolve compares a policy of file with the database. It changes nothing. Its error is FileErrors, every one with the
// fix, or a failed query.
func Resolve(ctx context.Context, db DB, file string, p Policy) (*Resolved, error) {
	r := &Resolved{Policy: p}
	d := &document{file: file}
	err := pinned(ctx, db, func(tx pgx.Tx) error {
		s := &resolution{tx: tx, p: &p, d: d, r: r}
		return s.resolve(ctx)
	})
	if hasCode(err, "3F000", "42883") {
		return nil, fmt.Errorf("compare policy %s with the database: the catalog is not installed, run `lapse init`: %w", p.Name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("compare policy %s with the database: %w", p.Name, err)
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return r, nil
}

func (s *resolution) complain(key, problem string) {
	if problem != "" {
		s.d.complain(s.p.place(key), "policy %s: %s", s.p.Name, problem)
	}
}

func (s *resolution) resolve(ctx context.Context) error {
	r, p := s.r, s.p
	r.Definition = Definition{Name: p.Name, Column: p.Expire.Column, Zone: p.Expire.Zone, Batch: p.Batch}
	if err := s.times(ctx); err != nil {
		return err
	}
	t, problem, err := findTable(ctx, s.tx, p.Table)
	if err != nil {
		return err
	}
	if problem != "" {
		s.complain("table", problem)
		return nil
	}
	r.TableOID, r.TableOwner, r.Definition.Table, r.Definition.TableOwner = t.OID, t.Owner, t.Name, t.OwnerOID
	if err := s.column(ctx, &t); err != nil {
		return err
	}
	if err := s.relations(ctx, &t); err != nil {
		return err
	}
	if len(s.d.errors) > 0 {
		return nil
	}
	if err := s.arithmetic(ctx); err != nil {
		return err
	}
	if r.Index, r.Warnings, err = findIndex(ctx, s.tx, &r.Definition, r.Leaves); err != nil {
		return err
	}
	r.spec = s.specification()
	return nil
}

// times reads the durations.
func (s *resolution) times(ctx context.Context) error {
	latitude := Interval{}
	for _, duration := range []struct {
		key, text string
		into      *Interval
	}{
		{"expire.after", s.p.Expire.After, &s.r.Definition.After},
		{"every", s.p.Every, &s.r.Schedule.Every},
		{"latitude", s.p.Latitude, &latitude},
	} {
		if duration.text == "" {
			continue
		}
		i, problem, err := readInterval(ctx, s.tx, duration.text)
		if err != nil {
			return err
		}
		s.complain(duration.key, problem)
		*duration.into = i
	}
	s.r.Schedule.Daily = s.p.Daily
	if s.p.Daily == nil && s.r.Schedule.Every.Months == 0 && s.r.Schedule.Every.exact() < 1e6 && len(s.d.errors) == 0 {
		s.complain("every", "every must be at least one second")
	}
	if s.p.Latitude != "" {
		s.r.Policy.Latitude = latitude.String()
	}
	return nil
}

func (s *resolution) column(ctx context.Context, t *table) error {
	of, problem, err := findColumn(ctx, s.tx, t, &s.p.Expire)
	if err != nil {
		return err
	}
	s.complain("expire.column", problem)
	s.r.Definition.ColumnType, s.r.Definition.Number = of.Type, of.Number
	zone := s.p.Expire.Zone
	if zone == "UTC" {
		s.r.Definition.Zone = ""
	}
	if zone == "" || of.Type == "" {
		return nil
	}
	if of.Type == Timestamptz {
		s.complain("expire.zone", fmt.Sprintf("column %s has a zone of its own: take zone out", s.p.Expire.Column))
		return nil
	}
	err = attempt(ctx, s.tx, func(q Querier) error {
		var at any
		return q.QueryRow(ctx, `select now() at time zone $1`, zone).Scan(&at)
	})
	if isDataException(err) {
		s.complain("expire.zone", fmt.Sprintf("the server has no time zone %s", quoted(zone)))
		return nil
	}
	return err
}

// relations finds the leaves, the key, and what stands in the way of deleting from them.
func (s *resolution) relations(ctx context.Context, t *table) error {
	r := s.r
	leaves, problems, err := findLeaves(ctx, s.tx, t)
	if err != nil {
		return err
	}
	r.Leaves = leaves
	key, more, err := findKey(ctx, s.tx, t, leaves)
	if err != nil {
		return err
	}
	r.Definition.Key = key
	intruders, err := findIntruders(ctx, s.tx, t)
	if err != nil {
		return err
	}
	oids := []uint32{t.OID}
	for _, l := range leaves {
		oids = append(oids, l.OID)
	}
	if r.Cascades, err = cascadeLeaves(ctx, s.tx, oids); err != nil {
		return err
	}
	roots, err := cascadeRoots(ctx, s.tx, oids)
	if err != nil {
		return err
	}
	r.Published = append([]Relation{{OID: t.OID, Name: t.Name}}, roots...)
	loops, err := findLoops(ctx, s.tx, t, leaves, r.Cascades)
	if err != nil {
		return err
	}
	for _, group := range [][]string{problems, more, loops} {
		for _, problem := range group {
			s.complain("table", problem)
		}
	}
	for _, problem := range intruders {
		s.complain("triggers", problem)
	}
	return nil
}

// arithmetic makes the functions' text once, and PostgreSQL count back from its clock once, so that neither can fail
// first when rows are to be deleted.
func (s *resolution) arithmetic(ctx context.Context) error {
	if _, err := s.r.Definition.functionsText(); err != nil {
		var message string
		if message = err.Error(); strings.Contains(message, ": ") {
			_, message, _ = strings.Cut(message, ": ")
		}
		s.complain("table", message)
		return nil //nolint:nilerr // it is a complaint
	}
	err := attempt(ctx, s.tx, func(q Querier) error {
		var bound string
		return q.QueryRow(ctx, `select (`+s.r.Definition.bound("clock_timestamp()")+`)::text`).Scan(&bound)
	})
	if isDataException(err) {
		s.complain("expire.after", fmt.Sprintf("%s before now is before the first instant that PostgreSQL knows", s.r.Definition.After))
		return nil
	}
	if err != nil {
		return errors.Join(errors.New("count back from now"), err)
	}
	return nil
}

// specification is what lapse.policy keeps.
func (s *resolution) specification() spec {
	d, p := &s.r.Definition, s.p
	text := spec{
		Expire: expireSpec{Column: d.Column, Number: d.Number, Type: d.ColumnType, After: d.After.String(), Zone: d.Zone},
		Key:    d.Key, Cascades: names(s.r.Published[1:]), TableOwner: d.TableOwner, Daily: p.Daily, Batch: d.Batch,
		Action: "delete", Triggers: "refuse", Evidence: "claimed", Events: eventSpec{Values: "keys"},
		Owner: p.Owner, Basis: p.Basis, Latitude: s.r.Policy.Latitude,
	}
	if p.Daily == nil {
		text.Every = s.r.Schedule.Every.String()
	}
	return text
}
