package main

import (
	"fmt"
	"io"

	"lapse/bench/internal/measure"
)

// report is all that was measured.
type report struct {
	Server      string   `json:"server"`
	Rounds      int      `json:"rounds"`
	Connections int      `json:"connections"`
	Rate        int      `json:"rate"`
	Seconds     float64  `json:"seconds"`
	Figures     []figure `json:"figures"`
}

// figure is one line of the table.
type figure struct {
	Scenario scenario       `json:"scenario"`
	Way      string         `json:"way"`
	Ratio    measure.Spread `json:"p99_ratio"` // to that of the same round without Lapse
	Ratio50  measure.Spread `json:"p50_ratio"`
	Share    measure.Spread `json:"transactions_ratio"`
	Deleted  measure.Spread `json:"rows_deleted_per_second"`
	Batch    measure.Spread `json:"rows_of_a_batch"`
	P99      measure.Spread `json:"p99_milliseconds"`
	Samples  []sample       `json:"samples"`
}

// add enters a scenario's samples, one of each way a round.
func (r *report) add(of scenario, ways []string, samples measure.Samples[sample]) {
	for _, way := range ways {
		each := func(value func(with, without *sample) float64) measure.Spread {
			return measure.Each(samples[way], func(round int, s sample) float64 { return value(&s, &samples[alone][round]) })
		}
		r.Figures = append(r.Figures, figure{
			Scenario: of, Way: way, Samples: samples[way],
			Ratio:   each(func(with, without *sample) float64 { return with.P99 / without.P99 }),
			Ratio50: each(func(with, without *sample) float64 { return with.P50 / without.P50 }),
			Share:   each(func(with, without *sample) float64 { return with.Transactions / without.Transactions }),
			Deleted: each(func(with, _ *sample) float64 { return with.Deleted }),
			Batch:   each(func(with, _ *sample) float64 { return with.Batch }),
			P99:     each(func(with, _ *sample) float64 { return with.P99 }),
		})
	}
}

// Empty says whether nothing was measured.
func (r *report) Empty() bool { return len(r.Figures) == 0 }

// Print writes the table.
func (r *report) Print(out io.Writer) error {
	fmt.Fprintf(out, "\nPostgreSQL %s, %d connections, %.0f s, medians of %d rounds (least–most); ratios are to the application alone in the same round\n\n",
		r.Server, r.Connections, r.Seconds, r.Rounds)
	return measure.Table(out, "P99 RATIO\tP50 RATIO\tTRANSACTIONS\tWAY\tROWS/S DELETED\tROWS OF A BATCH\tP99 MS\tSCENARIO", func(w io.Writer) {
		for i := range r.Figures {
			f := &r.Figures[i]
			fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%s\t%.0f\t%.0f\t%.2f\t%s\n", f.Ratio, f.Ratio50.Median, f.Share.Median, f.Way,
				f.Deleted.Median, f.Batch.Median, f.P99.Median, f.Scenario)
		}
	})
}
