package page

import (
	"fmt"
	"html/template"
	"strings"

	"lapse/internal/plaintext"
)

// Bars is a chart of numbers by day.
type Bars struct {
	ID    string
	Title string // the chart's subject in a sentence
	Desc  string // the chart in words, for readers who cannot see it
	Days  []Bar
}

// Bar is one day of a chart.
type Bar struct {
	Label string // the day
	Parts []int64
	Text  string // the tooltip; a table has the numbers too
}

// The size of a chart in its own units. The page stretches it to its width.
const (
	chartWide, chartHigh   = 720, 180
	plotLeft, plotTop      = 64, 8
	plotWide, plotHigh     = chartWide - plotLeft - 8, chartHigh - plotTop - 28
	plotBottom, plotRight  = plotTop + plotHigh, plotLeft + plotWide
	mostLabels, widestPart = 8, 0.8
)

// SVG draws the chart. Pattern and color distinguish the parts of a bar: the second part is hatched.
func (b *Bars) SVG() template.HTML {
	var most int64
	for _, day := range b.Days {
		most = max(most, sumOf(day.Parts))
	}
	top := roundUp(most)
	var s strings.Builder
	text := template.HTMLEscapeString
	fmt.Fprintf(&s, `<svg viewBox="0 0 %d %d" role="img" aria-labelledby="%[3]s-title %[3]s-desc"><title id="%[3]s-title">%[4]s</title><desc id="%[3]s-desc">%[5]s</desc>`,
		chartWide, chartHigh, text(b.ID), text(b.Title), text(b.Desc))
	fmt.Fprintf(&s, `<defs><pattern id="%s-hatch" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatch" width="2" height="4" /></pattern></defs>`, text(b.ID))
	for i := range 3 {
		value := top / 2 * int64(i)
		y := plotBottom - plotHigh*i/2
		fmt.Fprintf(&s, `<line class="grid" x1="%d" y1="%d" x2="%d" y2="%[2]d" /><text class="y" x="%[4]d" y="%[5]d">%[6]s</text>`, plotLeft, y, plotRight, plotLeft-6, y+4, plaintext.Number(value))
	}
	step := float64(plotWide) / float64(max(len(b.Days), 1))
	wide := min(step*widestPart, 40)
	every := (len(b.Days) + mostLabels - 1) / mostLabels
	for i, day := range b.Days {
		x := plotLeft + step*float64(i) + (step-wide)/2
		fmt.Fprintf(&s, `<g><title>%s</title>`, text(day.Text))
		y := float64(plotBottom)
		for part, value := range day.Parts {
			high := float64(value) / float64(top) * plotHigh
			if value > 0 {
				high = max(high, 1) // so that every number is visible
			}
			if high == 0 {
				continue
			}
			y -= high
			fmt.Fprintf(&s, `<rect class="bar%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f" />`, part, x, y, wide, high)
			if part == 1 {
				fmt.Fprintf(&s, `<rect fill="url(#%s-hatch)" x="%.1f" y="%.1f" width="%.1f" height="%.1f" />`, text(b.ID), x, y, wide, high)
			}
		}
		s.WriteString(`</g>`)
		if i%every == 0 {
			fmt.Fprintf(&s, `<text class="x" x="%.1f" y="%d">%s</text>`, x+wide/2, plotBottom+18, text(day.Label))
		}
	}
	s.WriteString(`</svg>`)
	return template.HTML(s.String()) //nolint:gosec // every text in it is escaped above
}

func sumOf(parts []int64) (sum int64) {
	for _, part := range parts {
		sum += part
	}
	return sum
}

// roundUp returns the end of an axis that reaches most: an even number with one nonzero digit, or 10.
func roundUp(most int64) int64 {
	unit := int64(1)
	for most/unit >= 10 {
		unit *= 10
	}
	for _, times := range []int64{2, 4, 6, 8, 10} {
		if times*unit >= most {
			return times * unit
		}
	}
	return most
}
