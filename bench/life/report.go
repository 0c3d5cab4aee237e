package main

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"lapse/bench/internal/measure"
)

// report is all that was measured.
type report struct {
	Server   string `json:"server"`
	Policies int    `json:"policies"`
	Rate     int    `json:"application_transactions_per_second"`
	Alone    phase  `json:"alone"`
	Beside   phase  `json:"beside"`
}

// phase is what was used between two readings. All but the bytes of a batch is for a minute.
type phase struct {
	Minutes     float64            `json:"minutes"`
	ServerCPU   float64            `json:"server_cpu_seconds"`
	LapseCPU    float64            `json:"lapse_cpu_seconds"`
	WAL         float64            `json:"wal_bytes"`
	Application share              `json:"application"`
	Lapse       share              `json:"lapse"`
	Batches     float64            `json:"batches"`
	Rows        float64            `json:"rows_deleted"`
	Growth      map[string]float64 `json:"growth_bytes"` // of those of Lapse's tables that grew, with their indexes
}

// share is what pg_stat_statements says of one side for a minute.
type share struct {
	Statements float64 `json:"statements"`
	Seconds    float64 `json:"seconds"` // planning and execution, with waiting
	WAL        float64 `json:"wal_bytes"`
}

func (r *reading) since(before *reading) phase {
	minutes := r.At.Sub(before.At).Minutes()
	of := func(app bool) share {
		now, then := r.Said[app], before.Said[app]
		return share{float64(now.Calls-then.Calls) / minutes, (now.Time - then.Time) / 1000 / minutes, float64(now.WAL-then.WAL) / minutes}
	}
	p := phase{
		Minutes: minutes, ServerCPU: (r.CPU - before.CPU).Seconds() / minutes, LapseCPU: (r.Lapse - before.Lapse).Seconds() / minutes,
		WAL: float64(r.WAL-before.WAL) / minutes, Application: of(true), Lapse: of(false),
		Batches: float64(r.Batches-before.Batches) / minutes, Rows: float64(r.Rows-before.Rows) / minutes, Growth: map[string]float64{},
	}
	for table, size := range r.Catalog {
		if grew := size - before.Catalog[table]; grew > 0 {
			p.Growth[table] = float64(grew) / minutes
		}
	}
	return p
}

// Empty says whether nothing was measured.
func (r *report) Empty() bool { return r.Alone.Minutes == 0 }

// Print writes the tables.
func (r *report) Print(out io.Writer) error {
	const day, mega = 24 * 60, 1e6
	a, b := &r.Alone, &r.Beside
	fmt.Fprintf(out, "\nPostgreSQL %s, %d policies every minute and one backlog at gentle pace, %d transactions of the application a second; each minute of %.1f and %.1f\n\n",
		r.Server, r.Policies, r.Rate, a.Minutes, b.Minutes)
	err := measure.Table(out, "\tSERVER CPU S\tLAPSE CPU S\tLOG MB\tSTATEMENTS: APPLICATION\tLAPSE\tTHEIR SECONDS: APPLICATION\tLAPSE\tTHEIR LOG MB: APPLICATION\tLAPSE", func(w io.Writer) {
		for _, of := range []struct {
			name string
			*phase
		}{{"alone", a}, {"beside Lapse", b}} {
			fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.0f\t%.0f\t%.2f\t%.2f\t%.1f\t%.1f\n", of.name, of.ServerCPU, of.LapseCPU, of.WAL/mega,
				of.Application.Statements, of.Lapse.Statements, of.Application.Seconds, of.Lapse.Seconds, of.Application.WAL/mega, of.Lapse.WAL/mega)
		}
	})
	if err != nil || b.Batches == 0 {
		return err
	}
	fmt.Fprintf(out, "\n%.0f rows a minute in %.0f batches; in a day of this %.2f GB of log. Lapse's tables with their indexes grow:\n\n",
		b.Rows, b.Batches, b.Lapse.WAL*day/1e9)
	return measure.Table(out, "TABLE\tBYTES A BATCH\tMB A DAY", func(w io.Writer) {
		for _, table := range slices.Sorted(maps.Keys(b.Growth)) {
			fmt.Fprintf(w, "%s\t%.0f\t%.1f\n", table, b.Growth[table]/b.Batches, b.Growth[table]*day/mega)
		}
	})
}
