package planner

import (
	"fmt"
	"strings"

	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/schemas"
)

// HideAs is how rows that are due are hidden.
type HideAs string

// The ways of hiding.
const (
	HideView   HideAs = "view"   // a view without them, beside the table
	HidePolicy HideAs = "policy" // row security on the table itself
)

// HideMark is the comment of what hide made and may take away again.
const HideMark = "made by lapse hide"

// Hide hides the rows of a table that are due under a policy, from the moment on at which they are. Its SQL is a pure function
// of it: of the table as it was found, too.
type Hide struct {
	Schema, Table string
	Owner         string // the role that everything belongs to
	As            HideAs
	Columns       []string // of the table
	Readers       []string // who may read the table, as GRANT names them; for a view
	Invoker       bool     // a view can have the rights of who reads it: from PostgreSQL 15 on
	Open          bool     // the table has no row security but hide's: all rows are to be seen but for those that are due
	Shut          bool     // when hide's policies go, row security goes too: nobody else has any
	condition     expiry.Condition
	gone          string // SQL that is true of rows in which a soft action's column is set; "" for a policy that deletes
}

// HideUnder hides what is due under a definition: the same condition as in its functions, at the present time. Under one that
// sets a column it hides what anybody has set, too.
func HideUnder(d *functions.Definition) *Hide {
	h := &Hide{condition: d.Condition()}
	if d.Soft == nil {
		return h
	}
	h.gone = "not " + d.Unset()
	if h.condition.Where == d.Unset() {
		h.condition.Where = "" // what is set is hidden, due or not
	}
	return h
}

// SetsColumn reports whether rows are hidden because a column of theirs is set.
func (h *Hide) SetsColumn() bool { return h.gone != "" }

// ViewName is the view's name, in the table's schema.
func (h *Hide) ViewName() string { return derived("", h.Table, "_live") }

// due is the body of the function that says whether a row is due, or gone for the application. Days and months depend on the session's time zone, and the
// policy's are UTC's: so the function has a zone of its own, and PostgreSQL calls it for every row. Where hours say the same it
// needs none, and PostgreSQL puts it into the query.
func (h *Hide) due() (expression string, inline bool) {
	c := h.condition
	if age, is := c.Kind.(*expiry.Age); is && age.After.Months == 0 && c.Where == "" && len(c.Kind.Joins()) == 0 {
		exact := *age
		exact.After = expiry.Interval{Microseconds: age.After.Exact()}
		c.Kind, inline = &exact, true
	}
	bound := c.Kind.Bound("now()").Value
	if bound == "" {
		bound = "null"
	}
	expression = "(" + c.Exact("now()", "("+bound+")") + ") is true"
	if joins := c.Kind.Joins(); len(joins) > 0 {
		using, on := c.Using()
		expression = "exists (select from " + using + " where " + on + expression + ")"
	}
	if h.gone != "" {
		expression = h.gone + " or " + expression
	}
	return expression, inline
}

// SQL makes it: one transaction, which can be repeated. It reads no row.
func (h *Hide) SQL() (string, error) { return h.fill("hide " + string(h.As)) }

// DropSQL takes it away. It needs no condition.
func (h *Hide) DropSQL() (string, error) { return h.fill("show " + string(h.As)) }

func (h *Hide) fill(name string) (string, error) {
	table := schemas.Identifier(h.Schema, h.Table)
	due, inline, reads := "", false, false
	if h.condition.Kind != nil {
		due, inline = h.due()
		reads = len(h.condition.Kind.Joins()) > 0
	}
	for _, text := range append([]string{h.Schema, h.Table, h.Owner, due}, h.Columns...) {
		if strings.Contains(text, functions.BodyQuote) || strings.ContainsAny(text, "\r\n") {
			return "", fmt.Errorf("hide rows of %s: a name contains a line break or %s, which ends a function's body: rename it", table, functions.BodyQuote)
		}
	}
	columns := make([]string, len(h.Columns))
	for i, c := range h.Columns {
		columns[i] = "t." + schemas.Identifier(c)
	}
	var sql strings.Builder
	err := scaffoldTemplate.ExecuteTemplate(&sql, name, scaffoldFacts{
		"Table": table, "Owner": h.Owner, "Function": schemas.Identifier(h.Schema, derived("lapse_due_", h.Table, "")), "Due": due, "Gone": h.SetsColumn(), "Inline": inline,
		"Reads": reads, "View": schemas.Identifier(h.Schema, h.ViewName()), "Columns": strings.Join(columns, ", "),
		"Readers": h.Readers, "Invoker": h.Invoker, "Mark": HideMark, "Open": h.Open, "Shut": h.Shut, "Row": schemas.Identifier(h.Table) + ".*",
	})
	if err != nil {
		return "", fmt.Errorf("hide rows of %s: %w", table, err)
	}
	return sql.String(), nil
}
