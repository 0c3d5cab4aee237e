package measure

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"
)

// Spread is a median with what lies around it.
type Spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

// SpreadOf returns the spread of some values, of none the zero one.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := sorted[len(sorted)/2]
	if len(sorted)%2 == 0 {
		middle = (middle + sorted[len(sorted)/2-1]) / 2
	}
	return Spread{middle, sorted[0], sorted[len(sorted)-1]}
}

// Each returns the spread of a value over the rounds.
func Each[S any](samples []S, value func(round int, s S) float64) Spread {
	var values []float64
	for round, s := range samples {
		values = append(values, value(round, s))
	}
	return SpreadOf(values)
}

func (s Spread) String() string { return fmt.Sprintf("%.2f (%.2f–%.2f)", s.Median, s.Least, s.Most) }

// Milliseconds is how long the given part of sorted times took at most: 0.99 is the 99th percentile. Nothing is estimated.
func Milliseconds(sorted []time.Duration, part float64) float64 {
	return float64(sorted[min(int(part*float64(len(sorted))), len(sorted)-1)].Microseconds()) / 1000
}

// Table writes lines below a header, with a tab between two columns.
func Table(out io.Writer, header string, lines func(w io.Writer)) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, header)
	lines(w)
	return w.Flush()
}

// Report is all that a benchmark measured.
type Report interface {
	Empty() bool
	Print(out io.Writer) error // its tables, ratios first
}

// write writes all figures as JSON.
func write(r Report, path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
