package importer

import (
	"slices"
	"strings"

	"lapse/planner/expression"
)

// deletion is a DELETE from one table in PostgreSQL's normal form: of the rows that meet all conditions.
type deletion struct {
	table      string      // schema.table
	only       bool        // ONLY: without the tables that inherit from it
	conditions []condition // all about the same row, under any alias
	limit      string      // the rows per run, "" for no limit
	key        string      // the column that identifies rows between parts of the statement, "" for ctid: it should be unique
	joined     bool        // joined with the part of WITH that USING names
}

// condition is SQL over the columns of alias.
type condition struct{ alias, text string }

// refusal says why the reader does not read a statement. The reader's functions panic with it, and the reader recovers it.
type refusal string

// clause reads the tokens of a statement one by one.
type clause struct {
	text   string
	tokens []token
	at     int
}

func (c *clause) peek() token {
	if c.at < len(c.tokens) {
		return c.tokens[c.at]
	}
	return token{}
}

func (c *clause) next() token {
	t := c.peek()
	c.at++
	return t
}

// take skips these words if they follow.
func (c *clause) take(words ...string) bool {
	for i, w := range words {
		if c.at+i >= len(c.tokens) || !c.tokens[c.at+i].is(w) {
			return false
		}
	}
	c.at += len(words)
	return true
}

func (c *clause) want(words ...string) {
	if !c.take(words...) {
		c.refuse()
	}
}

// refuse says where the reader stops.
func (c *clause) refuse() {
	panic(refusal("it has a form that import does not know, at: " + c.rest()))
}

// rest is the beginning of what is not read.
func (c *clause) rest() string {
	if c.at >= len(c.tokens) {
		return "its end"
	}
	rest := strings.Join(strings.Fields(c.text[c.tokens[c.at].start:c.tokens[len(c.tokens)-1].end]), " ")
	if runes := []rune(rest); len(runes) > 60 {
		rest = string(runes[:60]) + "…"
	}
	return rest
}

// until returns the tokens before one of these words outside parentheses, or to the end.
func (c *clause) until(words ...string) clause {
	from, depth := c.at, 0
	for ; c.at < len(c.tokens); c.at++ {
		t := c.tokens[c.at]
		switch {
		case depth == 0 && slices.ContainsFunc(words, t.is):
			return clause{text: c.text, tokens: c.tokens[from:c.at]}
		case t.is("(") || t.is("["):
			depth++
		case t.is(")") || t.is("]"):
			depth--
		}
	}
	return clause{text: c.text, tokens: c.tokens[from:]}
}

// brackets returns the tokens inside parentheses.
func (c *clause) brackets() clause {
	c.want("(")
	inner := c.until(")")
	c.want(")")
	return inner
}

// all is the text of all tokens.
func (c *clause) all() string {
	if len(c.tokens) == 0 {
		return ""
	}
	return c.text[c.tokens[0].start:c.tokens[len(c.tokens)-1].end]
}

// name reads a name that PostgreSQL wrote.
func (c *clause) name() string {
	name := c.next().name()
	if name == "" {
		c.at--
		c.refuse()
	}
	return name
}

// relation is a name after FROM: a table, or a part of WITH.
type relation struct {
	table string // schema.table; "" for a part of WITH
	with  string
	alias string
	only  bool
}

// relation reads the name, up to one of these words.
func (c *clause) relation(ends ...string) (r relation) {
	r.only = c.take("only")
	from := c.at
	r.with = c.name()
	if c.take(".") {
		c.name()
		r.with, r.table = "", c.text[c.tokens[from].start:c.tokens[c.at-1].end]
	}
	r.alias = c.tokens[c.at-1].name()
	if t := c.peek(); t.name() != "" && (t.kind == quoted || !slices.ContainsFunc(ends, t.is)) {
		r.alias = c.name()
	}
	return r
}

// selection is a SELECT of one column of one table's rows.
type selection struct {
	deletion
	column string // "" if it is not a column
}

// withs are the parts of WITH, by name.
type withs map[string]clause

// with reads WITH, if it follows.
func (c *clause) with(outer withs) withs {
	all := withs{}
	for name, part := range outer {
		all[name] = part
	}
	if !c.take("with") {
		return all
	}
	for {
		name := c.name()
		c.want("as")
		if !c.take("not", "materialized") {
			c.take("materialized")
		}
		all[name] = c.brackets()
		if !c.take(",") {
			return all
		}
	}
}

// afterFrom are the words that may follow a table or a WHERE clause.
var afterFrom = []string{
	"where", "order", "limit", "fetch", "for", "group", "having", "window", "union", "intersect", "except", "offset", "join", "left", "right", "full", "cross",
	"inner", "natural", "tablesample",
}

// selection reads SELECT column FROM table WHERE … ORDER BY … LIMIT … FOR UPDATE ….
func (c *clause) selection(outer withs) (s selection) {
	parts := c.with(outer)
	c.want("select")
	list := c.until("from")
	c.want("from")
	from := c.relation(afterFrom...)
	s.column = list.column(from.alias)
	if from.table != "" {
		s.table, s.only = from.table, from.only
	} else {
		part, there := parts[from.with]
		if !there {
			c.refuse()
		}
		delete(parts, from.with) // a part does not name itself
		column := s.column
		if s = part.selection(parts); s.column != column {
			panic(refusal("a part of WITH gives its column another name"))
		}
	}
	if c.take("where") {
		if from.table == "" {
			panic(refusal("what a part of WITH found is narrowed down by further conditions"))
		}
		s.conditions = append(s.conditions, c.conditions(from.alias, afterFrom...)...)
	}
	if c.take("order", "by") {
		c.until("limit", "fetch", "for", "offset")
	}
	if c.take("limit") {
		s.limited(c)
	}
	if c.take("for") {
		c.at = len(c.tokens)
	}
	if c.at != len(c.tokens) {
		c.refuse()
	}
	return s
}

// limited reads a LIMIT.
func (s *selection) limited(c *clause) {
	t := c.next()
	switch limit, isText := t.value(); {
	case t.is("all") || t.is("null"):
		return
	case t.is("("):
		c.at--
		inner := c.brackets()
		limit = inner.all()
		t.text = limit
	case isText: // '1000'::bigint
		c.want("::")
		c.name()
		t.text = limit
	}
	if s.limit != "" || strings.Trim(t.text, "0123456789") != "" {
		panic(refusal("it has a LIMIT that is no number"))
	}
	s.limit = t.text
}

// column reads the only column of a SELECT list.
func (c *clause) column(alias string) string {
	if len(c.tokens) < 3 || c.tokens[0].name() != alias || !c.tokens[1].is(".") {
		return ""
	}
	name := c.tokens[2].name()
	if rest := c.tokens[3:]; len(rest) != 0 && !(len(rest) == 2 && rest[0].is("as") && rest[1].name() == name) {
		return ""
	}
	return name
}

// conditions are the parts of a WHERE.
func (c *clause) conditions(alias string, ends ...string) (all []condition) {
	where := c.until(ends...)
	for _, text := range expression.Conjuncts(where.all()) {
		all = append(all, condition{alias, text})
	}
	return all
}
