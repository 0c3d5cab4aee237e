package expiry

import (
	"context"

	"lapse/schemas"
)

// Bucket is the kind {bucket: {column, span}, after} of MongoDB's time series: a row holds the measurements of the Span that begins at
// Column, and is due when its last measurement is: when Column + Span + After <= cutoff, added from the left.
type Bucket struct {
	Kind string `json:"kind"`
	Moment
	Span  Interval `json:"span"`
	After Interval `json:"after"`
}

const (
	bucketKind  = "bucket"
	defaultSpan = "1 hour"
)

func bucketFamily() family {
	moment := func(e Entry) Entry {
		plain := Entry{}
		for key, plainKey := range map[string]string{"bucket.column": "column", "zone": "zone"} {
			if value, there := e[key]; there {
				plain[plainKey] = value
			}
		}
		return plain
	}
	return family{
		name:  bucketKind,
		keys:  []string{"bucket.column", "bucket.span", "after", "zone"},
		marks: []string{"bucket.column", "bucket.span"},
		check: func(e Entry) []Problem {
			problems := checkMoment(moment(e))
			for i := range problems {
				if problems[i].Key == "" {
					problems[i].Text = "expire needs bucket.column"
				}
			}
			return problems
		},
		read: func(ctx context.Context, db DB, e Entry) (Kind, []Problem, error) {
			b := &Bucket{Kind: bucketKind, Moment: momentOf(moment(e))}
			text, there := e["bucket.span"]
			if !there {
				text = defaultSpan
			}
			span, problem, err := readPeriod(ctx, db, text)
			if err != nil {
				return nil, nil, err
			}
			after, problems, err := readAfter(ctx, db, e)
			if problem != "" {
				problems = append(problems, Problem{"bucket.span", problem})
			}
			b.Span, b.After = span, after
			return b, problems, err
		},
		load: func(text []byte) (Kind, error) { return load(text, &Bucket{}) },
	}
}

// Resolve finds the column.
func (b *Bucket) Resolve(ctx context.Context, db DB, t Table) ([]Problem, error) {
	problems, err := b.resolve(ctx, db, t)
	for i := range problems {
		if problems[i].Key == "column" {
			problems[i].Key = "bucket.column"
		}
	}
	return problems, err
}

// Columns are the bucket's start.
func (b *Bucket) Columns() []Column { return []Column{b.onRecord()} }

// Recall takes the column from the record.
func (b *Bucket) Recall(former Kind) Kind {
	was, same := former.(*Bucket)
	next := *b
	if !same || !next.recall(was.Moment) {
		return nil
	}
	return &next
}

// MoreThan is false for the same column, read in the same zone, and a span and a time that are certainly no shorter.
func (b *Bucket) MoreThan(former Kind) bool {
	was, same := former.(*Bucket)
	return !same || b.reading() != was.reading() || b.Span.MayBeShorter(was.Span) || b.After.MayBeShorter(was.After)
}

// Fields are the entry's keys, and what the column is.
func (b *Bucket) Fields() []Field {
	fields := (&Age{Moment: b.Moment, After: b.After}).Fields()
	fields[0].Name = "expire.bucket.column"
	return append(fields, Field{"expire.bucket.span", b.Span.String()})
}

// Bound counts back from the cutoff by both.
func (b *Bucket) Bound(cutoff string) Bound {
	limit := b.limit(b.Span.before(b.After.before(cutoff)))
	limit.Exact = b.Span.Months == 0 && b.After.Months == 0 && b.inUTC()
	limit.Settled = settled(limit.Exact)
	limit.OutOfRange = beforeTheCalendar(b.After)
	return limit
}

// Due is the bound alone, or guarded, as Age's is.
func (b *Bucket) Due(cutoff, bound string) string {
	if limit := b.Bound(cutoff); limit.Exact {
		return "coalesce(" + limit.condition(bound) + ", false)"
	}
	return "case when " + b.within(bound) + " then " + b.Instant() + " + interval " + schemas.Literal(b.Span.String()) +
		" + interval " + schemas.Literal(b.After.String()) + " <= " + cutoff + " else false end"
}

// Index is one that begins with the column.
func (b *Bucket) Index() Index { return Index{Column: b.Column} }
