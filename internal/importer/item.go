package importer

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"lapse/planner/policyfile"
	"lapse/schemas"
)

// Item is one thing that lets rows expire in another system: a job's statement, a partition set, a table's TTL.
type Item struct {
	Origin string             // a short description: job 3 "nightly", 0 3 * * *
	Text   string             // the original text, "" if Origin says all
	Policy *policyfile.Policy // nil if it has none
	Notes  []string           // notes on the policy
	Lost   []string           // what could not be carried over; without a policy, why there is none
	Apart  bool               // it deletes nothing, and can stay where it is

	sets   bool // it changes the meaning of its job's other statements, or undoes them
	second bool // its table already has a policy: this one becomes a comment
}

func (i *Item) lose(format string, args ...any) {
	i.Lost = append(i.Lost, fmt.Sprintf(format, args...))
}

func (i *Item) note(format string, args ...any) {
	i.Notes = append(i.Notes, fmt.Sprintf(format, args...))
}

// File is a policy file, and counts of what was found and lost.
type File struct {
	Text     []byte
	Policies int
	Found    int // items that delete
	Lost     int // those that were not carried over, or only in part
}

// Summary describes the import in a few words.
func (f *File) Summary() string {
	policies := fmt.Sprintf("%d policies", f.Policies)
	if f.Policies == 1 {
		policies = "1 policy"
	}
	if f.Lost == 0 {
		return policies + ", and nothing was left out"
	}
	return fmt.Sprintf("%s; of %d that delete rows, %d could not be carried over, or not in the same way: see NOT in the file", policies, f.Found, f.Lost)
}

// Text writes a policy file. It makes names unique. If a table has several policies, the first stays and the others become comments.
func Text(system string, items []Item) File {
	f := File{}
	var body strings.Builder
	names, tables := map[schemas.PolicyName]bool{}, map[string]schemas.PolicyName{}
	for at := range items {
		i := &items[at]
		if i.Policy != nil {
			i.Policy.State = schemas.Observing
			i.Policy.Name = unused(i.Policy.Name, names)
			names[i.Policy.Name] = true
		}
		i.second = i.isSecond(tables)
		if body.Len() > 0 {
			body.WriteByte('\n')
		}
		body.WriteString(i.comment())
		if i.Policy != nil {
			body.WriteString(commented(i.Policy.Entry(), i.second))
		}
		if i.Policy != nil && !i.second {
			f.Policies++
		}
		if !i.Apart {
			f.Found++
		}
		if len(i.Lost) > 0 {
			f.Lost++
		}
	}
	head := comment("", fmt.Sprintf("Imported from %s: %s. Each policy observes: lapse plan -f FILE shows what it would delete. What it replaces goes on until you "+
		"take it away.", system, f.Summary()))
	begin := "policies:\n"
	if f.Policies == 0 {
		begin = "policies: []\n"
	}
	f.Text = []byte(editorLine + head + begin + body.String())
	return f
}

// editorLine tells an editor with the YAML language server where the packages have the schema of policy files.
const editorLine = "# yaml-language-server: $schema=/usr/share/lapse/policies.schema.json\n"

// isSecond reports whether the table already has a policy, and adds a note.
func (i *Item) isSecond(tables map[string]schemas.PolicyName) bool {
	if i.Policy == nil || i.Policy.Table == "" {
		return false
	}
	if first, there := tables[i.Policy.Table]; there {
		i.lose("%s has the policy %s already, and a table has one: if both are right, write them as one, by the earlier of the two times: expire: { expression: least(…, …) }", i.Policy.Table, first)
		return true
	}
	tables[i.Policy.Table] = i.Policy.Name
	return false
}

// commented writes an entry, or a comment with the entry.
func commented(entry string, out bool) string {
	if !out {
		return entry
	}
	var text strings.Builder
	for line := range strings.Lines(entry) {
		text.WriteString("  # " + strings.TrimPrefix(line, "  "))
	}
	return text.String()
}

// longestText is the largest number of lines that are repeated of a job.
const longestText = 40

// comment writes the comment on an item.
func (i *Item) comment() string {
	text := comment("  ", i.Origin)
	lines := split(i.Text)
	for n, line := range lines {
		if n == longestText {
			text += fmt.Sprintf("  #   … and %d lines\n", len(lines)-n)
			break
		}
		text += "  #   " + line + "\n"
	}
	for _, n := range i.Notes {
		text += comment("  ", "Note: "+n)
	}
	for _, l := range i.Lost {
		switch {
		case i.Policy == nil, i.second:
			text += comment("  ", "NOT CARRIED OVER: "+l)
		default:
			text += comment("  ", "NOT THE SAME: "+l)
		}
	}
	return text
}

// split splits a text at everything that YAML or a terminal takes for a line end, and makes invisible characters visible.
func split(text string) []string {
	lines := regexp.MustCompile(`\r\n|[\n\r\x{85}\x{2028}\x{2029}]`).Split(strings.ToValidUTF8(text, "\ufffd"), -1)
	for i, line := range lines {
		lines[i] = strings.TrimRight(shown(line), " ")
	}
	for len(lines) > 0 && lines[0] == "" {
		lines = lines[1:]
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

func shown(line string) string {
	var out strings.Builder
	for _, r := range line {
		switch {
		case r == '\t':
			out.WriteString("  ")
		case r != ' ' && !unicode.IsPrint(r):
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// width is the width of comments.
const width = 120

// comment wraps a text into lines of a comment.
func comment(indent, text string) string {
	var out strings.Builder
	for _, paragraph := range split(text) {
		line := indent + "#"
		for _, w := range strings.Fields(paragraph) {
			if len(line)+1+len(w) > width && line != indent+"#" {
				out.WriteString(line + "\n")
				line = indent + "#  "
			}
			line += " " + w
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

var notInName = regexp.MustCompile(`[^a-z0-9_.-]+`)

// policyName makes a policy's name from the name of a job or table.
func policyName(words ...string) schemas.PolicyName {
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(strings.Join(words, "-")), "-"), "-._")
	if name == "" {
		name = "imported"
	}
	return schemas.PolicyName(strings.TrimRight(name[:min(len(name), 55)], "-._"))
}

func unused(name schemas.PolicyName, names map[schemas.PolicyName]bool) schemas.PolicyName {
	for n, next := 2, name; ; n++ {
		if !names[next] {
			return next
		}
		next = schemas.PolicyName(fmt.Sprintf("%s-%d", name, n))
	}
}
