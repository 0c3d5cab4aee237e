package main

import (
	"fmt"
	"io"

	"lapse/bench/internal/measure"
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

	rows int // that were deleted
}

func (s sample) String() string {
	return fmt.Sprintf("%.2f s, %.0f rows/s", s.Seconds, float64(s.rows)/s.Seconds)
}

// add enters a scenario's samples: for each way one a round.
func (r *report) add(of scenario, due int, ways []string, samples measure.Samples[sample]) {
	for _, name := range ways {
		each := func(value func(round int, s sample) float64) measure.Spread {
			return measure.Each(samples[name], value)
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

// Empty says whether nothing was measured.
func (r *report) Empty() bool { return len(r.Figures)+len(r.Looks)+len(r.Idle) == 0 }

// Print writes the tables.
func (r *report) Print(out io.Writer) error {
	for _, part := range []struct {
		lines int
		print func(io.Writer) error
	}{{len(r.Looks), r.printLooks}, {len(r.Idle), r.printIdle}, {len(r.Figures), r.printFigures}} {
		if part.lines == 0 {
			continue
		}
		if err := part.print(out); err != nil {
			return err
		}
	}
	return nil
}

func (r *report) printLooks(out io.Writer) error {
	fmt.Fprintf(out, "\nPostgreSQL %s, a look that finds nothing: median of %d (least–most) in milliseconds, ratio to the first\n\n", r.Server, lookTimes)
	return measure.Table(out, "RATIO\tMS\tTABLE", func(w io.Writer) {
		for _, l := range r.Looks {
			fmt.Fprintf(w, "%.2f\t%s\t%s\n", l.Milliseconds.Median/r.Looks[0].Milliseconds.Median, l.Milliseconds, l.Table)
		}
	})
}

// printIdle writes what policies cost that have nothing to do.
func (r *report) printIdle(out io.Writer) error {
	fmt.Fprintf(out, "\nPostgreSQL %s, policies with nothing due, each looked at every second: CPU seconds for a minute\n\n", r.Server)
	return measure.Table(out, "POLICIES\tSERVER CPU S/MIN\tLAPSE CPU S/MIN\tBOTH, MS PER POLICY AND MINUTE\tTRANSACTIONS/S\tWAL B/S", func(w io.Writer) {
		for _, i := range r.Idle {
			fmt.Fprintf(w, "%d\t%.2f\t%.2f\t%.1f\t%.1f\t%.0f\n",
				i.Policies, i.ServerCPU, i.LapseCPU, (i.ServerCPU+i.LapseCPU)*1000/float64(i.Policies), i.Transactions, i.WAL)
		}
	})
}

func (r *report) printFigures(out io.Writer) error {
	fmt.Fprintf(out, "\nPostgreSQL %s, %d of %d rows due, medians of %d rounds (least–most); the ratio is that of rows a second to one giant DELETE\n\n",
		r.Server, r.Rows/2, r.Rows, r.Rounds)
	return measure.Table(out, "RATIO\tWAY\tROWS/S\tWAL B/ROW\tSERVER CPU S/M\tLAPSE CPU S/M\tSCENARIO", func(w io.Writer) {
		for i := range r.Figures {
			f := &r.Figures[i]
			fmt.Fprintf(w, "%s\t%s\t%.0f\t%.0f\t%.2f\t%.2f\t%s\n",
				f.Ratio, f.Way, f.Rows.Median, f.WAL.Median, f.ServerCPU.Median, f.LapseCPU.Median, f.Scenario)
		}
	})
}
