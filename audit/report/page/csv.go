package page

import (
	"bytes"
	"encoding/csv"
	"regexp"
)

// File is one table as CSV.
type File struct {
	Name    string // the table's name; empty for the verdicts, the main table
	Content []byte
}

// CSV writes a document's tables, one file each: the verdicts, then the tables on the whole report, then those on policies, all policies in
// one file.
func (d *Document) CSV() []File {
	verdicts := [][]string{{"policy", "verdict", "sentence"}}
	for _, v := range d.Verdicts {
		verdicts = append(verdicts, []string{v.Subject.Text, v.Word.Text, v.Sentence})
	}
	about := [][]string{{"name", "value"}, {"lapse", d.Build}}
	for _, f := range d.Facts {
		about = append(about, []string{f.Name, f.raw()})
	}
	for i := range d.Short {
		a := &d.Short[i]
		about = append(about, []string{a.Question, a.line()})
	}
	for _, text := range d.Unknown {
		about = append(about, []string{"not known", text})
	}
	files := []File{{"", written(verdicts)}, {"about", written(about)}}
	tables := map[string][][]string{}
	var names []string
	for _, section := range d.Sections {
		for _, block := range section.Blocks {
			t := block.Table
			if t == nil {
				continue
			}
			if tables[t.Name] == nil {
				names = append(names, t.Name)
				tables[t.Name] = [][]string{t.head()}
			}
			tables[t.Name] = append(tables[t.Name], t.lines()...)
		}
	}
	for _, name := range names {
		files = append(files, File{name, written(tables[name])})
	}
	return files
}

// head returns the names of the table's columns.
func (t *Table) head() (head []string) {
	if t.Of != "" {
		head = append(head, "policy")
	}
	for _, c := range t.Columns {
		head = append(head, c.Name)
	}
	return head
}

// lines returns the table's rows.
func (t *Table) lines() (all [][]string) {
	rows := t.All
	if rows == nil {
		rows = t.Rows
	}
	for _, row := range rows {
		var line []string
		if t.Of != "" {
			line = append(line, t.Of)
		}
		for i := range row.Cells {
			line = append(line, row.Cells[i].raw())
		}
		all = append(all, line)
	}
	return all
}

func (c *Cell) raw() string {
	if c.Raw != "" {
		return c.Raw
	}
	return c.Text
}

func written(lines [][]string) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	for _, line := range lines {
		for i := range line {
			line[i] = harmless(line[i])
		}
		_ = w.Write(line) // a buffer accepts everything; Error reports other errors
	}
	w.Flush()
	return b.Bytes()
}

var (
	plainNumber = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)
	formula     = regexp.MustCompile(`^[\s\p{Z}\x00]*[=+\-@|%＝＋－＠\t\r\n]`)
)

// harmless makes a value that no spreadsheet takes for a formula: it puts a quote before anything that could begin one.
func harmless(value string) string {
	if formula.MatchString(value) && !plainNumber.MatchString(value) {
		return "'" + value
	}
	return value
}
