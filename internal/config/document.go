package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Problem is one thing that is wrong with a file, and where.
type Problem struct {
	Line, Column int
	Text         string
}

// FileError is all that is wrong with a file.
type FileError struct {
	File     string
	Problems []Problem
}

// Error has a line for each problem: file, line, column, what is wrong.
func (e *FileError) Error() string {
	lines := make([]string, 0, len(e.Problems))
	for _, p := range e.Problems {
		lines = append(lines, fmt.Sprintf("%s:%d:%d: %s", e.File, p.Line, p.Column, p.Text))
	}
	return strings.Join(lines, "\n")
}

// document reads one YAML file and collects what is wrong with it. A value that cannot be read leaves its setting alone.
type document struct {
	file     string
	problems []Problem
}

// field is one key of a mapping and what reads its value.
type field struct {
	name string
	read func(ast.Node)
}

// maxFile is far more than any configuration has, and keeps what was given by mistake out of memory.
const maxFile = 1 << 20

// parse returns the file's only document, nil for an empty one.
func (d *document) parse(text []byte) (body ast.Node) {
	if len(text) > maxFile {
		d.problems = append(d.problems, Problem{1, 1, fmt.Sprintf("the file is larger than %d bytes", maxFile)})
		return nil
	}
	// The YAML library makes no promise about hostile input.
	defer func() {
		if failure := recover(); failure != nil {
			d.problems = append(d.problems, Problem{1, 1, "this is not YAML that can be read"})
			body = nil
		}
	}()
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.syntax(err)
		return nil
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case body == nil:
			body = doc.Body
		default:
			d.complain(doc.Body, "a second document: keep one per file")
		}
	}
	return body
}

func (d *document) syntax(err error) {
	problem := Problem{Line: 1, Column: 1, Text: "not YAML: " + err.Error()}
	var located yaml.Error
	if errors.As(err, &located) {
		problem.Text = "not YAML: " + located.GetMessage()
		if t := located.GetToken(); t != nil {
			problem.Line, problem.Column = t.Position.Line, t.Position.Column
		}
	}
	d.problems = append(d.problems, problem)
}

// err returns what was collected, in the order of the file.
func (d *document) err() error {
	if len(d.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(d.problems, func(a, b Problem) int {
		return (a.Line-b.Line)*1_000_000 + a.Column - b.Column
	})
	return &FileError{File: d.file, Problems: d.problems}
}

func (d *document) complain(node ast.Node, format string, args ...any) {
	d.complainAt(node.GetToken(), format, args...)
}

func (d *document) complainAt(at *token.Token, format string, args ...any) {
	d.problems = append(d.problems, Problem{Line: at.Position.Line, Column: at.Position.Column, Text: fmt.Sprintf(format, args...)})
}

// mapping hands each key's value to its field and complains about keys that are not fields.
func (d *document) mapping(node ast.Node, what string, fields ...field) {
	var entries []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		entries = n.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{n}
	default:
		d.complain(node, "%s: want names with values below them, not %s", what, kindOf(node))
		return
	}
	seen := make(map[string]int)
	for _, entry := range entries {
		key := entry.Key.GetToken()
		name := key.Value
		at := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		switch {
		case at < 0:
			d.complainAt(key, "unknown key %q%s", name, suggestion(name, fields))
		case seen[name] > 0:
			d.complainAt(key, "%q is here already, in line %d", name, seen[name])
		case entry.Value.Type() == ast.NullType:
			d.complainAt(key, "%q has no value: give it one or leave the key out", name)
		default:
			fields[at].read(entry.Value)
		}
		seen[name] = key.Position.Line
	}
}

func suggestion(name string, fields []field) string {
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		names = append(names, f.name)
	}
	if near := Nearest(name, names); near != "" {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	return ": known here are " + strings.Join(names, ", ")
}

// text reads a scalar as it stands.
func (d *document) text(into *string) func(ast.Node) {
	return func(node ast.Node) {
		switch n := node.(type) {
		case *ast.StringNode:
			*into = n.Value
		case *ast.LiteralNode:
			*into = n.Value.Value
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
			*into = node.GetToken().Value
		default:
			d.complain(node, "want a text, not %s", kindOf(node))
		}
	}
}

