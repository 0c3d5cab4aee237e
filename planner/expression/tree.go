package expression

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// node is a node of an expression as pg_constraint keeps it: {TAG :field value … :field {…}}.
type node struct {
	tag    string
	fields map[string][]string // what follows a field's name, without nodes
	kids   []*node             // in order, also those in lists
}

// readTree reads the text form of an expression. PostgreSQL escapes brackets and blanks inside a value by a backslash.
func readTree(text string) (*node, error) {
	r := &treeReader{tokens: treeTokens(text)}
	root := r.node()
	if root == nil || r.at != len(r.tokens) {
		return nil, fmt.Errorf("read an expression's tree: it is not laid out as those of PostgreSQL 14 to 18")
	}
	return root, nil
}

func treeTokens(text string) (tokens []string) {
	from := -1
	end := func(at int) {
		if from >= 0 {
			tokens = append(tokens, text[from:at])
			from = -1
		}
	}
	for at := 0; at < len(text); at++ {
		switch c := text[at]; {
		case c == ' ' || c == '\n' || c == '\t':
			end(at)
		case strings.IndexByte("{}()[]", c) >= 0:
			end(at)
			tokens = append(tokens, text[at:at+1])
		default:
			if from < 0 {
				from = at
			}
			if c == '\\' {
				at++
			}
		}
	}
	end(len(text))
	return tokens
}

type treeReader struct {
	tokens []string
	at     int
}

// node reads one node; nil if there is none.
func (r *treeReader) node() *node {
	if r.at+1 >= len(r.tokens) || r.tokens[r.at] != "{" {
		return nil
	}
	n := &node{tag: r.tokens[r.at+1], fields: map[string][]string{}}
	field := ""
	for r.at += 2; r.at < len(r.tokens); {
		switch t := r.tokens[r.at]; {
		case t == "}":
			r.at++
			return n
		case t == "{":
			kid := r.node()
			if kid == nil {
				return nil
			}
			n.kids = append(n.kids, kid)
		default:
			if strings.HasPrefix(t, ":") {
				field = t[1:]
				n.fields[field] = nil
			} else {
				n.fields[field] = append(n.fields[field], t)
			}
			r.at++
		}
	}
	return nil
}

// oid is a field's number, 0 if there is none.
func (n *node) oid(field string) uint32 {
	values := n.fields[field]
	if len(values) == 0 {
		return 0
	}
	number, err := strconv.ParseUint(values[0], 10, 32)
	if err != nil {
		return 0
	}
	return uint32(number)
}

const booleanOID = 16

// typeFields say where a node has the oid of its type.
var typeFields = map[string]string{
	"VAR": "vartype", "CONST": "consttype", "FUNCEXPR": "funcresulttype", "OPEXPR": "opresulttype", "DISTINCTEXPR": "opresulttype",
	"NULLIFEXPR": "opresulttype", "SUBSCRIPTINGREF": "refrestype", "RELABELTYPE": "resulttype", "COERCEVIAIO": "resulttype",
	"ARRAYCOERCEEXPR": "resulttype", "CASEEXPR": "casetype", "CASE": "casetype", "CASETESTEXPR": "typeId", "COALESCEEXPR": "coalescetype",
	"COALESCE": "coalescetype", "MINMAXEXPR": "minmaxtype", "MINMAX": "minmaxtype", "ARRAYEXPR": "array_typeid", "ARRAY": "array_typeid",
}

// typeOf is the type of what a node gives.
func (n *node) typeOf() uint32 {
	switch field, there := typeFields[n.tag]; {
	case there:
		return n.oid(field)
	case n.tag == "COLLATEEXPR" || n.tag == "COLLATE" || n.tag == "NAMEDARGEXPR":
		if len(n.kids) > 0 {
			return n.kids[0].typeOf()
		}
		return 0
	default:
		return booleanOID
	}
}

// walk visits a node and all below it.
func (n *node) walk(visit func(*node)) {
	visit(n)
	for _, kid := range n.kids {
		kid.walk(visit)
	}
}

// columnNumbers are the numbers of the columns that a tree reads, each once.
func (n *node) columnNumbers() (numbers []int16) {
	n.walk(func(n *node) {
		if n.tag != "VAR" || len(n.fields["varattno"]) == 0 {
			return
		}
		number, err := strconv.ParseInt(n.fields["varattno"][0], 10, 16)
		if at := int16(number); err == nil && !slices.Contains(numbers, at) {
			numbers = append(numbers, at)
		}
	})
	slices.Sort(numbers)
	return numbers
}
