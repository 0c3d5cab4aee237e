package page

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"lapse/audit/report"
	"lapse/internal/plaintext"
)

// place is a JSON pointer.
type place string

func (p place) in(names ...any) place {
	for _, name := range names {
		p += place("/" + fmt.Sprint(name))
	}
	return p
}

// text is a value as in the JSON. It shows escapes for characters that hide others or change the direction of text.
func text(value string, from place) Cell {
	if value == "" {
		return Cell{Text: "–"}
	}
	return Cell{Text: plaintext.Line(value), From: string(from)}
}

// count makes the cell of a number.
func count(n int64, from place) Cell {
	return Cell{Text: plaintext.Number(n), Raw: strconv.FormatInt(n, 10), From: string(from)}
}

// notAssessed is the text of a figure without a number.
const notAssessed = "not assessed"

// figure makes the cell of a figure: its number, or that it was not assessed. The reason is next to it, where there is room.
func figure(f report.Figure, from place) Cell {
	switch {
	case f.Value != nil:
		return count(*f.Value, from.in("value"))
	case f.NotAssessed == report.Withheld:
		return Cell{Text: withheld(f), From: string(from)}
	case f.AtLeast != nil && f.AtMost != nil:
		return Cell{Text: fmt.Sprintf("%s (%s to %s)", notAssessed, plaintext.Number(*f.AtLeast), plaintext.Number(*f.AtMost)), From: string(from)}
	case f.AtLeast != nil:
		return Cell{Text: fmt.Sprintf("%s (%s seen)", notAssessed, plaintext.Number(*f.AtLeast)), From: string(from)}
	default:
		return Cell{Text: notAssessed}
	}
}

// withheld is the text of a redacted number, as far as it may be given.
func withheld(f report.Figure) string {
	switch {
	case f.AtLeast == nil:
		return string(report.Withheld)
	case f.AtMost == nil:
		return plaintext.Number(*f.AtLeast) + " or more"
	case *f.AtLeast == 1 && *f.AtMost == 4:
		return "<5"
	default:
		return plaintext.Number(*f.AtLeast) + " to " + plaintext.Number(*f.AtMost)
	}
}

// seconds is a figure of seconds, with its size in words.
func seconds(f report.Figure, from place) Cell {
	c := figure(f, from)
	if f.Value != nil {
		c.Text += " s"
		if long := span(*f.Value); long != "" {
			c.Text += " (" + long + ")"
		}
	}
	return c
}

// lateness makes the cell of a time between two bounds. There may be no rows.
func lateness(l report.Lateness, from place) Cell {
	var bounds []string
	if l.Over != nil {
		bounds = append(bounds, "over "+step(*l.Over))
	}
	if l.UpTo != nil {
		bounds = append(bounds, "up to "+step(*l.UpTo))
	}
	said := strings.Join(bounds, ", ")
	switch {
	case l.NotAssessed == "":
		return Cell{Text: said, From: string(from)}
	case said != "":
		return Cell{Text: notAssessed + " (" + said + ")", From: string(from)}
	case l.NotAssessed == report.NothingDeleted || l.NotAssessed == report.NothingDue:
		return Cell{Text: "none"}
	default:
		return Cell{Text: notAssessed}
	}
}

// step writes a whole number of the largest unit that fits.
func step(seconds int64) string {
	switch {
	case seconds%(24*60*60) == 0:
		return counted(seconds/(24*60*60), "day")
	case seconds%(60*60) == 0:
		return fmt.Sprintf("%d h", seconds/(60*60))
	default:
		return fmt.Sprintf("%d min", seconds/60)
	}
}

// span writes a length of time in words, if it is longer than two minutes.
func span(seconds int64) string {
	d := time.Duration(seconds) * time.Second
	switch {
	case seconds < 120:
		return ""
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", seconds/60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%.1f h", d.Hours())
	default:
		return fmt.Sprintf("%.1f days", d.Hours()/24)
	}
}

// instant writes a time to the second.
func instant(i report.Instant, from place) Cell {
	if i == "" {
		return Cell{Text: "–"}
	}
	return Cell{Text: moment(i), Raw: string(i), From: string(from), Whole: true}
}

func moment(i report.Instant) string { return i.Time().UTC().Format("2006-01-02 15:04:05") }

// graded makes the cell of a verdict.
func graded(g report.Grade, from place) Cell {
	return Cell{Text: gradeWords[g], From: string(from), Tone: tones[g]}
}

var (
	gradeWords = map[report.Grade]string{report.Fail: "Fail", report.Unknown: "Not assessed", report.Warn: "Warn", report.Pass: "Pass"}
	tones      = map[report.Grade]Tone{report.Fail: Fail, report.Unknown: Open, report.Warn: Warn, report.Pass: Pass}
	grades     = []report.Grade{report.Fail, report.Unknown, report.Warn, report.Pass} // the worst first
)

// counted formats a number with its noun.
func counted(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	if strings.HasSuffix(one, "y") && !strings.HasSuffix(one, "ey") && !strings.HasSuffix(one, "ay") {
		one = strings.TrimSuffix(one, "y") + "ie"
	}
	return plaintext.Number(n) + " " + one + "s"
}

// whole makes a cell that is not broken into lines.
func (c Cell) whole() Cell {
	c.Whole = true
	return c
}

// Wraps reports whether a cell in a column of numbers has words, which may be broken into lines.
func (c Cell) Wraps() bool { return c.From == "" || strings.HasPrefix(c.Text, notAssessed) }
