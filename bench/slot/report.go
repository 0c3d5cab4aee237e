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
	Server    string    `json:"server"`
	Broker    string    `json:"broker"`
	CPUs      int       `json:"cpus"`
	Rounds    int       `json:"rounds"`
	Rows      int       `json:"rows"`
	Figures   []figure  `json:"figures"`
	Latencies []latency `json:"latencies"`
	Passing   *sample   `json:"one_large_transaction,omitempty"`
}

// figure is one line of the table. CPU seconds are per million rows.
type figure struct {
	Scenario  scenario       `json:"scenario"`
	Way       string         `json:"way"`
	Ratio     measure.Spread `json:"ratio"` // of rows a second, to pg_recvlogical's of the same round
	Rate      measure.Spread `json:"rows_per_second"`
	ClientCPU measure.Spread `json:"client_cpu_seconds_per_million"`
	ServerCPU measure.Spread `json:"server_cpu_seconds_per_million"`
	BrokerCPU measure.Spread `json:"broker_cpu_seconds_per_million"`
	Memory    measure.Spread `json:"client_memory_bytes"`
	Samples   []sample       `json:"samples"`
}

// add enters a scenario's samples, one of each way a round.
func (r *report) add(of scenario, samples map[string][]sample) {
	for _, way := range ways {
		each := func(value func(round int, s sample) float64) measure.Spread {
			var values []float64
			for round, s := range samples[way] {
				values = append(values, value(round, s))
			}
			return measure.SpreadOf(values)
		}
		millions := func(seconds float64, s sample) float64 { return seconds / float64(s.Rows) * 1e6 }
		r.Figures = append(r.Figures, figure{
			Scenario: of, Way: way, Samples: samples[way],
			Ratio:     each(func(round int, s sample) float64 { return s.rate() / samples[toNothing][round].rate() }),
			Rate:      each(func(_ int, s sample) float64 { return s.rate() }),
			ClientCPU: each(func(_ int, s sample) float64 { return millions(s.ClientCPU, s) }),
			ServerCPU: each(func(_ int, s sample) float64 { return millions(s.ServerCPU, s) }),
			BrokerCPU: each(func(_ int, s sample) float64 { return millions(s.BrokerCPU, s) }),
			Memory:    each(func(_ int, s sample) float64 { return float64(s.Memory) }),
		})
	}
}

// print writes the tables, ratios first.
func (r *report) print(out io.Writer) error {
	fmt.Fprintf(out, "\nPostgreSQL %s, Kafka %s, %d CPUs shared, %d rows in tagged batches, medians of %d rounds (least–most)\n\n",
		r.Server, r.Broker, r.CPUs, r.Rows, r.Rounds)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RATIO\tWAY\tROWS/S\tCPU S/M: CLIENT\tPOSTGRESQL\tBROKER\tMEMORY\tSCENARIO")
	for i := range r.Figures {
		f := &r.Figures[i]
		fmt.Fprintf(w, "%.2f (%.2f–%.2f)\t%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.0f MB\t%s\n", f.Ratio.Median, f.Ratio.Least, f.Ratio.Most, f.Way,
			f.Rate.Median, f.ClientCPU.Median, f.ServerCPU.Median, f.BrokerCPU.Median, f.Memory.Median/(1<<20), f.Scenario)
	}
	if len(r.Latencies) > 0 {
		fmt.Fprintln(w, "\nDELETES/S\tMEASURED\tP50 MS\tP99 MS\tMOST MS\tEVENTS\tfrom the answer to COMMIT to the topic's reader")
	}
	for _, l := range r.Latencies {
		fmt.Fprintf(w, "%d\t%.0f\t%.1f\t%.1f\t%.1f\t%d\t\n", l.Rate, l.Did, l.P50, l.P99, l.Most, l.Events)
	}
	if err := w.Flush(); err != nil || r.Passing == nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\none transaction of %d rows: %.0f rows/s into Kafka, at most %d MB resident\n", r.Passing.Rows, r.Passing.rate(), r.Passing.Memory>>20)
	return err
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
