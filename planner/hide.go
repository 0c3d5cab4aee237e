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
	HideView   HideAs = "view"   // a view without them, next to the table
	HidePolicy HideAs = "policy" // row security on the table itself
)

// HideMark is the comment on what hide made, and so may remove.
const HideMark = "made by lapse hide"

// Hide hides the rows of a table from the moment they are due under a policy. Its SQL is a pure function of it, which includes the table as it
// was found.
type Hide struct {
	Schema, Table string
	Owner         string // the role that everything belongs to
	As            HideAs
	Columns       []string // of the table
	Readers       []string // who may read the table, as GRANT names them; for a view
	Invoker       bool     // a view can run with its reader's rights: from PostgreSQL 15 on
	Open          bool     // the table has no other row security: all rows that are not due are visible
	Shut          bool     // row security is disabled with hide's policies: there are no others
	condition     expiry.Condition
	gone          string // SQL that is true of rows in which a soft action's column is set; "" for a policy that deletes
}

// HideUnder hides what is due under a definition: the same condition as in its functions, at the present time. If the definition sets a column,
// it hides rows in which the column is set, by anyone.
func HideUnder(d *functions.Definition) *Hide {
	h := &Hide{condition: d.Condition()}
	if d.Soft == nil {
		return h
	}
	h.gone = "not " + d.Unset()
	if h.condition.Where == d.Unset() {
		h.condition.Where = "" // rows that are set are hidden, due or not
	}
	return h
}

// SetsColumn reports whether rows are hidden because the policy's column is set in them.
func (h *Hide) SetsColumn() bool { return h.gone != "" }

// ViewName is the view's name, in the table's schema.
func (h *Hide) ViewName() string { return derived("", h.Table, "_live") }

// due is the body of the function that says whether a row is due, or already set. Days and months depend on the session's time zone, but the
// policy's are UTC's. So the function sets its own time zone, and PostgreSQL must call it for every row. With hours the zone does not matter:
// the function sets none, and PostgreSQL inlines it into the query.
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

// SQL is the script that hides: one transaction, which can be repeated. It reads no row.
func (h *Hide) SQL() (string, error) { return h.fill("hide " + string(h.As)) }

// DropSQL removes what SQL made. It needs no condition.
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
