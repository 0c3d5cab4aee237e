package yamldoc

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

// Place is where something stands in a file, both from 1.
type Place struct{ Line, Column int }

// start is the place of what concerns the whole file.
var start = Place{Line: 1, Column: 1}

// Error is one thing that is wrong in a file, or between it and the database.
type Error struct {
	File    string
	Place   Place
	Message string
}

// Error says file, line, column and what is wrong.
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Place.Line, e.Place.Column, e.Message)
}

// Errors are all the things that are wrong in a file, in its order.
type Errors []*Error

// Error has one line for each.
func (e Errors) Error() string {
	lines := make([]string, 0, len(e))
	for _, one := range e {
		lines = append(lines, one.Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find an Error.
func (e Errors) Unwrap() []error {
	all := make([]error, 0, len(e))
	for _, one := range e {
		all = append(all, one)
	}
	return all
}

// Document is one YAML file and what is wrong with it. It is not safe for concurrent use.
type Document struct {
	File   string // as errors name it
	errors Errors
}

// Complain adds an error.
func (d *Document) Complain(at Place, format string, args ...any) {
	d.errors = append(d.errors, &Error{File: d.File, Place: at, Message: fmt.Sprintf(format, args...)})
}

// Add takes over errors that were found elsewhere.
func (d *Document) Add(errors Errors) { d.errors = append(d.errors, errors...) }

// Count is how many errors there are so far.
func (d *Document) Count() int { return len(d.errors) }

// Err returns the errors as Errors, in the file's order, or nil.
func (d *Document) Err() error {
	if len(d.errors) == 0 {
		return nil
	}
	slices.SortStableFunc(d.errors, func(a, b *Error) int {
		return cmp.Or(a.Place.Line-b.Place.Line, a.Place.Column-b.Place.Column)
	})
	return d.errors
}

// MaxFile is far more than any file of ours has, and keeps what was given by mistake out of memory.
const MaxFile = 1 << 20

// Root returns the body of the text's only document. For an empty text that is the zero Node; for one that cannot be read
// too, with an error.
func (d *Document) Root(text []byte) (body Node) {
	if len(text) > MaxFile {
		d.Complain(start, "the file is larger than %d bytes", MaxFile)
		return Node{}
	}
	// The YAML library makes no promise about hostile input.
	defer func() {
		if failure := recover(); failure != nil {
			d.Complain(start, "this is not YAML that can be read")
			body = Node{}
		}
	}()
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.complainSyntax(err)
		return Node{}
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case body.IsZero():
			body = Node{doc.Body}
		default:
			d.Complain(Node{doc.Body}.Place(), "a second document: keep one per file")
		}
	}
	return body
}

func (d *Document) complainSyntax(err error) {
	at, message := start, err.Error()
	var located yaml.Error
	if errors.As(err, &located) {
		message = located.GetMessage()
		if token := located.GetToken(); token != nil && token.Position != nil {
			at = Place{token.Position.Line, token.Position.Column}
		}
	}
	message, _, _ = strings.Cut(message, "\n")
	d.Complain(at, "not YAML: %s", message)
}

// Entry is one key of a mapping.
type Entry struct {
	Key   string
	At    Place // of the key
	Value Node
	// Earlier is the line in which the same key stands before, 0 for none.
	Earlier int
}

// Entries returns a mapping's keys in the file's order; false if n is no mapping. A key that is no scalar is an error; what
// names the mapping there.
func (d *Document) Entries(n Node, what string) (all []Entry, isMapping bool) {
	var values []*ast.MappingValueNode
	switch n := n.node.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		return nil, false
	}
	lines := map[string]int{}
	for _, v := range values {
		key := Node{v.Key}
		name, ok := key.Scalar()
		if !ok {
			d.Complain(key.Place(), "%s: a key must be a plain name", what)
			continue
		}
		all = append(all, Entry{Key: name, At: key.Place(), Value: Node{v.Value}, Earlier: lines[name]})
		if lines[name] == 0 {
			lines[name] = key.Place().Line
		}
	}
	return all, true
}
