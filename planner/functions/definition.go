package functions

import (
	"lapse/planner/expiry"
	"lapse/schemas"
)

// KeyColumn is one column of the table's replica identity. The key names a row, and orders rows that are due at the same instant.
type KeyColumn struct {
	Name   string `json:"name"`
	Number int16  `json:"number"` // its number in the table, which differs if the column is made again
	Type   string `json:"type"`   // as format_type writes it, schema-qualified where needed
	// Plain: the type's own ordering can be written without its schema's operators, and its values survive being written as text and read
	// back. Other types are ordered by their text, which is a total order too, but not the index's.
	Plain bool `json:"plain"`
}

// Definition is everything that the text of a policy version's functions depends on. Two equal definitions give the same text,
// byte for byte.
type Definition struct {
	ID         schemas.PolicyID
	Version    schemas.PolicyVersion
	Name       schemas.PolicyName
	Table      string // schema.table, quoted as in SQL
	Expire     expiry.Kind
	Where      *Where // nil for no further condition
	Key        []KeyColumn
	Batch      int             // the largest batch
	TableOwner uint32          // the role whose deleter owns the functions
	Slices     []expiry.Column // the columns that hash slices are computed from; none: a leaf is one shard
	SearchPath string          // the search_path of trusted triggers, "" for that of the functions
	Action     string          // what happens to due rows: a policyfile.Action's kind, "" for delete
	Soft       *expiry.Column  // the column that the action sets; nil if it deletes
	Floors     []Floor         // the floors that it must respect; the text does not depend on them
}

// Where is the policy's where as PostgreSQL understood it. See package expression.
type Where struct {
	SQL     string          `json:"sql"`  // over t, the policy's table or a leaf of it
	Bare    string          `json:"bare"` // as PostgreSQL writes the predicate of an index
	Columns []expiry.Column `json:"columns"`
	// Indexed: the index in use has only the rows that meet the condition. PostgreSQL uses such an index only for a statement that contains
	// the condition.
	Indexed bool `json:"indexed,omitempty"`
}

// Condition is the condition that all SQL about the policy's rows uses.
func (d *Definition) Condition() expiry.Condition {
	c := expiry.Condition{Kind: d.Expire}
	if d.Where != nil {
		c.Where, c.Reads, c.Indexed = d.Where.SQL, d.Where.Columns, d.Where.Indexed
	}
	if d.Soft != nil {
		c.Unset = d.Unset()
	}
	return c
}

// Columns are the columns that the functions were made for: those that the expiry and where read, with their types, and name and number of
// the key's. lapse.same_table compares the table with them.
func (d *Definition) Columns() []expiry.Column {
	all := d.Expire.Columns()
	for _, k := range d.Key {
		all = append(all, expiry.Column{Name: k.Name, Number: k.Number})
	}
	all = append(all, d.Slices...)
	if d.Where != nil {
		all = append(all, d.Where.Columns...)
	}
	return all
}

// LockColumn is a column of the table that the deleter may update, as the right to lock rows (FOR UPDATE) requires. It is the one that a
// soft action sets.
func (d *Definition) LockColumn() string {
	if d.Soft != nil {
		return d.Soft.Name
	}
	return d.Columns()[0].Name
}

// Relation is the record of a relation that the condition reads in addition to the policy's table.
type Relation struct {
	OID     uint32          `json:"oid"`
	Name    string          `json:"name"`
	Columns []expiry.Column `json:"columns"`
}

// Joined are the relations that the condition reads in addition to the policy's table.
func (d *Definition) Joined() []Relation {
	all := []Relation{}
	for _, j := range d.Expire.Joins() {
		all = append(all, Relation{j.OID, j.Relation, j.Columns})
	}
	return all
}

// Order is the order in which a batch finds rows: the expiry's order alone if it has one, because the index has that order. If a relation
// leads, its key follows. Without an order it is the key, and batches read the table's file.
func (d *Definition) Order() []expiry.Order {
	first, all := d.Expire.Order(), []expiry.Order(nil)
	if first.SQL != "" {
		all = append(all, first)
	}
	if joins := d.Expire.Joins(); len(joins) > 0 && len(joins[0].Key) > 0 {
		return append(all, joins[0].Key...)
	} else if d.Ordered() {
		return all
	}
	for _, k := range d.Key {
		if k.Name == first.Column {
			continue
		}
		if k.Plain {
			all = append(all, expiry.Order{Column: k.Name, SQL: "t." + schemas.Identifier(k.Name), Cast: k.Type})
		} else {
			all = append(all, expiry.Order{Column: k.Name, SQL: "(t." + schemas.Identifier(k.Name) + `)::text collate "C"`, Cast: `text collate "C"`})
		}
	}
	return all
}

// Ordered reports whether batches follow the order of what the table's rows expire by.
func (d *Definition) Ordered() bool { return len(d.Expire.Joins()) == 0 && d.Expire.Order().SQL != "" }

// Text is the where for a person, "" for none.
func (w *Where) Text() string {
	if w == nil {
		return ""
	}
	return w.SQL
}

// ColumnTexts are the columns of a where, for a person.
func (w *Where) ColumnTexts() string {
	if w == nil {
		return ""
	}
	return expiry.Texts(w.Columns)
}
