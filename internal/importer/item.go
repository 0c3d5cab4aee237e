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

// Item is one thing that lets rows expire elsewhere: a statement of a job, a partition set, a TTL of a table.
type Item struct {
	Origin string             // what it is, in a few words: job 3 "nightly", 0 3 * * *
	Text   string             // as it was written, "" where Origin says all
	Policy *policyfile.Policy // nil where there is none for it
	Notes  []string           // what to know of the policy
	Lost   []string           // what could not be carried over; without a policy, why there is none
	Apart  bool               // it deletes nothing, and stays where it is

	sets   bool // it changes what other statements of its job mean, or undoes them
	second bool // its table has a policy already: its own is a comment
}

func (i *Item) lose(format string, args ...any) {
	i.Lost = append(i.Lost, fmt.Sprintf(format, args...))
}

func (i *Item) note(format string, args ...any) {
	i.Notes = append(i.Notes, fmt.Sprintf(format, args...))
}

// File is a policy file, and how much of what was found is in it.
type File struct {
	Text     []byte
	Policies int
	Found    int // items that delete
	Lost     int // those that are not carried over, or not whole
}

// Summary says it in a few words.
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

// Text writes a policy file. Names become different ones, and of several policies on a table the first stays: the others are comments.
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
	f.Text = []byte(head + begin + body.String())
	return f
}

// isSecond reports whether the table has a policy already, and says so.
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

// commented is an entry, or a comment of it.
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

// longestText is how many lines of a job are repeated.
const longestText = 40

// comment is what is said of an item.
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

// split takes a text apart at whatever YAML or a terminal takes for the end of a line, and shows what cannot be seen.
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

// width of a comment.
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

// policyName makes a name of some words: what a job or a table is called.
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
