package expiry

import (
	"context"

	"lapse/schemas"
)

// NumberOrText is the kind {column, instant: true, epoch: s|ms, path, after}: GDN's attribute that is a number in one document and a
// date in another. A number is a Unix time, in seconds unless the entry says ms, as Epoch reads it; a text is a date, as ISO8601 reads
// it. Digits in a text are no number. Anything else never expires. Only a jsonb value can be both: a column of another type is one of the two.
type NumberOrText struct {
	Kind string `json:"kind"`
	Value
	Unit  string   `json:"epoch,omitempty"` // "ms", or "" for seconds
	After Interval `json:"after"`
}

const instantKind = "instant"

func instantFamily() family {
	return family{
		name:  instantKind,
		keys:  []string{"column", "instant", "epoch", "path", "after"},
		marks: []string{"instant"},
		check: func(e Entry) []Problem {
			problems := append(checkValue(e), checkTrue(e, "instant")...)
			if _, there := e["epoch"]; there {
				problems = append(problems, checkUnit(e)...)
			}
			return problems
		},
		read: func(ctx context.Context, db DB, e Entry) (Kind, []Problem, error) {
			after, problems, err := readAfter(ctx, db, e)
			k := &NumberOrText{Kind: instantKind, Value: valueOf(e), After: after}
			if e["epoch"] == milliseconds {
				k.Unit = milliseconds
			}
			return k, problems, err
		},
		load: func(text []byte) (Kind, error) { return load(text, &NumberOrText{}) },
	}
}

// Resolve finds the column.
func (k *NumberOrText) Resolve(ctx context.Context, db DB, t Table) ([]Problem, error) {
	return k.resolve(ctx, db, t, "instant reads a jsonb column with path; for a column of numbers write epoch: s or ms, for one of texts iso8601: true")
}

// Columns are the one that holds the document.
func (k *NumberOrText) Columns() []Column { return []Column{k.onRecord()} }

// Recall takes the column from the record.
func (k *NumberOrText) Recall(former Kind) Kind {
	was, same := former.(*NumberOrText)
	next := *k
	if !same || next.Unit != was.Unit || !next.recall(was.Value) {
		return nil
	}
	return &next
}

// MoreThan is false for the same value, read in the same unit, and a time that is certainly no shorter.
func (k *NumberOrText) MoreThan(former Kind) bool {
	was, same := former.(*NumberOrText)
	return !same || k.Value != was.Value || k.Unit != was.Unit || k.After.MayBeShorter(was.After)
}

// Fields are the entry's keys, and what the column is.
func (k *NumberOrText) Fields() []Field {
	return append(k.fields(Field{"expire.instant", "true"}, k.After), Field{"expire.epoch", k.Unit})
}

// number is the value where it is one.
func (k *NumberOrText) number() *Epoch { return &Epoch{Value: k.Value, Unit: k.Unit, After: k.After} }

// An index needs one order for numbers and texts. A text that begins like a date is converted to the seconds (or milliseconds) since 1970 of
// that day's beginning, as if every year had 365.2425 days and every month 30.6. That is exact to within four days, needs no calendar, and
// cannot raise an error. approximate is more than the largest error and an offset of a day together.
const approximate = "5 days"

// order is the SQL of what rows are ordered by, written as PostgreSQL writes it.
func (k *NumberOrText) order(table string) string {
	text := k.text(table)
	part := func(from, length string) string {
		return "(substr(" + text + ", " + from + ", " + length + "))::integer"
	}
	day := "(((((" + part("1", "4") + " * 146097) / 400) + ((" + part("6", "2") + " * 153) / 5)) + " + part("9", "2") + ") - 719558)"
	return "CASE jsonb_typeof(" + k.json(table) + ") WHEN 'number'::text THEN " + k.number().guardedNumber(table) +
		" WHEN 'string'::text THEN CASE WHEN (substr(" + text + ", 1, 11) ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]?$'::text) THEN ((" + day +
		")::bigint * " + k.number().times("86400") + ") ELSE NULL::bigint END ELSE NULL::bigint END"
}

// Instant is the SQL of the value as an instant. It raises for what has none of the forms.
func (k *NumberOrText) Instant() string {
	return "case jsonb_typeof(" + k.json("t.") + ") when 'number' then " + k.number().Instant() + " else " + isoInstant(inC(k.text("t."))) + " end"
}

// Order is a number of the unit.
func (k *NumberOrText) Order() Order { return Order{SQL: "(" + k.order("t.") + ")", Cast: "bigint"} }

// Bound is a number of the unit.
func (k *NumberOrText) Bound(cutoff string) Bound {
	value := "floor(extract(epoch from " + k.After.before(cutoff) + " + interval " + schemas.Literal(approximate) + "))::bigint"
	if k.Unit == milliseconds {
		value += " * 1000"
	}
	return Bound{Column: "(" + k.order("t.") + ")", Type: "bigint", Value: value, OutOfRange: beforeTheCalendar(k.After)}
}

// Due is guarded by order, which is null except for a number within the calendar, or a text that begins like a date.
func (k *NumberOrText) Due(cutoff, bound string) string {
	return "case when (" + k.order("t.") + ") <= " + bound + " then case when jsonb_typeof(" + k.json("t.") + ") = 'number' then " +
		k.number().Instant() + " + interval " + schemas.Literal(k.After.String()) + " <= " + cutoff + " else " +
		isoDue(k.start(), k.After, cutoff) + " end else false end"
}

// Index is one that begins with the number, without the rows that have none.
func (k *NumberOrText) Index() Index {
	return Index{Expression: k.order(""), Predicate: k.order("") + " IS NOT NULL"}
}
