package expiry

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"

	"lapse/schemas"
)

// Age is the kind {column, after}: a row is due when Column + After <= cutoff, in PostgreSQL's own calendar arithmetic, in
// UTC. {column} alone means that the column is the due time: After is zero.
type Age struct {
	Moment
	After Interval `json:"after"`
}

func ageFamily() family {
	return family{
		keys:  []string{"column", "after", "zone"},
		check: checkMoment,
		read: func(ctx context.Context, db DB, e Entry) (Kind, []Problem, error) {
			after, problems, err := readAfter(ctx, db, e)
			return &Age{Moment: momentOf(e), After: after}, problems, err
		},
		load: func(text []byte) (Kind, error) { return load(text, &Age{}) },
	}
}

// load reads a kind from JSON.
func load[K Kind](text []byte, into K) (Kind, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return nil, err
	}
	return into, nil
}

// Resolve finds the column.
func (a *Age) Resolve(ctx context.Context, db DB, t Table) ([]Problem, error) {
	return a.resolve(ctx, db, t)
}

// Columns is the column that After is added to.
func (a *Age) Columns() []Column { return []Column{a.onRecord()} }

// Recall takes the column from the record.
func (a *Age) Recall(former Kind) Kind {
	was, same := former.(*Age)
	next := *a
	if !same || !next.recall(was.Moment) {
		return nil
	}
	return &next
}

// MoreThan is false for the same column, read in the same zone, with a time that is certainly not shorter.
func (a *Age) MoreThan(former Kind) bool {
	was, same := former.(*Age)
	return !same || a.reading() != was.reading() || a.After.MayBeShorter(was.After)
}

// Fields are the entry's keys, and what the column is.
func (a *Age) Fields() []Field {
	return []Field{
		{"expire.column", a.Column},
		{"expire.after", a.After.String()},
		{"expire.zone", a.Zone},
		{"column type", string(a.Type)},
		{"column number", strconv.Itoa(int(a.Number))},
	}
}

// Bound counts back from the cutoff: days and hours exactly, months with some days of slack, in which rows are not due.
func (a *Age) Bound(cutoff string) Bound {
	b := a.limit(a.After.before(cutoff))
	b.Exact = a.After.Months == 0 && a.inUTC()
	b.Settled = settled(b.Exact)
	b.OutOfRange = beforeTheCalendar(a.After)
	return b
}

// Due is the bound alone if that is exact, so that nothing is computed for each row; "coalesce" keeps PostgreSQL from using an index for it,
// because the conditions that a batch's shape adds must choose the index, and from reading the index's ends to guess how many rows meet it,
// as "is true" would not. Otherwise a case guards it so that no value can raise an error:
// PostgreSQL evaluates a case in order, but the parts of an AND in any order.
func (a *Age) Due(cutoff, bound string) string {
	if b := a.Bound(cutoff); b.Exact {
		return "coalesce(" + b.condition(bound) + ", false)"
	}
	return "case when " + a.within(bound) + " then " + a.Instant() + " + interval " + schemas.Literal(a.After.String()) + " <= " + cutoff +
		" else false end"
}

// Index is one that begins with the column.
func (a *Age) Index() Index { return Index{Column: a.Column} }
