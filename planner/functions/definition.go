package functions

import (
	"lapse/planner/expiry"
	"lapse/schemas"
)

// KeyColumn is one column of the table's replica identity: what names a row, and what orders rows that are due at the
// same instant.
type KeyColumn struct {
	Name   string `json:"name"`
	Number int16  `json:"number"` // in the table: another column of that name is another column
	Type   string `json:"type"`   // as format_type writes it, schema-qualified where needed
	// Plain says that the type's own ordering can be written without its schema's operators, and that a value of it
	// survives being written as text and read back. Others are ordered by their text form, which is a total order too,
	// only not the index's.
	Plain bool `json:"plain"`
}

// Definition is all that the text of a policy version's functions depends on. Two equal definitions give the same text,
// byte for byte.
type Definition struct {
	ID         schemas.PolicyID
	Version    schemas.PolicyVersion
	Name       schemas.PolicyName
	Table      string // schema.table, quoted where SQL wants it
	Expire     expiry.Kind
	Where      *Where // nil for no further condition
	Key        []KeyColumn
	Batch      int             // the largest batch
	TableOwner uint32          // the role whose deleter owns the functions
	Slices     []expiry.Column // that hash slices go by; none: a leaf is one shard
	SearchPath string          // that trusted triggers run with, "" for that of the functions
	Action     string          // what becomes of due rows: a policyfile.Action's kind, "" for delete
	Soft       *expiry.Column  // that the action sets; nil for one that deletes
	Floors     []Floor         // that its functions are held to; no text of theirs depends on it
}

// Where is the policy's where as PostgreSQL understood it. See package expression.
type Where struct {
	SQL     string          `json:"sql"`  // over t, the policy's table or a leaf of it
	Bare    string          `json:"bare"` // as PostgreSQL writes the predicate of an index
	Columns []expiry.Column `json:"columns"`
	// Indexed says that the index that serves has only the rows that meet it. PostgreSQL can use that one only where a statement
	// asks for them.
	Indexed bool `json:"indexed,omitempty"`
}

// Condition is what all SQL about the policy's rows takes.
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

// Columns are what the functions were made for: the columns that the expiry and where read, with their types, and name and
// number of the key's. lapse.same_table compares the table with them.
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

// LockColumn is a column of the table, for the right to lock its rows: FOR UPDATE wants UPDATE on one. It is the one that a soft
// action sets.
func (d *Definition) LockColumn() string {
	if d.Soft != nil {
		return d.Soft.Name
	}
	return d.Columns()[0].Name
}

// Relation is what the record has of a relation that the condition reads beside the policy's table.
type Relation struct {
	OID     uint32          `json:"oid"`
	Name    string          `json:"name"`
	Columns []expiry.Column `json:"columns"`
}

// Joined are the relations that the condition reads beside the policy's table.
func (d *Definition) Joined() []Relation {
	all := []Relation{}
	for _, j := range d.Expire.Joins() {
		all = append(all, Relation{j.OID, j.Relation, j.Columns})
	}
	return all
}

// Order is what a batch's rows are found in the order of: the expiry's order alone where it has one, which is what its index has. Where a
// relation leads, its key follows. Where there is no order it is the key, and batches go through the table's file.
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

// Ordered reports whether batches go by the order of what the table's rows expire by.
func (d *Definition) Ordered() bool { return len(d.Expire.Joins()) == 0 && d.Expire.Order().SQL != "" }

// Text is what a person sees of a where, "" for none.
func (w *Where) Text() string {
	if w == nil {
		return ""
	}
	return w.SQL
}

// ColumnTexts are those of a where, for a person.
func (w *Where) ColumnTexts() string {
	if w == nil {
		return ""
	}
	return expiry.Texts(w.Columns)
}
