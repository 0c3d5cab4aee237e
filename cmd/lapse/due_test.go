package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"lapse/audit/evidence"
	"lapse/internal/pgtest"
	"lapse/planner/expiry"
	"lapse/schemas"
)

// judgedKind is a kind that the auditor can judge by, over column c of this type.
type judgedKind struct {
	of   string
	kind expiry.Kind
}

// drawnPeriod has what calendars make difficult.
func drawnPeriod(t *rapid.T, label string) expiry.Interval {
	return expiry.Interval{
		Months:       rapid.OneOf(rapid.Just[int32](0), rapid.Int32Range(0, 30), rapid.Int32Range(0, 24000)).Draw(t, label+" months"),
		Days:         rapid.OneOf(rapid.Just[int32](0), rapid.Int32Range(0, 40), rapid.Int32Range(0, 60000)).Draw(t, label+" days"),
		Microseconds: rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(0, 3*24*time.Hour.Microseconds()), rapid.Just[int64](1)).Draw(t, label+" microseconds"),
	}
}

func drawnKind(t *rapid.T, after expiry.Interval) judgedKind {
	moment := func(of expiry.ColumnType) expiry.Moment { return expiry.Moment{Column: "c", Number: 1, Type: of} }
	value := expiry.Value{Column: "c", Number: 1, Type: "bigint"}
	return rapid.SampledFrom([]judgedKind{
		{"timestamptz", &expiry.Age{Moment: moment(expiry.Timestamptz), After: after}},
		{"timestamp", &expiry.Age{Moment: moment(expiry.Timestamp), After: after}},
		{"date", &expiry.Age{Moment: moment(expiry.Date), After: after}},
		{"timestamptz", &expiry.Age{Moment: moment(expiry.Timestamptz)}},
		{"timestamp", &expiry.Bucket{Kind: "bucket", Moment: moment(expiry.Timestamp), Span: drawnPeriod(t, "span"), After: after}},
		{"bigint", &expiry.Epoch{Kind: "epoch", Value: value, Unit: "s", After: after}},
		{"bigint", &expiry.Epoch{Kind: "epoch", Value: value, Unit: "ms", After: after}},
	}).Draw(t, "kind")
}

// drawnColumn are values around the instant from which on a row is due, and those that arithmetic stumbles over.
func drawnColumn(t *rapid.T, of string, cutoff time.Time, after expiry.Interval) (texts []string) {
	edge := cutoff.AddDate(0, -int(after.Months), 0).AddDate(0, 0, -int(after.Days)).Add(-time.Duration(after.Microseconds) * time.Microsecond)
	for i := range 12 {
		near := edge.Add(time.Duration(rapid.OneOf(
			rapid.Int64Range(-3, 3), rapid.Int64Range(-1e6, 1e6), rapid.Int64Range(-4*864e8, 4*864e8), rapid.Int64Range(-4e15, 4e15),
		).Draw(t, fmt.Sprint("distance ", i))) * time.Microsecond)
		var text string
		switch {
		case of == "bigint":
			text = fmt.Sprint(rapid.OneOf(rapid.Just(near.Unix()), rapid.Just(near.UnixMilli()), rapid.Int64Range(-4000, 4000), rapid.Int64(),
				rapid.Int64Range(-210863520002, -210863519998), rapid.Int64Range(-210863520000002, -210863519999998)).Draw(t, fmt.Sprint("number ", i)))
		case rapid.IntRange(0, 5).Draw(t, fmt.Sprint("odd ", i)) == 0:
			text = rapid.SampledFrom([]string{
				"infinity", "-infinity", "4713-01-01 00:00 BC", "4713-01-02 BC", "4714-12-31 23:59:59.999999 BC", "4714-11-24 BC", "0001-01-01", "0044-02-29 BC", "1970-01-01",
				"2000-02-29", "1900-02-28 23:59:59.999999", "294276-12-31 23:59:59.999999", "9999-12-31", "2024-02-29", "2023-12-31 23:59:59.999999",
			}).Draw(t, fmt.Sprint("special ", i))
		case near.Year() < 1:
			text = fmt.Sprintf("%04d-%s BC", 1-near.Year(), near.Format("01-02 15:04:05.999999"))
		default:
			text = near.Format("2006-01-02 15:04:05.999999")
		}
		texts = append(texts, text)
	}
	return texts
}

// What the auditor says of a value that the log has is what PostgreSQL said of it in the deletion function, for every kind that can
// be judged.
func TestTheAuditorJudgesEachRowAsTheDeletionFunctionDoes(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		config, err := pgx.ParseConfig(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		schemas.PinSession(config.RuntimeParams, schemas.SessionSettings())
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(t.Context()) }()
		judged := map[evidence.Judgement]int{}
		rapid.Check(t, func(rt *rapid.T) {
			after := drawnPeriod(rt, "after")
			day := rapid.OneOf(rapid.IntRange(28, 31), rapid.IntRange(1, 31)).Draw(rt, "day")
			cutoff := time.Date(rapid.IntRange(2000, 2400).Draw(rt, "year"), time.Month(rapid.IntRange(1, 12).Draw(rt, "month")), day, 0, 0, 0, 0, time.UTC).
				Add(time.Duration(rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(0, 864e8-1)).Draw(rt, "clock")) * time.Microsecond)
			k := drawnKind(rt, after)
			due, why := expiry.Elsewhere(k.kind)
			if due == nil {
				rt.Fatalf("cannot be judged: %s", why)
			}
			at := schemas.Literal(cutoff.Format("2006-01-02 15:04:05.999999+00")) + "::timestamptz"
			bound := k.kind.Bound(at)
			sql := fmt.Sprintf(`with b as materialized (select (%s)::%s as bound) select t.c::text, %s from (select unnest($1::text[])::%s as c) t, b`,
				bound.Value, bound.Type, k.kind.Due(at, "b.bound"), k.of)
			rows, err := conn.Query(t.Context(), sql, drawnColumn(rt, k.of, cutoff, after))
			if err != nil {
				rt.Fatal(err)
			}
			var text string
			var isDue bool
			_, err = pgx.ForEachRow(rows, []any{&text, &isDue}, func() error {
				got := evidence.Judge(due, []byte(text), cutoff)
				if want := map[bool]evidence.Judgement{true: evidence.IsDue, false: evidence.IsNotDue}[isDue]; got != want {
					rt.Errorf("%s %s + %v at %s: judged %d, PostgreSQL says %v", due.As, text, due.After, cutoff, got, isDue)
				}
				judged[got]++
				return nil
			})
			if err != nil && !strings.Contains(err.Error(), "22008") {
				rt.Fatal(err)
			}
		})
		if judged[evidence.IsDue] < 20 || judged[evidence.IsNotDue] < 20 {
			t.Errorf("judged %v", judged)
		}
	})
}
