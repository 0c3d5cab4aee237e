package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Place is a position in a file, both from 1.
type Place struct{ Line, Column int }

// start is the place of what concerns the whole file.
var start = Place{Line: 1, Column: 1}

// Document is one YAML file and what is wrong with it. It is not safe for concurrent use.
type Document struct {
	File   string   // as errors name it
	Lines  []string // of the file, shown with errors; nil shows none, as a file that may hold passwords must
	Policy string   // that errors are about, "" for none
	errors Errors
}

// Complain adds an error.
func (d *Document) Complain(at Place, format string, args ...any) {
	e := &Error{File: d.File, Place: at, Policy: d.Policy, Message: fmt.Sprintf(format, args...)}
	if at.Line >= 1 && at.Line <= len(d.Lines) {
		e.Line = d.Lines[at.Line-1]
	}
	d.errors = append(d.errors, e)
}

// Count is how many errors there are so far.
func (d *Document) Count() int { return len(d.errors) }

// Err returns the errors as Errors, in the file's order, or nil.
func (d *Document) Err() error {
	if len(d.errors) == 0 {
		return nil
	}
	return d.errors.Sorted([]string{d.File})
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
	text, ok := d.plain(text)
	if !ok {
		return Node{}
	}
	// The YAML library makes no promise about hostile input.
	defer func() {
		if failure := recover(); failure != nil {
			d.Complain(start, "this is not YAML that can be read")
			body = Node{}
		}
	}()
	tokens := lexer.Tokenize(string(text))
	if at, deep := tooDeep(tokens); deep {
		d.Complain(at, "more than %d lists or mappings in one another", maxDepth)
		return Node{}
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
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

// maxDepth is far more than any file of ours has. The parser's memory grows with the square of the depth: 16 GB for 50,000 brackets.
const maxDepth = 100

// tooDeep finds where brackets, or dashes in one line, go deeper than maxDepth. What is indented line by line cannot go deep in a file of MaxFile.
func tooDeep(tokens token.Tokens) (at Place, deep bool) {
	brackets, dashes, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			dashes, line = 0, t.Position.Line
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.SequenceEntryType:
			dashes++
		default:
		}
		if brackets > maxDepth || dashes > maxDepth {
			return Place{t.Position.Line, t.Position.Column}, true
		}
	}
	return at, false
}

// plain is the text without its byte order mark and with one kind of line break; false, with an error, if it is no UTF-8.
func (d *Document) plain(text []byte) ([]byte, bool) {
	if bytes.HasPrefix(text, []byte{0xfe, 0xff}) || bytes.HasPrefix(text, []byte{0xff, 0xfe}) {
		d.Complain(start, "the file is written in UTF-16: save it as UTF-8")
		return nil, false
	}
	text = normalize(text)
	for i, line := range bytes.Split(text, []byte("\n")) {
		if !utf8.Valid(line) {
			d.Complain(Place{i + 1, firstInvalid(line)}, "this is not UTF-8: save the file as UTF-8")
			return nil, false
		}
	}
	return text, true
}

// firstInvalid is the column of the first byte that is no UTF-8.
func firstInvalid(line []byte) int {
	for column := 1; ; column++ {
		r, size := utf8.DecodeRune(line)
		if r == utf8.RuneError && size <= 1 {
			return column
		}
		line = line[size:]
	}
}

// normalize takes a byte order mark off, and makes each of YAML's line breaks a newline.
func normalize(text []byte) []byte {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	return bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
}

// Lines are the lines of a text, as errors count them.
func Lines(text []byte) []string { return strings.Split(string(normalize(text)), "\n") }

func (d *Document) complainSyntax(err error) {
	at := start
	var message string
	var located yaml.Error
	if errors.As(err, &located) {
		message = located.GetMessage() // Error would show the file, and take minutes for a long line
		if token := located.GetToken(); token != nil && token.Position != nil {
			at = Place{token.Position.Line, token.Position.Column}
		}
	} else {
		message = err.Error()
	}
	message, _, _ = strings.Cut(message, "\n")
	d.Complain(at, "not YAML: %s%s", message, syntaxHint(message))
}

// syntaxHint says what was most likely meant, for the messages of the YAML library that do not.
func syntaxHint(message string) string {
	switch {
	case strings.Contains(message, `'	'`) || strings.Contains(message, "'\t'"):
		return ": indent with spaces, YAML takes no tabs there"
	case strings.Contains(message, "not allowed in this context"):
		return ": put a text that holds a colon, or begins with a bracket, into quotes, and see whether the lines are indented alike"
	}
	return ""
}

// Entry is one key of a mapping.
type Entry struct {
	Key   string
	At    Place // of the key
	Value Node
	// Earlier is the line that has the same key before, 0 for none.
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
