package policyfile

import (
	"slices"
	"strings"

	"lapse/internal/yamldoc"
)

// document is a policy file while it is read.
type document struct{ yamldoc.Document }

// entries returns a mapping's keys in the file's order, each once, or false with a complaint that n is no mapping. what
// names the mapping.
func (d *document) entries(n yamldoc.Node, what string) ([]yamldoc.Entry, bool) {
	found, ok := d.Entries(n, what)
	if !ok {
		d.Complain(n.Place(), "%s must be a mapping of keys to values, not %s", what, kind(n))
		return nil, false
	}
	var all []yamldoc.Entry
	for _, e := range found {
		if e.Earlier > 0 {
			d.Complain(e.At, "%s: %s is there twice, first in line %d", what, e.Key, e.Earlier)
			continue
		}
		all = append(all, e)
	}
	return all, true
}

// known sorts a key into those this version supports, those a later one will, and mistakes, with a complaint about all
// but the first.
func (d *document) known(e yamldoc.Entry, what string, supported, later []string) bool {
	switch {
	case slices.Contains(supported, e.Key):
		return true
	case slices.Contains(later, e.Key):
		d.Complain(e.At, "%s: %s is not supported by this version", what, e.Key)
	default:
		d.Complain(e.At, "%s: there is no key %s%s", what, yamldoc.Quote(e.Key), yamldoc.Suggestion(e.Key, supported, later))
	}
	return false
}

// scalar returns a text, with its quotes taken off.
func (d *document) scalar(e yamldoc.Entry, what string) (string, bool) {
	value, ok := e.Value.Text()
	switch {
	case !ok:
		d.Complain(e.Value.Place(), "%s: %s needs a text, not %s", what, e.Key, kind(e.Value))
	case strings.ContainsRune(value, 0):
		d.Complain(e.Value.Place(), "%s: %s contains a zero byte", what, e.Key)
	case strings.TrimSpace(value) == "":
		d.Complain(e.Value.Place(), "%s: %s is empty", what, e.Key)
	default:
		return value, true
	}
	return "", false
}

// kind names what a value is, for a person.
func kind(n yamldoc.Node) string {
	switch n.Kind() {
	case yamldoc.Nothing:
		return "nothing"
	case yamldoc.Mapping:
		return "a mapping"
	case yamldoc.List:
		return "a list"
	case yamldoc.Reference:
		return "an anchor, alias or merge (write it out)"
	case yamldoc.Other:
		return "a tag"
	case yamldoc.Text:
		return "a text"
	}
	return "a number or the like: put it into quotes, with its unit if it has one"
}
