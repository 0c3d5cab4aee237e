package expiry

import (
	"fmt"
	"slices"
	"strings"

	"lapse/planner/expression"
	"lapse/schemas"
)

// Condition is the condition that pick, delete, survey and plan share: a row is due, and where holds. In its SQL t is the
// policy's table or a leaf of it. lapse.held adds that no hold covers the row.
type Condition struct {
	Kind  Kind
	Where string   // SQL over the row's own columns, "" for no further condition
	Reads []Column // the columns that Where reads
	// Indexed: the index in use has only the rows that meet Where, so a search for rows must contain Where.
	Indexed bool
	// Unset is the part of Where that a soft action has not set its column, "" for no such action. It never raises an error, and excludes
	// the rows that pile up. So a search for rows contains it, and the index may have only the remaining rows.
	Unset string
}

// Exact is the whole condition. No value raises in it, but for what the policy's author wrote.
func (c Condition) Exact(cutoff, bound string) string {
	parts := []string{c.Kind.Due(cutoff, bound)}
	if c.Where != "" {
		parts = append(parts, "("+c.Where+")")
	}
	return strings.Join(parts, " and ")
}

// Narrow is the part of the condition that an index can use, "" for none.
func (c Condition) Narrow(cutoff, bound string) string {
	return c.narrow(c.Kind.Bound(cutoff), bound)
}

// NarrowAbove is Narrow without the bound's floor, which is the second result, "" for none. A search above a due row needs no floor, and to
// guess how many rows lie above one, PostgreSQL reads the beginning of the index, where rows were deleted.
func (c Condition) NarrowAbove(cutoff, bound string) (narrow, floor string) {
	b := c.Kind.Bound(cutoff)
	floor, b.Floor = b.Floor, ""
	return c.narrow(b, bound), floor
}

func (c Condition) narrow(b Bound, bound string) string {
	var parts []string
	if !b.IsZero() {
		parts = append(parts, b.condition(bound))
	}
	switch {
	case c.Indexed:
		parts = append(parts, "("+c.Where+")")
	case c.Unset != "" && len(c.Kind.Joins()) == 0:
		parts = append(parts, c.Unset)
	}
	return strings.Join(parts, " and ")
}

// Certain reports whether all rows within Narrow are due. If not, a batch must bound how many of them it checks: millions may be within it
// and not due.
func (c Condition) Certain() bool {
	return (c.Where == c.Unset || c.Indexed) && len(c.Kind.Joins()) == 0 && c.Kind.Bound("now()").Exact
}

// MoreThan reports whether a row can meet c that does not meet former, apart from holds. It returns false only if that is certain.
func (c Condition) MoreThan(former Condition) bool {
	return c.Kind.MoreThan(former.Kind) || !c.asksFor(former)
}

// asksFor reports whether a row that meets Where certainly meets the former's Where: c has all parts of it, about the same columns, and
// perhaps more.
func (c Condition) asksFor(former Condition) bool {
	if former.Where == "" {
		return true
	}
	for _, column := range former.Reads {
		if !slices.ContainsFunc(c.Reads, column.same) {
			return false
		}
	}
	parts := expression.Conjuncts(c.Where)
	for _, part := range expression.Conjuncts(former.Where) {
		if !slices.Contains(parts, part) {
			return false
		}
	}
	return true
}

// From is the FROM of the condition: a relation, given as SQL, and the relations joined to it.
func (c Condition) From(relation string) string {
	sql := relation + " as t"
	for _, j := range c.Kind.Joins() {
		sql += "\n  join " + j.Relation + " as " + j.Alias + " on " + j.On
	}
	return sql
}

// Candidates is the FROM of a search in order: as From, but a joined relation comes first, including its rows that have none in relation.
func (c Condition) Candidates(relation string) string {
	joins := c.Kind.Joins()
	if len(joins) == 0 {
		return c.From(relation)
	}
	sql := joins[0].Relation + " as " + joins[0].Alias + "\n  left join " + relation + " as t on " + joins[0].On
	for _, j := range joins[1:] {
		sql += "\n  left join " + j.Relation + " as " + j.Alias + " on " + j.On
	}
	return sql
}

// Using is From for a DELETE: the relations in addition to the target, and how they are joined.
func (c Condition) Using() (relations, on string) {
	var names, conditions []string
	for _, j := range c.Kind.Joins() {
		names, conditions = append(names, j.Relation+" as "+j.Alias), append(conditions, j.On+" and ")
	}
	return strings.Join(names, ", "), strings.Join(conditions, "")
}

// UsingRows is Using where the target's rows are given by their addresses. For a plain join PostgreSQL may read the whole target in the order of
// its key instead, or from the joined relation, with the addresses as a filter.
func (c Condition) UsingRows() (relations, on string) {
	relations, _ = c.Using()
	for _, j := range c.Kind.Joins() {
		on += j.OnRow + " and "
	}
	return relations, on
}

// UsingLocked is Using where the joined relation's rows are given by their addresses, which are SQL: it locks each of them, waits for it if need
// be, and joins it as it is then; a row that has moved in its file meanwhile may be left out. The kind must have a joined relation.
func (c Condition) UsingLocked(addresses string) (relation, on string) {
	j := c.Kind.Joins()[0]
	var columns []string
	for _, read := range j.Columns {
		columns = append(columns, j.Alias+"."+schemas.Identifier(read.Name))
	}
	return fmt.Sprintf("(select %[1]s from %[2]s as %[3]s where %[3]s.ctid = any (%[4]s) %[5]s) as %[3]s",
		strings.Join(columns, ", "), j.Relation, j.Alias, addresses, c.strength()), j.On
}

// strength is the lock that a batch takes on rows. An action that sets a column, which is in no key, needs a weaker one, which lets other
// sessions insert rows that refer to the row.
func (c Condition) strength() string {
	if c.Unset != "" {
		return "for no key update"
	}
	return "for update"
}

// Lock is the locking clause of the pick: it locks every row that the condition reads.
func (c Condition) Lock() string {
	lock, joins := c.strength(), c.Kind.Joins()
	if len(joins) == 0 {
		return lock + " skip locked"
	}
	aliases := []string{"t"}
	for _, j := range joins {
		aliases = append(aliases, j.Alias)
	}
	return lock + " of " + strings.Join(aliases, ", ") + " skip locked"
}
