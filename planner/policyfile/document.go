package policyfile

import (
	"slices"
	"strings"

	"lapse/internal/yamldoc"
)

// document is a policy file while it is read.
type document struct{ yamldoc.Document }

// entries returns a mapping's keys in the file's order, each once. If n is no mapping it complains and returns false. what names the
// mapping.
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

// known reports whether a key is one of keys, with a complaint if it is not.
func (d *document) known(e yamldoc.Entry, what string, keys []string) bool {
	if slices.Contains(keys, e.Key) {
		return true
	}
	d.Complain(e.At, "%s: there is no key %s%s", what, yamldoc.Quote(e.Key), yamldoc.Suggestion(e.Key, keys, nil))
	return false
}

// oneOf requires a value to be one of some words.
func (d *document) oneOf(e yamldoc.Entry, what, value string, words []string) bool {
	if slices.Contains(words, value) {
		return true
	}
	d.Complain(e.Value.Place(), "%s: %s cannot be %s%s", what, e.Key, yamldoc.Quote(value), yamldoc.Suggestion(value, words, nil))
	return false
}

// scalar returns a text, with its quotes taken off.
func (d *document) scalar(e yamldoc.Entry, what string) (string, bool) {
	value, ok := e.Value.Text()
	switch {
	case !ok:
		hint := ""
		if k := e.Value.Kind(); k == yamldoc.Integer || k == yamldoc.Float || k == yamldoc.Boolean {
			hint = ": put it into quotes, with its unit if it has one"
		}
		d.Complain(e.Value.Place(), "%s: %s needs a text, not %s%s", what, e.Key, kind(e.Value), hint)
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
	return "a number or the like"
}
