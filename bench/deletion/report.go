package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"lapse/internal/measure"
)

// report is all that was measured.
type report struct {
	Server  string   `json:"server"`
	Rounds  int      `json:"rounds"`
	Rows    int      `json:"rows"`
	Looks   []look   `json:"looks"`
	Idle    []idling `json:"idle"`
	Figures []figure `json:"figures"`
}

// figure is one line of the table.
type figure struct {
	Scenario  scenario       `json:"scenario"`
	Way       string         `json:"way"`
	Ratio     measure.Spread `json:"ratio"` // of rows a second to the giant DELETE's, in the same round
	Rows      measure.Spread `json:"rows_per_second"`
	WAL       measure.Spread `json:"wal_bytes_per_row"`
	ServerCPU measure.Spread `json:"server_cpu_seconds_per_million"`
	LapseCPU  measure.Spread `json:"lapse_cpu_seconds_per_million"`
	Samples   []sample       `json:"samples"`
}

// look is what a look costs that finds nothing.
type look struct {
	Table        string         `json:"table"`
	Milliseconds measure.Spread `json:"milliseconds"`
}

// sample is one way's doing in one round.
type sample struct {
	Seconds   float64 `json:"seconds"`
	WAL       int64   `json:"wal_bytes"`
	ServerCPU float64 `json:"server_cpu_seconds"`
	LapseCPU  float64 `json:"lapse_cpu_seconds"`
}

// add enters a scenario's samples, n of which are of each way: one a round.
func (r *report) add(of scenario, due int, ways []string, samples map[string][]sample) {
	for _, name := range ways {
		each := func(value func(round int, s sample) float64) measure.Spread {
			var values []float64
			for round, s := range samples[name] {
				values = append(values, value(round, s))
			}
			return measure.SpreadOf(values)
		}
		million := float64(due) / 1e6
		r.Figures = append(r.Figures, figure{
			Scenario: of, Way: name, Samples: samples[name],
			Ratio:     each(func(round int, s sample) float64 { return samples[giant][round].Seconds / s.Seconds }),
			Rows:      each(func(_ int, s sample) float64 { return float64(due) / s.Seconds }),
			WAL:       each(func(_ int, s sample) float64 { return float64(s.WAL) / float64(due) }),
			ServerCPU: each(func(_ int, s sample) float64 { return s.ServerCPU / million }),
			LapseCPU:  each(func(_ int, s sample) float64 { return s.LapseCPU / million }),
		})
	}
}

// print writes the table, ratios first.
func (r *report) print(out io.Writer) error {
	if len(r.Looks) > 0 {
		fmt.Fprintf(out, "\nPostgreSQL %s, a look that finds nothing: median of %d (least–most) in milliseconds, ratio to the first\n\n", r.Server, lookTimes)
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "RATIO\tMS\tTABLE")
		for _, l := range r.Looks {
			m := l.Milliseconds
			fmt.Fprintf(w, "%.2f\t%.2f (%.2f–%.2f)\t%s\n", m.Median/r.Looks[0].Milliseconds.Median, m.Median, m.Least, m.Most, l.Table)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if err := r.printIdle(out); err != nil || len(r.Figures) == 0 {
		return err
	}
	fmt.Fprintf(out, "\nPostgreSQL %s, %d of %d rows due, medians of %d rounds (least–most); the ratio is that of rows a second to one giant DELETE\n\n",
		r.Server, r.Rows/2, r.Rows, r.Rounds)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RATIO\tWAY\tROWS/S\tWAL B/ROW\tSERVER CPU S/M\tLAPSE CPU S/M\tSCENARIO")
	for i := range r.Figures {
		f := &r.Figures[i]
		fmt.Fprintf(w, "%.2f (%.2f–%.2f)\t%s\t%.0f\t%.0f\t%.2f\t%.2f\t%s\n", f.Ratio.Median, f.Ratio.Least, f.Ratio.Most, f.Way,
			f.Rows.Median, f.WAL.Median, f.ServerCPU.Median, f.LapseCPU.Median, f.Scenario)
	}
	return w.Flush()
}

// write writes all figures as JSON.
func (r *report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// printIdle writes what policies cost that have nothing to do.
func (r *report) printIdle(out io.Writer) error {
	if len(r.Idle) == 0 {
		return nil
	}
	fmt.Fprintf(out, "\nPostgreSQL %s, policies with nothing due, each looked at every second: CPU seconds for a minute\n\n", r.Server)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POLICIES\tSERVER CPU S/MIN\tLAPSE CPU S/MIN\tBOTH, MS PER POLICY AND MINUTE\tTRANSACTIONS/S\tWAL B/S")
	for _, i := range r.Idle {
		fmt.Fprintf(w, "%d\t%.2f\t%.2f\t%.1f\t%.1f\t%.0f\n", i.Policies, i.ServerCPU, i.LapseCPU, (i.ServerCPU+i.LapseCPU)*1000/float64(i.Policies), i.Transactions, i.WAL)
	}
	return w.Flush()
}
