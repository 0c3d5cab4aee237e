package importer

import "strings"

// node is an expression in PostgreSQL's normal form.
type node struct {
	kind   nodeKind
	text   string // operator, function, column, literal, number, type or field
	kids   []*node
	labels []string // the labels of a function's arguments
	tokens []token
}

type nodeKind byte

const (
	aColumn   nodeKind = 'c'
	aLiteral  nodeKind = 'l' // a text; a type around it is a cast
	aNumber   nodeKind = 'n'
	aCall     nodeKind = 'f'
	aCast     nodeKind = ':'
	anOperand nodeKind = 'o' // two operands
	aNot      nodeKind = '!'
	aZone     nodeKind = 'z' // AT TIME ZONE
	aPresent  nodeKind = 'p' // IS NOT NULL
)

// parser reads one expression over the columns of alias.
type parser struct {
	clause
	alias string
}

// parse reads an expression. It returns nil for an expression that this parser does not know.
func parse(c condition) (n *node) {
	defer func() {
		if _, refused := recover().(refusal); refused {
			n = nil
		}
	}()
	tokens, ok := scan(c.text)
	p := &parser{clause{text: c.text, tokens: tokens}, c.alias}
	if !ok {
		p.refuse()
	}
	n = p.expression()
	if p.at != len(p.tokens) {
		p.refuse()
	}
	return n
}

// made gives a node its tokens, starting at a place.
func (p *parser) made(from int, n *node) *node {
	n.tokens = p.tokens[from:p.at]
	return n
}

// expression reads an operand and the types that it is cast to.
func (p *parser) expression() *node {
	from := p.at
	n := p.operand()
	for p.take("::") {
		n = p.made(from, &node{kind: aCast, text: p.typeName(), kids: []*node{n}})
	}
	return n
}

func (p *parser) operand() *node {
	from := p.at
	switch t := p.next(); {
	case t.is("("):
		n := p.inner()
		p.want(")")
		return p.made(from, n)
	case t.kind == literal:
		text, ok := t.value()
		if !ok {
			p.refuse()
		}
		return p.made(from, &node{kind: aLiteral, text: text})
	case t.kind == number:
		return p.made(from, &node{kind: aNumber, text: t.text})
	case t.is("extract") && p.take("("):
		field := p.name()
		p.want("from")
		of := p.expression()
		p.want(")")
		return p.made(from, &node{kind: aCall, text: "date_part", kids: []*node{{kind: aLiteral, text: field}, of}, labels: []string{"", ""}})
	case t.kind == word && strings.Contains(" current_timestamp current_date localtimestamp ", " "+strings.ToLower(t.text)+" "):
		p.precision()
		return p.made(from, &node{kind: aCall, text: strings.ToLower(t.text)})
	case t.kind == word && p.peek().is("("):
		return p.call(from, strings.ToLower(t.text))
	case t.name() == p.alias && p.take("."):
		return p.made(from, &node{kind: aColumn, text: p.name()})
	}
	p.refuse()
	return nil
}

// inner reads the inside of parentheses: an operand, or an operator and its operands.
func (p *parser) inner() *node {
	if p.take("not") {
		return &node{kind: aNot, kids: []*node{p.expression()}}
	}
	left := p.expression()
	switch t := p.peek(); {
	case t.is(")"):
		return left
	case t.kind == operator:
		p.next()
		return &node{kind: anOperand, text: t.text, kids: []*node{left, p.expression()}}
	case p.take("at", "time", "zone"):
		return &node{kind: aZone, kids: []*node{left, p.expression()}}
	case p.take("is", "not", "null"):
		return &node{kind: aPresent, kids: []*node{left}}
	}
	p.refuse()
	return nil
}

// call reads a function's arguments.
func (p *parser) call(from int, name string) *node {
	n := &node{kind: aCall, text: name}
	p.want("(")
	for !p.take(")") {
		label := ""
		if p.at+1 < len(p.tokens) && p.tokens[p.at+1].is("=>") {
			label = p.name()
			p.next()
		}
		n.labels = append(n.labels, label)
		n.kids = append(n.kids, p.expression())
		if !p.peek().is(")") {
			p.want(",")
		}
	}
	return p.made(from, n)
}

// typeName reads a type of pg_catalog, without its precision. One with a schema is not read.
func (p *parser) typeName() string {
	name := p.name()
	switch {
	case name == "double":
		p.want("precision")
	case name == "interval" && p.peek().kind == word && !p.peek().is("at"): // interval day
		p.next()
		for p.take("to") {
			p.next()
		}
	case name == "timestamp":
		p.precision()
		if p.take("with", "time", "zone") {
			return "timestamptz"
		}
		p.want("without", "time", "zone")
		return name
	}
	p.precision()
	if p.peek().is(".") || p.peek().is("[") {
		p.refuse()
	}
	return name
}

// precision skips a precision. It refuses a type that cuts off a time or an interval, because the resulting value is not known here.
func (p *parser) precision() {
	if p.peek().is("(") {
		p.refuse()
	}
}
