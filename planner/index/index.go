package index

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/schemas"
)

// Advice is a missing index, and how to make it.
type Advice struct {
	Problem string // the consequence of not having it
	Steps   []Step // statements that run as they are, in this order, outside a transaction
}

// String is the problem and the statements: a single one on the same line, several on lines of their own.
func (a Advice) String() string {
	if len(a.Steps) == 1 {
		return a.Problem + ": " + a.Steps[0].SQL + ";"
	}
	lines := []string{a.Problem + ":"}
	for _, s := range a.Steps {
		lines = append(lines, "      "+s.SQL+";")
	}
	return strings.Join(lines, "\n")
}

// leafIndex is the best index of a leaf for finding due rows, if it has one.
type leafIndex struct {
	Leaf  database.Relation
	Index string // "" for none
	// Whole says that the key follows the column in the index: rows with one timestamp come in the cursor's order.
	Whole bool
}

// Found are the indexes of a policy's leaves.
type Found struct {
	Name     string // the one that serves, named for the first leaf; "" if there is none or not on every leaf
	Warnings []string
	ByWhere  bool    // it has only the rows that meet where, on every leaf
	Sparse   bool    // it has only the rows with a ttl, on every leaf, or is made so
	None     *Advice // a leaf has none that serves
	Stale    *Advice // of a soft policy: all have one, and one of these contains rows set long ago, or lacks the key
	Better   *Advice // all have one, and one of them lacks the key: an advice, and no warning
}

// Around is what was found around a table's deletions: where foreign keys delete too, warnings of the pace and of foreign keys, and the indexes.
type Around struct {
	Cascades []database.Relation
	Warnings []string
	Indexes  *Found // nil: not read, or not as a plan names them
}

// wantedIndex describes the index that finds a policy's due rows in their order.
type wantedIndex struct {
	first     string // the column, "" for an expression
	collation string // "" for whichever it has
	term      normal // what it begins with
	rest      []string
	body      string
	made      string   // the body of one that apply makes, if it is another
	sparse    normal   // a predicate that an index may have if the statements have it too: see expiry.TTL
	predicate []normal // predicates that a partial index may have and still contain every candidate
	where     []normal // the policy's where: a partial index may have any part of it as its predicate
	unset     normal   // of a soft policy: an index without this predicate contains rows set long ago
}

// wantIndex says which index serves a definition; false for none.
func wantIndex(d *functions.Definition) (wantedIndex, bool) {
	index := d.Expire.Index()
	w := wantedIndex{first: index.Column, collation: index.Collation, rest: []string{}}
	begin := "(" + index.Expression + ")"
	switch {
	case index.Column != "":
		begin = schemas.Identifier(index.Column)
		w.predicate = append(w.predicate, normalise(begin+" is not null"))
	case index.Expression == "":
		return w, false
	}
	w.term = normalise(begin)
	columns := []string{begin + collate(index)}
	if index.Table.OID != 0 {
		for _, name := range index.Rest {
			w.rest, columns = append(w.rest, name), append(columns, schemas.Identifier(name))
		}
		w.body = "(" + strings.Join(columns, ", ") + ")"
		return w, true
	}
	for _, k := range d.Key { // the columns that the cursor compares after the first, as far as an index can have that order
		if !k.Plain {
			break
		}
		if k.Name != index.Column {
			w.rest = append(w.rest, k.Name)
			columns = append(columns, schemas.Identifier(k.Name))
		}
	}
	w.body = "(" + strings.Join(columns, ", ") + ")"
	if d.Soft == nil {
		w.sparse = normalise(index.Sparse)
	}
	predicate := index.Predicate
	if d.Soft != nil {
		is := schemas.Identifier(d.Soft.Name) + " " + strings.ToLower(d.IsUnset())
		w.unset = normalise(is)
		w.predicate = append(w.predicate, w.unset)
		if predicate != "" {
			predicate += " and "
		}
		predicate += is
	}
	if predicate != "" {
		w.body += " where " + predicate
	}
	w.predicate = append(w.predicate, conjuncts(index.Predicate)...)
	w.where = conjuncts(d.Condition().Where)
	return w, true
}

