package expiry

import "context"

// Kind says when a row is due, with the values of one policy. In its SQL t is the policy's table or a leaf of it.
type Kind interface {
	// Resolve finds the columns that the entry names, and notes their numbers and types.
	Resolve(ctx context.Context, db DB, t Table) ([]Problem, error)
	// Columns are the columns of the policy's table that the kind reads. lapse.same_table compares the table with them.
	Columns() []Column
	// Recall is the kind with the numbers and types that former had; nil if former is of another kind or reads other columns.
	Recall(former Kind) Kind
	// MoreThan reports whether a row of the same table can be due that is not due under former. It returns false only if that is certain.
	MoreThan(former Kind) bool
	// Fields show the kind to a person. Each of them goes into the functions' text.
	Fields() []Field

	// Bound is a limit that an index can use; zero if there is none.
	Bound(cutoff string) Bound
	// Due is the exact condition. It never raises an error. bound is the SQL of the bound's value.
	Due(cutoff, bound string) string
	// Instant is what rows are ordered by, as an instant.
	Instant() string
	// Order is what batches are ordered by, before the table's key; zero for the key alone. A kind without a bound is best
	// ordered by the key: the rows are walked in its index.
	Order() Order
	// Joins are further relations that Due reads. Their rows are locked with the row, or before it.
	Joins() []Join
	// Index says which index serves.
	Index() Index
	// Scaffold is the SQL that makes what the kind needs beside the table, "" for nothing.
	Scaffold(table string) string
}

// Table is the policy's table.
type Table struct {
	OID  uint32
	Name string // schema.table, quoted where SQL wants it
}

// Column is a column as lapse.policy keeps it.
type Column struct {
	Name   string     `json:"name"`
	Number int16      `json:"number"` // in the table: another column of that name is another column
	Type   ColumnType `json:"type,omitempty"`
	Means  Meaning    `json:"means,omitempty" db:"-"` // of what where and expression read
}

// Bound is a limit on a raw column: every due row has Column <= Value.
type Bound struct {
	Column string // SQL
	Type   string // of the value; it need not be the column's
	Value  string // SQL, computed once per call
	// Floor is a lower limit on the column, in SQL, that every due row meets: it leaves out what sorts below all instants; "" for none.
	Floor string
	// Also is a further condition, in SQL, that every due row meets and an index can use; "" for none. Neither raises.
	Also string
	// Exact: every row within the bound is due, except rows with instants before 4713 BC, which are rare.
	Exact bool
	// Settled is an interval, in SQL: rows further within the bound than that are due, or never will be; "" if not known.
	Settled string
	// OutOfRange is what is wrong with the entry if PostgreSQL cannot compute the value.
	OutOfRange Problem
}

// IsZero reports whether there is no bound.
func (b Bound) IsZero() bool { return b.Column == "" }

// condition is true of the rows within the bound; value is SQL.
func (b Bound) condition(value string) string {
	sql := b.Column + " <= " + value
	for _, further := range []string{b.Floor, b.Also} {
		if further != "" {
			sql += " and " + further
		}
	}
	return sql
}

// Order is an expression that batches are ordered by.
type Order struct {
	Column string // its name, if it is a column of the policy's table
	SQL    string
	Cast   string // the type to read its text back as
}

// Join is a relation in addition to the policy's table.
type Join struct {
	Relation string // schema.table, quoted where SQL wants it
	OID      uint32
	Alias    string
	On       string // SQL
	// OnRow is On, written so that an index leads from a row of the policy's table to the relation's rows, and no index of the table is of use.
	OnRow   string
	Refers  string   // SQL, true of a row c of pg_constraint whose columns are those of On in the order of Key
	Columns []Column // that are read; lapse.same_table compares the relation with them
	Key     []Order  // its primary key: batches are ordered by it after the kind's order, and not by the table's key
}

// Index says which index serves a kind.
type Index struct {
	Table      Table    // whose index it is; zero for the policy's table
	Rest       []string // of Table: the columns that follow
	Column     string   // the column of the policy's table that it begins with; "" if no column of the table does
	Collation  string   // of what it begins with, "" for the column's or the expression's own
	Expression string   // SQL over the table's bare columns that it begins with where Column is ""; immutable
	Predicate  string   // SQL of a partial index's condition, "" for all rows; the bound or the due test implies it
	Sparse     string   // SQL of a partial index's condition which all due rows meet, and which a TTL that is Sparse asks for; "" for none
	Warning    string   // what no index can help, "" for nothing
}

// Field is a line of the difference between two versions.
type Field struct{ Name, Value string }

// Problem is something wrong with an entry, for the person who wrote it.
type Problem struct {
	Key  string // of the entry, "" for the entry itself
	Text string
}

// Entry is the policy file's "expire", as it was written: texts by key.
type Entry map[string]string

// family describes a kind without values.
type family struct {
	name  string   // on record: "" for the first kind
	keys  []string // that an entry may have
	marks []string // those of these keys that tell this kind from others; none: the kind that nothing else says
	check func(Entry) []Problem
	read  func(context.Context, DB, Entry) (Kind, []Problem, error)
	load  func([]byte) (Kind, error)
}
