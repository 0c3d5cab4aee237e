package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"lapse/bench/internal/measure"
	"lapse/internal/pgserver"
)

// report is all that was measured.
type report struct {
	Rounds  int      `json:"rounds"`
	CPUs    int      `json:"cpus"`
	Figures []figure `json:"figures"`
}

// figure is one line of the table.
type figure struct {
	Server   string  `json:"server"`
	Scenario string  `json:"scenario"`
	Workload string  `json:"workload"`
	Unit     string  `json:"unit"`
	Before   *value  `json:"before,omitempty"`
	After    *value  `json:"after,omitempty"`
	Ratio    float64 `json:"ratio,omitempty"` // above 1: after is faster
}

// value is a side's figure.
type value struct {
	measure.Spread
	Samples []sample `json:"samples"`
}

// sample is one run of one side.
type sample struct {
	Batches int64   `json:"batches"`
	Rows    int64   `json:"rows"`
	Seconds float64 `json:"seconds"`         // from the first batch's start to the last one's end
	Command float64 `json:"command_seconds"` // of the whole command
	CutOff  bool    `json:"cut_off"`

	// Of an audit.
	CPU    float64 `json:"cpu_seconds,omitempty"`  // of the command
	Logged int64   `json:"logged_bytes,omitempty"` // what the log grew by on the broker's disk
}

func (s sample) String() string {
	if s.Batches == 0 && s.Rows > 0 { // of an audit
		return fmt.Sprintf("%d rows in %.2f s, %.2f s of CPU; %d bytes of the log", s.Rows, s.Seconds, s.CPU, s.Logged)
	}
	text := fmt.Sprintf("%d batches, %d rows in %.2f s; the command %.2f s", s.Batches, s.Rows, s.Seconds, s.Command)
	if s.CutOff {
		text += ", cut off"
	}
	return text
}

// unit is a way to show samples.
type unit struct {
	name string
	of   func(sample) float64
	less bool // the smaller the better
}

func units(of *scenario, w workload) []unit {
	batches := unit{"batches/s", func(s sample) float64 { return per(s.Batches, s.Seconds) }, false}
	rows := unit{"rows/s", func(s sample) float64 { return per(s.Rows, s.Seconds) }, false}
	switch {
	case of.where == onNewest:
		return []unit{
			{"deletes/s", rows.of, false},
			{"CPU s/M", func(s sample) float64 { return s.CPU * 1e6 / float64(s.Rows) }, true},
			{"log B/row", func(s sample) float64 { return float64(s.Logged) / float64(s.Rows) }, true},
		}
	case w.due == 0:
		return []unit{{"seconds", func(s sample) float64 { return s.Command }, true}}
	case w.batch == 1:
		return []unit{batches}
	}
	return []unit{batches, rows}
}

func per(n int64, seconds float64) float64 {
	if n == 0 {
		return 0
	}
	return float64(n) / seconds
}

// add enters what was measured of one workload.
func (r *report) add(install pgserver.Install, of *scenario, w workload, samples measure.Samples[sample]) {
	server := install.Version
	if install.JIT {
		server += " packaged"
	}
	for _, u := range units(of, w) {
		f := figure{Server: server, Scenario: of.title, Workload: w.title(), Unit: u.name}
		f.Before, f.After = valueOf(samples["before"], u), valueOf(samples["after"], u)
		if f.Before != nil && f.After != nil {
			f.Ratio = ratio(f.Before.Median, f.After.Median, u.less)
		}
		r.Figures = append(r.Figures, f)
	}
}

func valueOf(samples []sample, u unit) *value {
	if len(samples) == 0 {
		return nil
	}
	return &value{measure.Each(samples, func(_ int, s sample) float64 { return u.of(s) }), samples}
}

// ratio is how many times as fast after is; 0 where before got nothing done.
func ratio(before, after float64, less bool) float64 {
	if less {
		before, after = after, before
	}
	if before == 0 {
		return 0
	}
	return after / before
}

// Empty says whether nothing was measured.
func (r *report) Empty() bool { return len(r.Figures) == 0 }

// Print writes the table.
func (r *report) Print(out io.Writer) error {
	fmt.Fprintf(out, "\nmedians of %d rounds (least–most) on %d CPUs; a ratio above 1: after is faster\n\n", r.Rounds, r.CPUs)
	return measure.Table(out, "RATIO\tBEFORE\tAFTER\tUNIT\tPOSTGRESQL\tSCENARIO\tWORKLOAD\tNOTE", func(w io.Writer) {
		for _, f := range r.Figures {
			shown := "-"
			if f.Ratio != 0 {
				shown = fmt.Sprintf("%.2f", f.Ratio)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", shown, f.Before, f.After, f.Unit, f.Server, f.Scenario, f.Workload, f.note())
		}
	})
}

func (v *value) String() string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%s (%s–%s)", short(v.Median), short(v.Least), short(v.Most))
}

func short(n float64) string {
	if n >= 100 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.3g", n)
}

// note says which side was cut off, and what it had done by then.
func (f *figure) note() string {
	var notes []string
	for name, v := range map[string]*value{"before": f.Before, "after": f.After} {
		if text := v.cutOff(); text != "" {
			notes = append(notes, name+" "+text)
		}
	}
	return strings.Join(slices.Sorted(slices.Values(notes)), "; ")
}

func (v *value) cutOff() string {
	if v == nil {
		return ""
	}
	var batches, seconds []float64
	for _, s := range v.Samples {
		if s.CutOff {
			batches, seconds = append(batches, float64(s.Batches)), append(seconds, s.Command)
		}
	}
	if len(batches) == 0 {
		return ""
	}
	return fmt.Sprintf("cut off after %.0f s and %.0f batches", measure.SpreadOf(seconds).Median, measure.SpreadOf(batches).Median)
}