// fits reports whether an index serves, and whether the key follows in it. byWhere asks for an index with only the rows that meet where: if it had
// only half of the where, a batch could read any number of rows that the other half excludes. sparse asks for one with only the rows with a ttl.
func (w *wantedIndex) fits(c *candidate, byWhere, sparse bool) (serves, whole bool) {
	if len(c.Columns) == 0 || c.Columns[0] != w.first || w.first == "" && normalise(c.First) != w.term || w.collation != "" && c.Collation != w.collation {
		return false, false
	}
	asked := conjuncts(predicateOf(c.Definition))
	fresh := w.unset == "" || slices.Contains(asked, w.unset)
	if byWhere {
		if len(w.where) == 0 {
			return false, false
		}
		for _, part := range w.where {
			at := slices.Index(asked, part)
			if at < 0 {
				return false, false
			}
			asked = slices.Delete(asked, at, at+1)
		}
	}
	if sparse {
		at := slices.Index(asked, w.sparse)
		if w.sparse == "" || at < 0 {
			return false, false
		}
		asked = slices.Delete(asked, at, at+1)
	}
	for _, part := range asked {
		if !slices.Contains(w.predicate, part) {
			return false, false
		}
	}
	following := c.Columns[1:]
	return true, fresh && c.OneWay && len(following) >= len(w.rest) && slices.Equal(following[:len(w.rest)], w.rest)
}

// Find looks for the index that serves on each leaf. The advice about a missing one is the last warning. prefix begins the names of missing indexes.
func Find(ctx context.Context, q database.Querier, d *functions.Definition, leaves []database.Relation, prefix string) (found Found, err error) {
	index := d.Expire.Index()
	if index.Warning != "" {
		found.Warnings = append(found.Warnings, index.Warning)
	}
	w, wanted := wantIndex(d)
	if index.Table.OID != 0 {
		leaves = []database.Relation{{OID: index.Table.OID, Name: index.Table.Name}}
	}
	if !wanted || len(leaves) == 0 {
		return found, nil
	}
	tree, err := treeOf(ctx, q, leaves[0].OID, true)
	if err != nil {
		return found, err
	}
	tree.want(w.body, prefix)
	if prefix == MadePrefix && w.sparse != "" {
		w.made = w.body + " where " + index.Sparse
	}
	all, err := tree.served(ctx, q, &w, leaves, &found)
	if err != nil {
		return found, err
	}
	var weak []string
	for _, f := range all {
		switch {
		case f.Index == "":
			tree.lacks[f.Leaf.OID] = true
		case !f.Whole:
			weak = append(weak, f.Index)
		}
		if found.Name == "" {
			found.Name = f.Index
		}
	}
	if len(tree.nodes) > 1 || len(tree.lacks)+len(weak) > 0 { // a plain table that has its index needs no step
		if err := tree.load(ctx, q); err != nil {
			return found, err
		}
	}
	if steps := tree.steps(); len(steps) > 0 {
		found.None = &Advice{Problem: w.problem(index, tree, leaves), Steps: steps}
		found.Warnings = append(found.Warnings, found.None.String())
	}
	if len(tree.lacks) > 0 {
		found.Name = ""
	} else if len(weak) > 0 {
		tree.all()
		w.improve(&found, index, weak, tree.steps())
	}
	return found, nil
}

// improve says what a better index would gain. Rows that a soft policy has set pile up, and every look reads them again: that is a warning. Having
// to sort rows of one instant is not: most tables have just such an index, and it serves.
func (w *wantedIndex) improve(found *Found, index expiry.Index, weak []string, steps []Step) {
	if w.unset == "" {
		found.Better = &Advice{Steps: steps, Problem: fmt.Sprintf(
			"%s serves; one with the key in it too would spare every batch the sorting of rows with one and the same %s", some(weak), first(index))}
		return
	}
	found.Stale = &Advice{Steps: steps, Problem: fmt.Sprintf(
		"index %s has rows that are set already, past which every look reads, or lacks the key; one with the key and without them serves better", some(weak))}
	found.Warnings = append(found.Warnings, found.Stale.String())
}

// problem is the consequence of not having the index.
func (w *wantedIndex) problem(index expiry.Index, tree *tree, leaves []database.Relation) string {
	var none []string
	for _, l := range leaves {
		if tree.lacks[l.OID] {
			none = append(none, l.Name)
		}
	}
	if len(none) == 0 {
		return fmt.Sprintf("the index on %s is not whole: it does not have the indexes of all partitions yet", tree.nodes[0].Name)
	}
	return fmt.Sprintf("no index on %s begins with %s, so that every batch reads the whole of it", some(none), first(index))
}

// first is the beginning of the index, for a person.
func first(index expiry.Index) string {
	if index.Column != "" {
		return index.Column + collate(index)
	}
	return "what says when a row is due"
}

// collate is the collation of the index's first column, as written in the index.
func collate(index expiry.Index) string {
	if index.Collation == "" {
		return ""
	}
	return " collate " + schemas.Identifier(index.Collation)
}

// some lists a few names and counts the others.
func some(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
