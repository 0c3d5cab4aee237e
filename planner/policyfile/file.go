package policyfile

import (
	"errors"
	"fmt"
	"regexp"

	"lapse/internal/yamldoc"
	"lapse/schemas"
)

// File is what policy files say, one or several together. Nothing in it has been compared with a database.
type File struct {
	Names    []string // of the files, as errors name them
	Policies []Policy // those without an error so far
	// Problems are what is wrong, in the files' order. A file with problems is not applied, but the rest of its policies can still be
	// checked.
	Problems yamldoc.Errors
	// Mistaken are the policies with problems, as far as they could be read, so that more of their problems can be found. Expire is nil if it
	// could not be read.
	Mistaken []Policy
}

// Text is a policy file's text, and what errors call the file.
type Text struct {
	Name string
	Body []byte
}

// Parse reads the text of a policy file. Its error is the file's Problems: yamldoc.Errors, everything that is wrong, each with its place. With
// an error it also returns the file, with the policies that have none.
func Parse(name string, text []byte) (*File, error) { return ParseAll([]Text{{name, text}}) }

// ParseAll is Parse for several files that are one policy file together: no name and no table may be in two of them.
func ParseAll(texts []Text) (*File, error) {
	file := &File{}
	var all []*reading
	for _, text := range texts {
		d := &document{yamldoc.Document{File: text.Name, Lines: yamldoc.Lines(text.Body)}}
		all = append(all, d.file(text.Body)...)
		file.Names = append(file.Names, text.Name)
		file.add(d.Err())
	}
	checkTogether(all)
	for _, r := range all {
		file.add(r.Err())
		if r.Count() > 0 {
			file.Mistaken = append(file.Mistaken, *r.p)
		} else {
			file.Policies = append(file.Policies, *r.p)
		}
	}
	file.Problems = file.Problems.Sorted(file.Names)
	if len(file.Problems) > 0 {
		return file, file.Problems
	}
	return file, nil
}

// add takes over what Document.Err returned.
func (f *File) add(err error) {
	var problems yamldoc.Errors
	if errors.As(err, &problems) {
		f.Problems = append(f.Problems, problems...)
	}
}

// file reads the policies of a file. Each policy's problems go into a document of its own.
func (d *document) file(text []byte) []*reading {
	body := d.Root(text)
	if body.IsZero() {
		if d.Count() == 0 {
			d.Complain(body.Place(), "the file is empty: it needs policies:")
		}
		return nil
	}
	var list yamldoc.Node
	entries, _ := d.entries(body, "the file")
	for _, e := range entries {
		if d.known(e, "the file", []string{"policies"}) {
			list = e.Value
		}
	}
	values, ok := list.List()
	if !ok {
		if d.Count() == 0 {
			d.Complain(body.Place(), "the file needs policies: with a list of policies below it")
		}
		return nil
	}
	all := make([]*reading, 0, len(values))
	for _, n := range values {
		own := &document{yamldoc.Document{File: d.File, Lines: d.Lines}}
		r := own.policy(n)
		if r.p.source = n.Source(d.Lines); len(r.p.source) > MaxSource {
			r.Complain(n.Place(), "policy %s: the entry is longer than %d bytes", r.p.Name, MaxSource)
		}
		all = append(all, r)
	}
	return all
}

// checkTogether refuses duplicate names and tables. A table may have two policies if one of them sets a column of rows that the other
// deletes later.
func checkTogether(all []*reading) {
	names, tables := map[schemas.PolicyName]*Policy{}, map[string][]*Policy{}
	for _, r := range all {
		p := r.p
		if before := names[p.Name]; p.Name != "" && before != nil {
			r.Complain(p.Place("name"), "there is a policy %s in %s already", p.Name, before.from("name", p))
		} else {
			names[p.Name] = p
		}
		if p.Table == "" {
			continue
		}
		switch before := tables[p.Table]; {
		case len(before) == 0, len(before) == 1 && before[0].hides() != p.hides():
			tables[p.Table] = append(before, p)
		default:
			r.Complain(p.Place("table"), "%s has a policy in %s already, and a table can have only one, or one with action soft and one that deletes", p.Table, before[0].from("table", p))
		}
	}
}

func (p *Policy) hides() bool { return p.Action.Kind == ActionSoft }

// from names a place of p as seen from another policy.
func (p *Policy) from(key string, other *Policy) string {
	line := fmt.Sprintf("line %d", p.Place(key).Line)
	if p.File == other.File {
		return line
	}
	return p.File + ", " + line
}

// namePattern is what lapse.policy accepts.
var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,62}$`)

func (d *document) policy(n yamldoc.Node) *reading {
	p := &Policy{File: d.File, Terms: Terms{Batch: DefaultBatch}, places: map[string]yamldoc.Place{"": n.Place()}, lines: d.Lines}
	r := &reading{document: d, p: p, what: "a policy"}
	entries, ok := d.entries(n, r.what)
	if !ok {
		return r
	}
	for _, e := range entries {
		if name, ok := e.Value.Text(); e.Key == "name" && ok && namePattern.MatchString(name) {
			r.what, d.Policy = "policy "+name, name
		}
	}
	for _, e := range entries {
		p.places[e.Key] = e.At
		before := d.Count()
		if d.known(e, r.what, keyNames()) {
			r.read(e)
		}
		if e.Key == "expire" && d.Count() > before {
			p.Expire = nil
		}
	}
	r.check()
	return r
}
