package page

import (
	"lapse/audit/report"
)

// Document is the content of a page. HTML and CSV are made from it, so that they agree.
type Document struct {
	Title    string
	Lead     string   // what the page is
	Build    string   // the build of Lapse that made it
	Form     string   // see Embedded.Again
	Facts    []Fact   // about the whole report: period, limits, witnesses
	Short    []Answer // the answers to a reader's first questions
	Verdicts []Verdict
	Unknown  []string // what is not known
	Verify   []Step   // how to check it
	Words    []Word
	Sections []Section
	Lines    bool // the page has lines for handwritten signatures

	Witnesses []report.Witness // not part of the report: see New
}

// Word is a word of the page with its meaning.
type Word struct{ Name, Means string }

// Step is a command and its purpose.
type Step struct{ Text, Command string }

// Fact is a named text.
type Fact struct {
	Name string
	Cell
}

// Verdict is a policy's verdict in a sentence.
type Verdict struct {
	Tone     Tone
	Word     Cell // the verdict's
	Subject  Cell // the policy's name
	Sentence string
	Link     string // a link to the policy's section
}

// Section is a part with a heading.
type Section struct {
	ID, Title, Lead string
	Blocks          []Block

	of string // the section's policy
}

// Block is a part of a section.
type Block struct {
	Title string // the heading of the following; empty for none
	Text  string
	Bars  *Bars
	Keys  [2]string // the meaning of the bars' colors
	Table *Table
}

// Table is a table of a section.
type Table struct {
	Name    string // the CSV's name; the CSV has the tables with this name of all policies
	Of      string // the policy; empty if the table is not of a single one
	Caption string
	Columns []Column
	Rows    []Row
	All     []Row // the rows for a CSV; nil for Rows
	Fold    bool  // long tables are folded
}

// Column is a column of a table.
type Column struct {
	Name   string
	Number bool // aligned right
}

// Title explains a line that must be zero, if the column is of one.
func (c Column) Title() string {
	for _, about := range report.ZeroLines {
		if about.Title() == c.Name {
			return about.Means()
		}
	}
	return ""
}

// Row is a row of a table.
type Row struct {
	Kind  string // the row's class: "", "sum" or "net"
	Cells []Cell
}

// Cell is a value on the page. From is its place in the JSON as a JSON pointer, so that a page of any build can be compared with its JSON.
type Cell struct {
	Text string
	Raw  string // the value for a CSV; empty for Text
	From string
	Tone Tone

	Whole bool // not broken into lines
}

// Tone is how a verdict looks. Color is never its only sign.
type Tone string

// Tones.
const (
	None Tone = ""
	Fail Tone = "fail"
	Open Tone = "open" // not assessed
	Warn Tone = "warn"
	Pass Tone = "pass"
)

// Sign distinguishes the tone without color.
func (t Tone) Sign() string {
	return map[Tone]string{Fail: "✕", Open: "?", Warn: "!", Pass: "✓"}[t]
}
