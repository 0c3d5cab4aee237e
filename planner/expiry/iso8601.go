package expiry

import (
	"context"

	"lapse/internal/yamldoc"
	"lapse/schemas"
)

// ISO8601 is the kind {column, iso8601: true, path, after}: a text, of a column or inside a jsonb document, is a date in one of
// the forms that programs write, and the row is due when that instant + After <= cutoff:
//
//	2019-05-27                      midnight, UTC
//	2019-05-27T21:20                UTC; Java leaves out seconds that are none
//	2019-05-27T21:20:00             UTC
//	2019-05-27T21:20:00.5           UTC; one to nine digits
//	2019-05-27 21:20:00             a space for the T, as PostgreSQL and Python write it
//	2019-05-27T21:20:00Z            and all of the above but the first
//	2019-05-27T21:20:00+01:30       and +0130 and +01; an offset of less than a day
//
// PostgreSQL counts in microseconds. An instant between two of them is rounded up, so that nothing is due before its time.
//
// Any other text never expires, however similar: a day that the month does not have, the year 0000, 24:00:00, a second 60, a
// space after the date, t or z, a comma, digits that are not ASCII. Unread counts those.
type ISO8601 struct {
	Kind string `json:"kind"`
	Value
	After Interval `json:"after"`
}

const isoKind = "iso8601"

// The forms, but for the year 0000 and the last days of the months. PostgreSQL's own input takes much more: "now", "20190527",
// "2019-05-27 BC". A pattern that knows the months too takes five times as long.
const isoForms = `^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])` +
	`([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?)?$`

// isoFirst is at or below every text that has a year, under collation C.
const isoFirst = `'0001'`

// isoLonger is longer than any of the forms. Only so many characters of a text are checked, and kept in an index.
const isoLonger = "36"

func isoFamily() family {
	return family{
		name:  isoKind,
		keys:  []string{"column", "iso8601", "path", "after"},
		marks: []string{"iso8601"},
		check: func(e Entry) []Problem { return append(checkValue(e), checkTrue(e, "iso8601")...) },
		read: func(ctx context.Context, db DB, e Entry) (Kind, []Problem, error) {
			after, problems, err := readAfter(ctx, db, e)
			return &ISO8601{Kind: isoKind, Value: valueOf(e), After: after}, problems, err
		},
		load: func(text []byte) (Kind, error) { return load(text, &ISO8601{}) },
	}
}

// checkTrue says what is wrong with a key whose only value is true.
func checkTrue(e Entry, key string) []Problem {
	if e[key] == "true" {
		return nil
	}
	return []Problem{{key, key + " is true, or is left out, and not " + yamldoc.Quote(e[key])}}
}

// Resolve finds the column.
func (k *ISO8601) Resolve(ctx context.Context, db DB, t Table) ([]Problem, error) {
	return k.resolve(ctx, db, t, "iso8601 reads text, character varying, or a jsonb column with path", "text", "character varying")
}

// Columns are the one that holds the date.
func (k *ISO8601) Columns() []Column { return []Column{k.onRecord()} }

// Recall takes the column from the record.
func (k *ISO8601) Recall(former Kind) Kind {
	was, same := former.(*ISO8601)
	next := *k
	if !same || !next.recall(was.Value) {
		return nil
	}
	return &next
}

// MoreThan is false for the same value, and a time that is certainly no shorter.
func (k *ISO8601) MoreThan(former Kind) bool {
	was, same := former.(*ISO8601)
	return !same || k.Value != was.Value || k.After.MayBeShorter(was.After)
}

// Fields are the entry's keys, and what the column is.
func (k *ISO8601) Fields() []Field { return k.fields(Field{"expire.iso8601", "true"}, k.After) }

// indexed is the part of the text that an index contains, without its collation: the column, or the beginning of a text inside it, null if
// there is none. It is in PostgreSQL's spelling.
func (k *ISO8601) indexed(table string) string {
	if k.inJSON() {
		return "CASE jsonb_typeof(" + k.json(table) + ") WHEN 'string'::text THEN substr(" + k.text(table) + ", 1, " + isoLonger + ") ELSE NULL::text END"
	}
	return k.raw(table)
}

// order is the SQL of what rows are ordered by. Under collation C the forms sort by their date.
func (k *ISO8601) order() string {
	if k.inJSON() {
		return inC("(" + k.indexed("t.") + ")")
	}
	return inC(k.indexed("t."))
}

