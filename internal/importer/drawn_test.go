package importer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawn are the parts that a job's condition is put together from.
var (
	drawnZones   = []string{utc, utc, "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"}
	drawnPeriods = []string{"30 days", "1 day", "36:00", "1 mon", "3 mons", "1 year", "1 mon 2 days", "45 days 06:00", "00:20", "2 mons -3 days", "-5 days", "0"}
	drawnRows    = []string{
		"created_at", "ts", "d", "created_at::date", "ts::date", "ts::timestamptz", "d::timestamptz", "created_at::timestamp", "created_at at time zone '%z'",
		"ts at time zone '%z'", "date_trunc('%u', created_at)", "date_trunc('%u', ts)", "created_at + interval '%p'", "ts + interval '%p'", "d + interval '%p'", "d + 7",
		"d - 3", "created_at - interval '%p'", "to_timestamp(e)", "to_timestamp(ms / 1000)", "to_timestamp(ed)", "coalesce(closed_at, created_at)", "greatest(ts, d)",
		"(created_at + interval '%p')::date", "date_trunc('%u', created_at) + interval '%p'", "created_at + keep", "created_at + ttl * interval '1 second'",
		"ts + keep", "(ts + keep) at time zone '%z'", "ts + ttl * interval '1 second'",
	}
	drawnNows = []string{
		"now()", "current_timestamp", "localtimestamp", "current_date", "now()::date", "now()::timestamp", "now() at time zone '%z'", "date_trunc('%u', now())",
		"date_trunc('%u', localtimestamp)", "(now() - interval '%p')::date", "date_trunc('%u', now() - interval '%p')", "(now() at time zone '%z')::date", "current_date - 5",
		"(now() at time zone '%z') at time zone '%z'",
	}
	drawnNumbers = []struct{ row, now string }{
		{"e", "extract(epoch from now() - interval '%p')"},
		{"ms", "extract(epoch from now() - interval '%p') * 1000"},
		{"ed", "date_part('epoch', now()) - 86400"},
		{"n", "extract(epoch from now()) - 3600"},
		{"e", "extract(epoch from now())::bigint - 600"},
		{"ms / 1000", "floor(extract(epoch from now() - interval '%p'))"},
		{"e", "extract(epoch from localtimestamp)"},
		{"e", "extract(epoch from (now() at time zone '%z'))"},
	}
	drawnElapsed = []struct{ row, than string }{
		{"now() - created_at", "interval '%p'"},
		{"age(created_at)", "interval '%p'"},
		{"age(ts)", "interval '%p'"},
		{"age(d)", "interval '%p'"},
		{"age(now(), created_at)", "interval '%p'"},
		{"localtimestamp - ts", "interval '%p'"},
		{"now() - ts", "interval '%p'"},
		{"current_date - d", "30"},
		{"current_date - created_at::date", "20"},
		{"extract(epoch from now() - created_at)", "100000"},
		{"extract(day from now() - created_at)", "40"},
		{"(now() - interval '1 day') - created_at", "interval '%p'"},
		{"now() - (created_at + interval '%p')", "interval '%p'"},
		{"extract(epoch from now()) - e", "70000"},
	}
)

// setBack are days on which clocks are set back in some of the zones; often none.
var setBack = []time.Time{{}, {}, time.Date(2025, 10, 26, 0, 0, 0, 0, time.UTC), time.Date(2025, 11, 2, 0, 0, 0, 0, time.UTC), time.Date(2026, 4, 4, 0, 0, 0, 0, time.UTC)}

// drawJob puts a condition together.
func drawJob(t *rapid.T) string {
	fill := func(text string) string {
		for strings.Contains(text, "%") {
			for mark, from := range map[string][]string{"%z": drawnZones, "%p": drawnPeriods, "%u": {"hour", "day", "week", "month", "year"}} {
				if before, after, found := strings.Cut(text, mark); found {
					text = before + rapid.SampledFrom(from).Draw(t, mark) + after
				}
			}
		}
		return text
	}
	op := rapid.SampledFrom([]string{"<", "<=", "<", ">", ">="}).Draw(t, "op")
	var left, right string
	switch rapid.IntRange(0, 3).Draw(t, "shape") {
	case 0:
		pair := rapid.SampledFrom(drawnNumbers).Draw(t, "numbers")
		left, right = pair.row, pair.now
	case 1:
		pair := rapid.SampledFrom(drawnElapsed).Draw(t, "elapsed")
		left, right = pair.than, pair.row
	default:
		left, right = rapid.SampledFrom(drawnRows).Draw(t, "row"), "("+rapid.SampledFrom(drawnNows).Draw(t, "now")+")"
		if rapid.Bool().Draw(t, "shifted") {
			right += rapid.SampledFrom([]string{" - interval '%p'", " - interval '%p'", " + interval '%p'", " - make_interval(days => 12)", " - 3 * interval '%p'"}).Draw(t, "shift")
		}
	}
	text := fmt.Sprintf("%s %s %s", fill(left), op, fill(right))
	if rapid.IntRange(0, 5).Draw(t, "negated") == 0 {
		text = "not (" + text + ")"
	}
	return "delete from logs where " + text
}

// Of whatever job, in whatever zone and at whatever instant: what is due under the policy is what the job deletes, or less where the file says so.
func TestNoPolicyHasDueWhatADrawnJobLeaves(t *testing.T) {
	t.Parallel()
	s := newReader(t)
	admin := s.db.Connect(t)
	instants := make([]string, 6)
	read, same := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		j := job{text: drawJob(rt), zone: rapid.SampledFrom(drawnZones).Draw(rt, "zone")}
		i := s.read(j.text, j.zone)
		if i.Policy == nil {
			return
		}
		read++
		c := s.condition(i.Policy)
		for n := range instants {
			month := time.Date(2024, time.Month(1+rapid.IntRange(0, 35).Draw(rt, "month")), 1, 0, 0, 0, 500_000_000, time.UTC)
			at := month.Add(time.Duration(rapid.IntRange(-3*24*60, 3*24*60).Draw(rt, "minutes"))*time.Minute + time.Duration(n)*time.Second)
			if back := rapid.SampledFrom(setBack).Draw(rt, "clocks are set back"); !back.IsZero() {
				at = back.Add(time.Duration(rapid.IntRange(0, 20*60).Draw(rt, "minutes"))*time.Minute + 500*time.Millisecond)
			}
			instants[n] = at.Format("2006-01-02 15:04:05.999999-07")
			if err := exec(admin, "truncate app.logs"); err != nil {
				rt.Fatal(err)
			}
			if err := exec(admin, fill, instants[n]); err != nil {
				rt.Fatal(err)
			}
			deleted := map[int64]bool{}
			for _, id := range s.deleted(admin, j, instants[n]) {
				deleted[id] = true
			}
			due := s.due(c, i.Policy.Table, instants[n])
			for _, id := range due {
				if !deleted[id] {
					rt.Fatalf("%s at %s in %s: row %d is due, and the job does not delete it: %s %q", j.text, instants[n], j.zone, id, policyLine(i), i.Lost)
				}
			}
			if delete(deleted, 0); len(i.Lost) == 0 && len(due) != len(deleted) {
				rt.Fatalf("%s at %s in %s: %d rows are due, and the job deletes %d: %s", j.text, instants[n], j.zone, len(due), len(deleted), policyLine(i))
			}
			if len(due) == len(deleted) && len(due) > 0 {
				same++
			}
		}
	})
	t.Logf("%d policies, the same %d times", read, same)
	if read == 0 || same == 0 {
		t.Error("nothing was read, or nothing was the same")
	}
}
