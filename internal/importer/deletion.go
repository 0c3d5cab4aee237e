package importer

// readDeletion reads a function body with one statement, in PostgreSQL's normal form. problem says why the statement is not a deletion that a
// policy can do.
func readDeletion(body string) (d deletion, problem string) {
	defer func() {
		switch caught := recover().(type) {
		case nil:
		case refusal:
			d, problem = deletion{}, string(caught)
		default:
			panic(caught)
		}
	}()
	tokens, ok := scan(body)
	c := &clause{text: body, tokens: tokens}
	if !ok {
		c.refuse()
	}
	c.want("begin", "atomic")
	statement := c.until(";")
	c.want(";")
	if !c.take("end") || c.at != len(tokens) {
		panic(refusal("it is several statements"))
	}
	return statement.statement(), ""
}

// statement reads a DELETE, or a SELECT that counts the rows that a DELETE in its WITH clause has deleted.
func (c *clause) statement() deletion {
	parts := c.with(nil)
	if c.take("select") {
		return c.counting(parts)
	}
	if c.take("insert") {
		for _, p := range parts {
			if p.peek().is("delete") {
				panic(refusal("it keeps what it deletes in another table, which a policy does not: have a trigger, or a consumer of the events, copy the rows"))
			}
		}
	}
	if !c.take("delete", "from") {
		c.at = max(0, c.at-1)
		c.refuse()
	}
	for name, p := range parts {
		if !p.peek().is("select") && !p.peek().is("with") {
			panic(refusal("its part " + name + " of WITH changes rows too"))
		}
	}
	return c.deletion(parts)
}

// counting reads SELECT count(*) from a deleting part of WITH.
func (c *clause) counting(parts withs) deletion {
	from := c.at
	if c.take("count", "(", "*", ")", "as") && c.name() != "" && c.take("from") {
		if part, there := parts[c.next().name()]; there && c.at == len(c.tokens) && len(parts) == 1 && part.take("delete", "from") {
			return part.deletion(withs{})
		}
	}
	c.at = from
	for _, p := range parts {
		if p.peek().is("delete") {
			panic(refusal("it does more with what it deletes than count it"))
		}
	}
	panic(refusal("it deletes nothing by itself: what a function that it calls deletes is not read"))
}

// deletion reads the text after DELETE FROM.
func (c *clause) deletion(parts withs) (d deletion) {
	from := c.relation("using", "where", "returning")
	d.table, d.only = from.table, from.only
	if d.table == "" {
		c.refuse()
	}
	var using relation
	if c.take("using") {
		using = c.relation("where", "returning")
		if using.table != "" || c.peek().is(",") {
			panic(refusal("it goes by the rows of another table (USING), and a policy by the row's own columns"))
		}
	}
	if c.take("where") {
		for _, part := range c.conditions(from.alias, "returning") {
			d.add(part, using, parts)
		}
	}
	if using.with != "" && !d.joined {
		panic(refusal("it goes by the rows of " + using.with + " (USING), and not by a column that both have"))
	}
	if c.take("returning") {
		c.at = len(c.tokens)
	}
	if c.at != len(c.tokens) {
		c.refuse()
	}
	return d
}

// add adds a condition. If the condition selects rows of the same table, add adds the conditions of that selection.
func (d *deletion) add(part condition, using relation, parts withs) {
	if using.with != "" && d.join(part, using, parts) {
		return
	}
	tokens, _ := scan(part.text)
	c := &clause{text: part.text, tokens: tokens}
	column := ""
	if c.take("(") && c.next().name() == part.alias && c.take(".") {
		column = c.next().name()
	}
	begin := c.at
	var inner clause
	switch {
	case column == "":
	case c.take("in") && c.selects():
		inner = c.brackets()
		c.want(")")
	case c.back(begin) && c.take("=", "any", "(", "array") && c.selects():
		inner = c.brackets()
		c.want(")", ")")
	}
	if len(inner.tokens) == 0 {
		d.conditions = append(d.conditions, part)
		return
	}
	if c.at != len(tokens) {
		c.refuse()
	}
	d.narrow(inner.selection(parts), column)
}

// back moves the reader back to a place.
func (c *clause) back(at int) bool {
	c.at = at
	return true
}

// selects reports whether a SELECT in parentheses follows.
func (c *clause) selects() bool {
	return c.at+1 < len(c.tokens) && c.peek().is("(") && (c.tokens[c.at+1].is("select") || c.tokens[c.at+1].is("with"))
}

// join reports whether a condition equates columns of one name, (t.id = doomed.id). If so, it adds the conditions of doomed's selection.
func (d *deletion) join(part condition, using relation, parts withs) bool {
	tokens, _ := scan(part.text)
	if len(tokens) != 9 || !tokens[2].is(".") || !tokens[4].is("=") || !tokens[6].is(".") || d.joined {
		return false
	}
	one, other, column := tokens[1].name(), tokens[5].name(), tokens[3].name()
	if one == using.alias {
		one, other = other, one
	}
	selected, there := parts[using.with]
	if !there || one != part.alias || other != using.alias || tokens[7].name() != column {
		return false
	}
	d.joined = true
	d.narrow(selected.selection(withs{}), column)
	return true
}

// narrow adds the conditions of a selection by a column.
func (d *deletion) narrow(s selection, column string) {
	switch {
	case s.table != d.table:
		panic(refusal("it selects rows of another table (" + s.table + "), and a policy goes by the row's own columns"))
	case s.column != column || column == "":
		panic(refusal("it compares two different columns to find its rows"))
	case d.limit != "" && s.limit != "":
		panic(refusal("it has two limits"))
	}
	d.conditions = append(d.conditions, s.conditions...)
	d.limit += s.limit
	d.only = d.only || s.only
	if column != "ctid" {
		d.key = column
	}
}