// inC is the SQL of a text in collation C.
func inC(text string) string { return "(" + text + ` collate "C")` }

// short is the condition that a text column is no longer than the forms, as PostgreSQL writes it; "" for a text in a document,
// whose length does not matter. It never raises: a pattern does, for a text of half a gigabyte.
func (k *ISO8601) short(table string) string {
	switch {
	case k.inJSON():
		return ""
	case k.Type == "text":
		return "octet_length(" + k.raw(table) + ") < " + isoLonger
	default:
		return "octet_length((" + k.raw(table) + ")::text) < " + isoLonger
	}
}

// isoInstant is the SQL of a text, given as SQL in collation C, that has one of the forms, as an instant. PostgreSQL's own reading
// rounds to the nearest microsecond, and its offsets end at 15:59.
func isoInstant(text string) string {
	clock := "split_part(translate(substr(" + text + ", 11), 'Z-', '++'), '+', 1)"
	zone := "substr(" + text + ", 11 + length(" + clock + "))"
	return "((left(" + text + ", 10) || left(" + clock + ", 16))::timestamp at time zone 'UTC'" +
		" + case when substr(" + clock + ", 17) > '000' then interval '1 microsecond' else interval '0' end" +
		" - case when length(" + zone + ") > 1 then rpad(left(" + zone + ", 3) || ':' || right(substr(" + zone + ", 4), 2), 6, '0')::interval else interval '0' end)"
}

// isoReads is the condition that a text, given as SQL in collation C, is a date that is read. It raises for no text of fewer characters than
// isoLonger says. First the form, then the month's last day.
func isoReads(text string) string {
	year := "substr(" + text + ", 1, 4)::int"
	last := "case substr(" + text + ", 6, 2) when '02' then case when " + year + " % 4 = 0 and (" + year + " % 100 <> 0 or " + year +
		" % 400 = 0) then '29' else '28' end when '04' then '30' when '06' then '30' when '09' then '30' when '11' then '30' else '31' end"
	return "case when " + text + " >= " + isoFirst + " and " + text + " ~ " + schemas.Literal(isoForms) + " then substr(" + text + ", 9, 2) <= " + last + " else false end"
}

// isoDue is the condition that a text, as isoReads takes it, is a date that is read, and is due.
func isoDue(text string, after Interval, cutoff string) string {
	return "case when " + isoReads(text) + " then " + isoInstant(text) + " + interval " + schemas.Literal(after.String()) + " <= " + cutoff + " else false end"
}

// isoBound is a text at or above each of the forms whose instant is at or before one that is given as SQL: the day after, since
// an offset is less than a day.
func isoBound(instant string) string {
	return "to_char(least(" + instant + " + interval '1 day', '9999-12-31') at time zone 'UTC', 'YYYY-MM-DD') || '~'"
}

// Instant is the SQL of the text as an instant. It raises for a text that has none of the forms.
func (k *ISO8601) Instant() string { return isoInstant(inC(k.text("t."))) }

// Order is the text.
func (k *ISO8601) Order() Order {
	o := Order{SQL: k.order(), Cast: `text collate "C"`}
	if !k.inJSON() {
		o.Column = k.Column
	}
	return o
}

// Bound is a text: a day, and what sorts after all of that day's. What sorts below the first year, an empty text for instance,
// is left out too.
func (k *ISO8601) Bound(cutoff string) Bound {
	return Bound{
		Column: k.order(), Type: "text", Value: isoBound(k.After.before(cutoff)), Floor: k.order() + " >= " + isoFirst, Also: k.short("t."),
		OutOfRange: beforeTheCalendar(k.After),
	}
}

// Due is guarded in steps: the length and the bound, the form, the month's last day.
func (k *ISO8601) Due(cutoff, bound string) string {
	text, guard := k.order(), k.order()+" <= "+bound
	if k.inJSON() {
		text = k.start() // a text, if order is one
	} else {
		guard = k.short("t.") + " and " + guard
	}
	return "case when " + guard + " then " + isoDue(text, k.After, cutoff) + " else false end"
}

// Index is one in collation C. The texts that are too long for a date are left out of one that is made for it: an index on
// them would refuse the longest.
func (k *ISO8601) Index() Index {
	if k.inJSON() {
		return Index{Expression: k.indexed(""), Collation: "C", Predicate: k.indexed("") + " IS NOT NULL"}
	}
	return Index{Column: k.Column, Collation: "C", Predicate: k.short("")}
}
