package expiry

import (
	"context"
	"fmt"
	"slices"

	"lapse/internal/yamldoc"
	"lapse/schemas"
)

// Epoch is the kind {column, epoch: s|ms, path, after}: a number of a column, or of a jsonb document, is a Unix time, and the
// row is due when that time + After <= cutoff. Seconds are read to the microsecond, as PostgreSQL's to_timestamp does;
// milliseconds are rounded down to the second, as GDN does. A value that is no number, or is outside PostgreSQL's calendar, never
// expires. A number below zero is an instant before 1970.
type Epoch struct {
	Kind string `json:"kind"`
	Value
	Unit  string   `json:"epoch"` // "s" or "ms"
	After Interval `json:"after"`
}

const (
	epochKind    = "epoch"
	seconds      = "s"
	milliseconds = "ms"
)

// earliestSecond is, without its sign, the beginning of the year 4713 BC: to_timestamp cannot raise an error from there on. With a positive
// sign it is also the largest valid number in a document: an instant in the year 8651.
const earliestSecond = "210863520000"

// wholeTypes and realTypes are the types of number columns, apart from numeric.
func wholeTypes() []ColumnType { return []ColumnType{"smallint", "integer", "bigint"} }
func realTypes() []ColumnType  { return []ColumnType{"real", "double precision"} }

func epochFamily() family {
	return family{
		name:  epochKind,
		keys:  []string{"column", "epoch", "path", "after"},
		marks: []string{"epoch"},
		check: func(e Entry) []Problem { return append(checkValue(e), checkUnit(e)...) },
		read: func(ctx context.Context, db DB, e Entry) (Kind, []Problem, error) {
			after, problems, err := readAfter(ctx, db, e)
			return &Epoch{Kind: epochKind, Value: valueOf(e), Unit: e["epoch"], After: after}, problems, err
		},
		load: func(text []byte) (Kind, error) { return load(text, &Epoch{}) },
	}
}

// checkUnit says what is wrong with an entry's unit.
func checkUnit(e Entry) []Problem {
	if unit := e["epoch"]; unit != seconds && unit != milliseconds {
		return []Problem{{"epoch", fmt.Sprintf("epoch is s (seconds since 1970) or ms, and not %s", yamldoc.Quote(unit))}}
	}
	return nil
}

// Resolve finds the column.
func (k *Epoch) Resolve(ctx context.Context, db DB, t Table) ([]Problem, error) {
	types := append(append(wholeTypes(), "numeric"), realTypes()...)
	return k.resolve(ctx, db, t, "epoch reads numbers ("+list(types)+"), or a jsonb column with path", types...)
}

// Columns are the one that holds the number.
func (k *Epoch) Columns() []Column { return []Column{k.onRecord()} }

// Recall takes the column from the record.
func (k *Epoch) Recall(former Kind) Kind {
	was, same := former.(*Epoch)
	next := *k
	if !same || next.Unit != was.Unit || !next.recall(was.Value) {
		return nil
	}
	return &next
}

// MoreThan is false for the same value, read in the same unit, and a time that is certainly no shorter.
func (k *Epoch) MoreThan(former Kind) bool {
	was, same := former.(*Epoch)
	return !same || k.Value != was.Value || k.Unit != was.Unit || k.After.MayBeShorter(was.After)
}

// Fields are the entry's keys, and what the column is.
func (k *Epoch) Fields() []Field { return k.fields(Field{"expire.epoch", k.Unit}, k.After) }

// times is a number of seconds in the kind's unit.
func (k *Epoch) times(number string) string {
	if k.Unit == milliseconds {
		return number + "000"
	}
	return number
}

// numberOrder is the order of rows by a number in a document: as a bigint, rounded down; null for any other value. It is in PostgreSQL's
// spelling, is immutable, never raises an error, and is short whatever the document holds.
func (k *Epoch) numberOrder(table string) string {
	return "CASE jsonb_typeof(" + k.json(table) + ") WHEN 'number'::text THEN " + k.guardedNumber(table) + " ELSE NULL::bigint END"
}

func (k *Epoch) guardedNumber(table string) string {
	number := "(" + k.json(table) + ")::numeric"
	return "CASE WHEN (abs(" + number + ") <= " + k.times(earliestSecond) + ".0) THEN (floor(" + number + "))::bigint ELSE NULL::bigint END"
}

// order is the SQL of what rows are ordered by.
func (k *Epoch) order() string {
	if k.inJSON() {
		return "(" + k.numberOrder("t.") + ")"
	}
	return k.raw("t.")
}

// orderType is the type of order.
func (k *Epoch) orderType() ColumnType {
	if k.inJSON() {
		return "bigint"
	}
	return k.Type
}

// Instant is the SQL of the number as an instant. It cannot raise an error if order is within Due's limits: it rounds a numeric first, since
// one very near to zero is out of range for to_timestamp.
func (k *Epoch) Instant() string {
	number := k.raw("t.")
	if k.inJSON() {
		number = k.json("t.") + "::numeric"
	}
	whole := slices.Contains(wholeTypes(), k.Type)
	switch {
	case k.Unit == milliseconds && whole:
		number = "floor(" + number + " / 1000.0)"
	case k.Unit == milliseconds:
		number = "floor(floor(" + number + ") / 1000)"
	case !whole && !slices.Contains(realTypes(), k.Type):
		number = "round(" + number + ", 6)"
	}
	return "to_timestamp(" + number + ")"
}

// Order is the column, or the number inside it.
func (k *Epoch) Order() Order {
	if k.inJSON() {
		return Order{SQL: k.order(), Cast: "bigint"}
	}
	return Order{Column: k.Column, SQL: k.order(), Cast: string(k.Type)}
}

// Bound is a number of the column's family of types. It is a second above the last that is due, for what rounding may add.
func (k *Epoch) Bound(cutoff string) Bound {
	value := "(floor(extract(epoch from " + k.After.before(cutoff) + ")) + 1)"
	if k.Unit == milliseconds {
		value += " * 1000"
	}
	var of ColumnType
	switch {
	case k.orderType() == "numeric":
		of = "numeric"
	case slices.Contains(realTypes(), k.orderType()):
		of = "double precision"
	default:
		of = "bigint"
	}
	b := Bound{
		Column: k.order(), Type: string(of), Value: "(" + value + ")::" + string(of),
		Exact: k.After.Months == 0, OutOfRange: beforeTheCalendar(k.After),
	}
	if !k.inJSON() { // of a document, the order has no such number
		b.Floor = k.order() + " >= (-" + k.times(earliestSecond) + ")::" + string(of)
	}
	return b
}

// Due is guarded as Age's is: a value between the calendar's first second and the bound is a number, to which After can be added. NaN
// is above every bound.
func (k *Epoch) Due(cutoff, bound string) string {
	return "case when " + k.order() + " between -" + k.times(earliestSecond) + " and " + bound +
		" then " + k.Instant() + " + interval " + schemas.Literal(k.After.String()) + " <= " + cutoff + " else false end"
}

// Index is one that begins with the column, or with the number inside it. Rows without a number never expire, and are not in one that is
// made for it.
func (k *Epoch) Index() Index {
	if k.inJSON() {
		return Index{Expression: k.numberOrder(""), Predicate: k.numberOrder("") + " IS NOT NULL"}
	}
	return Index{Column: k.Column, Predicate: schemas.Identifier(k.Column) + " is not null"}
}
