package planner

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Place is where something stands in a policy file, both from 1.
type Place struct{ Line, Column int }

// FileError is one thing that is wrong in a policy file, or between it and the database.
type FileError struct {
	File    string
	Place   Place
	Message string
}

// Error says file, line, column and what is wrong.
func (e *FileError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Place.Line, e.Place.Column, e.Message)
}

// FileErrors are all the things that are wrong in a policy file, in its order.
type FileErrors []*FileError

// Error has one line for each.
func (e FileErrors) Error() string {
	lines := make([]string, 0, len(e))
	for _, one := range e {
		lines = append(lines, one.Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find a FileError.
func (e FileErrors) Unwrap() []error {
	all := make([]error, 0, len(e))
	for _, one := range e {
		all = append(all, one)
	}
	return all
}

// document reads one YAML file and collects what is wrong with it.
type document struct {
	file   string
	errors FileErrors
}

func (d *document) complain(at Place, format string, args ...any) {
	d.errors = append(d.errors, &FileError{File: d.file, Place: at, Message: fmt.Sprintf(format, args...)})
}

// err returns what was collected, in the file's order.
func (d *document) err() error {
	if len(d.errors) == 0 {
		return nil
	}
	slices.SortStableFunc(d.errors, func(a, b *FileError) int {
		return cmp.Or(a.Place.Line-b.Place.Line, a.Place.Column-b.Place.Column)
	})
	return d.errors
}

// maxFile is far more than any policy file has, and keeps what was given by mistake out of memory.
const maxFile = 1 << 20

// root returns the body of the file's only document, or nil with a complaint.
func (d *document) root(text []byte) (body ast.Node) {
	if len(text) > maxFile {
		d.complain(Place{1, 1}, "the file is larger than %d bytes", maxFile)
		return nil
	}
	// The YAML library has no promise about hostile input.
	defer func() {
		if failure := recover(); failure != nil {
			d.complain(Place{1, 1}, "this is not YAML that can be read")
			body = nil
		}
	}()
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.complainSyntax(err)
		return nil
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case body == nil:
			body = doc.Body
		default:
			d.complain(place(doc.Body), "a second document: a policy file has one")
		}
	}
	if body == nil {
		d.complain(Place{1, 1}, "the file is empty: it needs policies:")
	}
	return body
}

func (d *document) complainSyntax(err error) {
	at, message := Place{1, 1}, err.Error()
	var located yaml.Error
	if errors.As(err, &located) {
		message = located.GetMessage()
		if token := located.GetToken(); token != nil && token.Position != nil {
			at = Place{token.Position.Line, token.Position.Column}
		}
	}
	message, _, _ = strings.Cut(message, "\n")
	d.complain(at, "not YAML: %s", message)
}

func place(n ast.Node) Place {
	if mapping, ok := n.(*ast.MappingNode); ok && len(mapping.Values) > 0 && !mapping.IsFlowStyle {
		n = mapping.Values[0].Key
	}
	token := n.GetToken()
	if token == nil || token.Position == nil {
		return Place{1, 1}
	}
	return Place{token.Position.Line, token.Position.Column}
}

// entry is one key of a mapping.
type entry struct {
	key   string
	at    Place // of the key
	value ast.Node
}

// entries returns a mapping's keys in the file's order, each once, or false with a complaint that n is no mapping. what
// names the mapping.
func (d *document) entries(n ast.Node, what string) ([]entry, bool) {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		d.complain(place(n), "%s must be a mapping of keys to values, not %s", what, kind(n))
		return nil, false
	}
	var all []entry
	first := map[string]Place{}
	for _, v := range values {
		at := place(v.Key)
		key, ok := text(v.Key)
		if !ok {
			d.complain(at, "%s: a key must be a plain name", what)
			continue
		}
		if before, twice := first[key]; twice {
			d.complain(at, "%s: %s is there twice, first in line %d", what, key, before.Line)
			continue
		}
		first[key] = at
		all = append(all, entry{key: key, at: at, value: v.Value})
	}
	return all, true
}

// known sorts a key into those this version supports, those a later one will, and mistakes, with a complaint about all
// but the first.
func (d *document) known(e entry, what string, supported, later []string) bool {
	switch {
	case slices.Contains(supported, e.key):
		return true
	case slices.Contains(later, e.key):
		d.complain(e.at, "%s: %s is not supported by this version", what, e.key)
	default:
		d.complain(e.at, "%s: there is no key %s%s", what, quoted(e.key), meant(e.key, supported, later))
	}
	return false
}

// scalar returns a text, with its quotes taken off.
func (d *document) scalar(e entry, what string) (string, bool) {
	value, ok := text(e.value)
	switch {
	case ok && strings.ContainsRune(value, 0):
		d.complain(place(e.value), "%s: %s contains a zero byte", what, e.key)
		return "", false
	case ok && strings.TrimSpace(value) == "":
		d.complain(place(e.value), "%s: %s is empty", what, e.key)
		return "", false
	case !ok:
		d.complain(place(e.value), "%s: %s needs a text, not %s", what, e.key, kind(e.value))
		return "", false
	}
	return value, true
}

// text is the text of a scalar node.
func text(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

// kind names what a node is, for a person.
func kind(n ast.Node) string {
	switch n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return "an anchor, alias or merge (write it out)"
	case *ast.TagNode:
		return "a tag"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	}
	return "a number or the like: put it into quotes, with its unit if it has one"
}

// quoted shows a text from the file, cut where it goes on and on.
func quoted(s string) string {
	if runes := []rune(s); len(runes) > 40 {
		s = string(runes[:40]) + "…"
	}
	return fmt.Sprintf("%q", s)
}

// meant is the end of a complaint about a name that is not there: the nearest of valid and later, or all that are valid.
func meant(name string, valid, later []string) string {
	best, least := "", len(name)/2+1
	for _, candidate := range slices.Concat(valid, later) {
		if n := distance(strings.ToLower(name), candidate); n < least {
			best, least = candidate, n
		}
	}
	if best != "" {
		return fmt.Sprintf("; did you mean %s?", best)
	}
	return "; there are " + strings.Join(valid, ", ")
}

// distance is the number of letters to add, drop, change or swap with a neighbour.
func distance(a, b string) int {
	if len(a) > 100 {
		return len(a)
	}
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		earlier := before
		before, row = row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := before[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, before[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], earlier[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
