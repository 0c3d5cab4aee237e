package page

import (
	"lapse/audit/report"
)

// Document is what a page shows. HTML and CSV are both made of it, so that they say the same.
type Document struct {
	Title    string
	Build    string   // of Lapse, that made it
	Form     string   // see Embedded.Again
	Facts    []Fact   // about the whole of it: period, bounds, witnesses
	Short    []Answer // what a reader asks first
	Verdicts []Verdict
	Unknown  []string // what is not known
	Verify   []Step   // how to check it
	Words    []Word
	Sections []Section
	Lines    bool // it has lines on which people sign

	Witnesses []report.Witness // beside the report: see New
}

// Word is one that the page uses, and what it means.
type Word struct{ Name, Means string }

// Step is a command, and what it is for.
type Step struct{ Text, Command string }

// Fact is a named text.
type Fact struct {
	Name string
	Cell
}

// Verdict is one policy's, in a sentence.
type Verdict struct {
	Tone     Tone
	Word     Cell // the verdict's
	Subject  Cell // the policy's name
	Sentence string
	Link     string // to its section
}

// Section is a part with a heading.
type Section struct {
	ID, Title, Lead string
	Blocks          []Block

	of string // the policy that it is of
}

// Block is one of a section's parts.
type Block struct {
	Title string // of what follows; empty for none
	Text  string
	Bars  *Bars
	Keys  [2]string // what the colors of the bars mean
	Table *Table
}

// Table is one of a section's tables.
type Table struct {
	Name    string // of its CSV, which has the tables of all policies that have this name
	Of      string // the policy; empty: it is of no single one
	Caption string
	Columns []Column
	Rows    []Row
	All     []Row // for a CSV; nil: Rows
	Fold    bool  // long tables are folded
}

// Column is one of a table's.
type Column struct {
	Name   string
	Number bool // written to the right
}

// Title is what a line that must be zero counts, where the column is of one.
func (c Column) Title() string {
	for _, about := range report.ZeroLines {
		if about.Title() == c.Name {
			return about.Means()
		}
	}
	return ""
}

// Row is one of a table's.
type Row struct {
	Kind  string // its class: "", "sum" or "net"
	Cells []Cell
}

// Cell is a value that is shown. From is its place in the JSON, as a JSON pointer, so that a page of any build can be compared with its JSON.
type Cell struct {
	Text string
	Raw  string // for a CSV; empty: Text
	From string
	Tone Tone

	Whole bool // it is not broken into lines
}

// Tone is how a verdict is shown: color is never its only sign.
type Tone string

// Tones.
const (
	None Tone = ""
	Fail Tone = "fail"
	Open Tone = "open" // not assessed
	Warn Tone = "warn"
	Pass Tone = "pass"
)

// Sign is what tells the tone without color.
func (t Tone) Sign() string {
	return map[Tone]string{Fail: "✕", Open: "?", Warn: "!", Pass: "✓"}[t]
}
