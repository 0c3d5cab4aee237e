package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"lapse/bench/internal/measure"
)

// report is all that was measured.
type report struct {
	Server  string   `json:"server"`
	Disk    string   `json:"disk"`
	Rounds  int      `json:"rounds"`
	Looks   []look   `json:"looks"`
	Idle    []idling `json:"idle"`
	Big     []big    `json:"big"`
	Figures []figure `json:"figures"`
}

// figure is a way's in a table.
type figure struct {
	Table     string         `json:"table"`
	Title     string         `json:"title"`
	Due       int64          `json:"due"`
	Way       string         `json:"way"`
	Ratio     measure.Spread `json:"ratio"` // of rows a second to the giant DELETE's, in the same round
	Rows      measure.Spread `json:"rows_per_second"`
	Before    measure.Spread `json:"seconds_before_first_batch"`
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
	Before    float64 `json:"seconds_before_first_batch"`
	Batches   int     `json:"batches"`
	WAL       int64   `json:"wal_bytes"`
	ServerCPU float64 `json:"server_cpu_seconds"`
	LapseCPU  float64 `json:"lapse_cpu_seconds"`

	begun time.Time
	rows  int64 // that were deleted
}

func (s sample) String() string {
	return fmt.Sprintf("%.2f s, %.0f rows/s, %.2f s of server CPU", s.Seconds, float64(s.rows)/s.Seconds, s.ServerCPU)
}

// add enters a table's samples: for each way one a round.
func (r *report) add(of *table, due int64, ways []string, samples measure.Samples[sample]) {
	for _, name := range ways {
		each := func(value func(round int, s sample) float64) measure.Spread {
			return measure.Each(samples[name], value)
		}
		million := float64(due) / 1e6
		r.Figures = append(r.Figures, figure{
			Table: of.name, Title: of.title, Due: due, Way: name, Samples: samples[name],
			Ratio:     each(func(round int, s sample) float64 { return samples[giant][round].Seconds / s.Seconds }),
			Rows:      each(func(_ int, s sample) float64 { return float64(due) / s.Seconds }),
			Before:    each(func(_ int, s sample) float64 { return s.Before }),
			WAL:       each(func(_ int, s sample) float64 { return float64(s.WAL) / float64(due) }),
			ServerCPU: each(func(_ int, s sample) float64 { return s.ServerCPU / million }),
			LapseCPU:  each(func(_ int, s sample) float64 { return s.LapseCPU / million }),
		})
	}
}

// Empty says whether nothing was measured.
func (r *report) Empty() bool { return len(r.Figures)+len(r.Looks)+len(r.Idle)+len(r.Big) == 0 }

// Print writes the tables.
func (r *report) Print(out io.Writer) error {
	for _, part := range []struct {
		lines int
		print func(io.Writer) error
	}{{len(r.Looks), r.printLooks}, {len(r.Idle), r.printIdle}, {len(r.Idle), r.printPlanning}, {len(r.Big), r.printBig}, {len(r.Figures), r.printRatios}, {len(r.Figures), r.printFigures}} {
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
	fmt.Fprintf(out, "\nPostgreSQL %s, policies with nothing due, each checked every second: CPU seconds for a minute\n\n", r.Server)
	return measure.Table(out, "POLICIES\tPARTITIONS\tSERVER CPU S/MIN\tLAPSE CPU S/MIN\tBOTH, MS PER POLICY AND MINUTE\tTRANSACTIONS/S\tWAL B/S", func(w io.Writer) {
		for _, i := range r.Idle {
			fmt.Fprintf(w, "%d\t%d\t%.2f\t%.2f\t%.1f\t%.1f\t%.0f\n",
				i.Policies, i.Partitions, i.ServerCPU, i.LapseCPU, (i.ServerCPU+i.LapseCPU)*1000/float64(i.Policies), i.Transactions, i.WAL)
		}
	})
}

// printRatios writes a line for each table, as Markdown.
func (r *report) printRatios(out io.Writer) error {
	fmt.Fprintf(out, "\nPostgreSQL %s on %s, half of the rows due, whole commands: × giant DELETE, medians of %d rounds (least–most)\n\n", r.Server, r.Disk, r.Rounds)
	var ways []string
	for i := range r.Figures {
		if f := &r.Figures[i]; f.Table == r.Figures[0].Table && f.Way != giant {
			ways = append(ways, f.Way)
		}
	}
	fmt.Fprintf(out, "| table | %s | server CPU s/M: %s, %s | bytes of log a row |\n|%s\n",
		strings.Join(ways, " | "), giant, strings.Join(ways, ", "), strings.Repeat("---|", len(ways)+3))
	for i := 0; i < len(r.Figures); i += len(ways) + 1 {
		of := r.Figures[i : i+len(ways)+1]
		var ratios, cpu, wal []string
		for j := range of {
			if of[j].Way != giant {
				ratios = append(ratios, of[j].Ratio.String())
			}
			cpu, wal = append(cpu, fmt.Sprintf("%.2f", of[j].ServerCPU.Median)), append(wal, fmt.Sprintf("%.0f", of[j].WAL.Median))
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", of[0].Title, strings.Join(ratios, " | "), strings.Join(cpu, ", "), strings.Join(wal, ", "))
	}
	return nil
}

func (r *report) printFigures(out io.Writer) error {
	fmt.Fprintln(out)
	return measure.Table(out, "TABLE\tDUE\tWAY\tRATIO\tROWS/S\tBEFORE FIRST BATCH, S\tBATCHES\tLAPSE CPU S/M", func(w io.Writer) {
		for i := range r.Figures {
			f := &r.Figures[i]
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%.0f\t%.2f\t%d\t%.2f\n",
				f.Table, f.Due, f.Way, f.Ratio, f.Rows.Median, f.Before.Median, f.Samples[0].Batches, f.LapseCPU.Median)
		}
	})
}
