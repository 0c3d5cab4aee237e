package report_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/report"
)

// yearOf makes a record of a year's log at a time, so that nothing of the log is in memory: policies delete, users delete, and heartbeats come.
type yearOf struct {
	log
	policies, records int
}

func (y *yearOf) each(take func(leaf int64, r *evidence.LogRecord), signed func(report.Checkpoint)) {
	y.log = log{t: y.t, history: 1, lsn: 1 << 20, xid: 1000}
	leaf, pace := int64(0), 365*24*time.Hour/time.Duration(y.records)
	flush := func() {
		for _, value := range y.log.records {
			r, err := evidence.ParseLogRecord([]byte(value))
			if err != nil {
				y.t.Fatal(err)
			}
			take(leaf, r)
			leaf++
		}
		y.log.records = y.log.records[:0]
	}
	y.add("origin", `"slot":"s","consistent_point":"0/1","keys":[]`).beat(minute(0))
	for i := range y.policies {
		y.policy(minute(1), i+1, fmt.Sprint("p", i), 100+i, dueTerms)
	}
	flush()
	for i := range y.records {
		at := minute(2).Add(time.Duration(i) * pace)
		policy := i % y.policies
		switch {
		case i%3 == 0:
			y.batch(at, fmt.Sprint("p", policy), 100+policy, 5, 5, "match", allDue(5))
		case i%1000 == 1:
			y.beat(at)
		default:
			y.user(at, fmt.Sprint("p", policy), 100+policy, "delete", "user", 1)
		}
		flush()
		if i%1000 == 1 && signed != nil {
			signed(report.Checkpoint{Records: leaf})
		}
	}
	y.beat(minute(3).AddDate(1, 0, 0))
	flush()
	if signed != nil {
		signed(report.Checkpoint{Records: leaf})
	}
}

// BenchmarkReportOfAYear counts a year of 100 policies, by the record; nothing else reads the log, and nothing verifies it. It says how much
// memory is in use at the end.
func BenchmarkReportOfAYear(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				y := &yearOf{log: log{t: b}, policies: 100, records: n}
				bounds, err := report.NewBounds(report.Question{From: minute(1), To: minute(1).AddDate(1, 0, 0)})
				if err != nil {
					b.Fatal(err)
				}
				y.each(bounds.Record, bounds.Checkpoint)
				if err := bounds.End(); err != nil {
					b.Fatal(err)
				}
				count := bounds.Count()
				y.each(count.Record, nil)
				r, err := count.Report()
				if err != nil {
					b.Fatal(err)
				}
				written, err := r.Canonical()
				if err != nil {
					b.Fatal(err)
				}
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(m.HeapInuse)/1e6, "MB")
				b.ReportMetric(float64(len(written))/1e6, "MB-of-JSON")
				runtime.KeepAlive(count)
			}
		})
	}
}

// BenchmarkRecord reads and counts one record of a user's transaction, as often as there are some: a report does so twice for each.
func BenchmarkRecord(b *testing.B) {
	l := quiet(b)
	l.user(minute(20), "a", 100, "delete", "user", 1)
	value := []byte(l.records[len(l.records)-1])
	l.beat(minute(61))
	all := l.parsed()
	bounds, err := report.NewBounds(report.Question{From: minute(10), To: minute(60)})
	if err != nil {
		b.Fatal(err)
	}
	l.pass(all, bounds.Record, bounds.Checkpoint)
	if err := bounds.End(); err != nil {
		b.Fatal(err)
	}
	count := bounds.Count()
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if _, err := evidence.ParseLogRecord(value); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("count", func(b *testing.B) {
		for b.Loop() {
			count.Record(int64(len(all)-2), all[len(all)-2])
		}
	})
}
