package yamldoc

import (
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Node is one value of a file. The zero Node is no value at all.
type Node struct{ node ast.Node }

// IsZero reports whether there is nothing.
func (n Node) IsZero() bool { return n.node == nil }

// Place is where the value begins; of a mapping in lines, where its first key is.
func (n Node) Place() Place {
	if n.node == nil {
		return start
	}
	node := n.node
	if mapping, ok := node.(*ast.MappingNode); ok && len(mapping.Values) > 0 && !mapping.IsFlowStyle {
		node = mapping.Values[0].Key
	}
	token := node.GetToken()
	if token == nil || token.Position == nil {
		return start
	}
	return Place{token.Position.Line, token.Position.Column}
}

// Text is the text of a scalar that YAML takes for one, without its quotes.
func (n Node) Text() (string, bool) {
	switch n := n.node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

// Scalar is Text, and of numbers and booleans what was written.
func (n Node) Scalar() (string, bool) {
	switch node := n.node.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return node.GetToken().Value, true
	}
	return n.Text()
}

// Int is a whole number that is not negative, in decimal digits, with or without underscores between them. A number that
// begins with 0 is octal for some readers of YAML, and none here.
func (n Node) Int() (uint64, bool) {
	number, ok := n.node.(*ast.IntegerNode)
	if !ok {
		return 0, false
	}
	digits := strings.ReplaceAll(number.GetToken().Value, "_", "")
	value, err := strconv.ParseUint(digits, 10, 63)
	return value, err == nil && (len(digits) == 1 || digits[0] != '0')
}

// Float is a number that is not negative, in decimal digits.
func (n Node) Float() (float64, bool) {
	if value, ok := n.Int(); ok {
		return float64(value), true
	}
	number, ok := n.node.(*ast.FloatNode)
	if !ok {
		return 0, false
	}
	value, err := strconv.ParseFloat(number.GetToken().Value, 64)
	return value, err == nil && value >= 0
}

// Bool is a boolean.
func (n Node) Bool() (value, ok bool) {
	node, ok := n.node.(*ast.BoolNode)
	return ok && node.Value, ok
}

// List is the values of a list.
func (n Node) List() ([]Node, bool) {
	sequence, ok := n.node.(*ast.SequenceNode)
	if !ok {
		return nil, false
	}
	all := make([]Node, 0, len(sequence.Values))
	for _, v := range sequence.Values {
		all = append(all, Node{v})
	}
	return all, true
}

// Kind is what a value is.
type Kind int

// The kinds of a value.
const (
	Nothing Kind = iota
	Mapping
	List
	Text
	Integer
	Float
	Boolean
	Reference // an anchor, an alias or a merge: the value is elsewhere
	Other     // a tag, or what only YAML knows
)

// Kind says what the value is.
func (n Node) Kind() Kind {
	switch n.node.(type) {
	case nil, *ast.NullNode:
		return Nothing
	case *ast.MappingNode, *ast.MappingValueNode:
		return Mapping
	case *ast.SequenceNode:
		return List
	case *ast.StringNode, *ast.LiteralNode:
		return Text
	case *ast.IntegerNode:
		return Integer
	case *ast.FloatNode:
		return Float
	case *ast.BoolNode:
		return Boolean
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return Reference
	}
	return Other
}