// word reads one of a few words. off and on are words too, not booleans.
func (d *document) word(into *string, words ...string) func(ast.Node) {
	return func(node ast.Node) {
		var given string
		d.text(&given)(node)
		switch {
		case slices.Contains(words, given):
			*into = given
		case given == "":
		default:
			near := ""
			if n := Nearest(given, words); n != "" {
				near = fmt.Sprintf(": did you mean %q?", n)
			}
			d.complain(node, "%q is not one of %s%s", given, strings.Join(words, ", "), near)
		}
	}
}

func (d *document) flag(into *bool) func(ast.Node) {
	return func(node ast.Node) {
		if n, ok := node.(*ast.BoolNode); ok {
			*into = n.Value
			return
		}
		d.complain(node, "want true or false, not %s", kindOf(node))
	}
}

func (d *document) count(into *int, least int) func(ast.Node) {
	return func(node ast.Node) {
		n, ok := node.(*ast.IntegerNode)
		if !ok {
			d.complain(node, "want a whole number, not %s", kindOf(node))
			return
		}
		value, err := strconv.ParseUint(strings.ReplaceAll(n.GetToken().Value, "_", ""), 10, 63)
		if err != nil || value > math.MaxInt32 || int(value) < least {
			d.complain(node, "want a whole number from %d to %d", least, math.MaxInt32)
			return
		}
		*into = int(value)
	}
}

func (d *document) duration(into *time.Duration) func(ast.Node) {
	return func(node ast.Node) {
		var text string
		d.text(&text)(node)
		if text == "" {
			return
		}
		value, err := parseDuration(text)
		if err != nil {
			d.complain(node, "%v", err)
			return
		}
		*into = value
	}
}

// list reads a sequence of texts, or one text as a sequence of one.
func (d *document) list(into *[]string) func(ast.Node) {
	return func(node ast.Node) {
		sequence, ok := node.(*ast.SequenceNode)
		if !ok {
			var one string
			d.text(&one)(node)
			if one != "" {
				*into = []string{one}
			}
			return
		}
		var all []string
		for _, value := range sequence.Values {
			var one string
			d.text(&one)(value)
			all = append(all, one)
		}
		*into = all
	}
}

func kindOf(node ast.Node) string {
	switch node.Type() {
	case ast.MappingType, ast.MappingValueType:
		return "a mapping"
	case ast.SequenceType:
		return "a list"
	case ast.BoolType:
		return "true or false"
	case ast.IntegerType, ast.FloatType:
		return "a number"
	case ast.NullType:
		return "nothing"
	case ast.AnchorType, ast.AliasType, ast.MergeKeyType:
		return "an anchor or alias, which this file does not use: write the value out"
	default:
		return "a text"
	}
}

// units are the words that a duration may be written with.
var units = []struct {
	length time.Duration
	words  []string
}{
	{time.Millisecond, []string{"ms", "millisecond", "milliseconds"}},
	{time.Second, []string{"s", "sec", "second", "seconds"}},
	{time.Minute, []string{"m", "min", "minute", "minutes"}},
	{time.Hour, []string{"h", "hour", "hours"}},
}

// parseDuration reads "5 seconds", "1 min", "1m30s".
func parseDuration(text string) (time.Duration, error) {
	wrong := fmt.Errorf("%q is not a length of time above zero: write it as in 500 ms, 5 seconds or 1m30s", text)
	if d, err := time.ParseDuration(strings.ReplaceAll(text, " ", "")); err == nil && d > 0 {
		return d, nil
	}
	number, unit, _ := strings.Cut(strings.TrimSpace(text), " ")
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil || n == 0 {
		return 0, wrong
	}
	for _, u := range units {
		if slices.Contains(u.words, strings.TrimSpace(unit)) {
			return time.Duration(n) * u.length, nil
		}
	}
	return 0, wrong
}

// Nearest returns the name that name was most likely meant to be, or "" where none is near.
func Nearest(name string, names []string) string {
	best, least := "", max(2, len(name)/3)+1
	for _, candidate := range names {
		if n := distance(strings.ToLower(name), strings.ToLower(candidate)); n < least {
			best, least = candidate, n
		}
	}
	return best
}

// distance counts the insertions, deletions and exchanges that turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
