package hold

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/internal/yamldoc"
	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/planner/expression"
	"lapse/schemas"
)

// Request says which rows of a table are to be held: those with Keys, or those where Where is not false.
type Request struct {
	Table   string     // a table or a partition, schema.table as in SQL
	Columns []string   // the columns of the keys; none: the table's replica identity
	Keys    [][]string // each has a value for each column; of one column, several keys
	Where   string
}

// Hold is a request that was compared with the database. Its SQL is written from the parsed request: none of the request's text gets into a
// statement.
type Hold struct {
	TableOID uint32
	Table    string
	Columns  []expiry.Column
	Keys     [][]string // as their types write them, sorted, each once; nil for a condition
	Where    string     // SQL over t; "" for keys
	Warnings []string

	bases []string   // the columns' types in SQL, what domains are over
	given [][]string // Keys in the order in which they were given, each as often
}

// mostKeys is the largest number of keys of one hold: each batch reads all of them.
const mostKeys = 100_000

// Resolve compares a request with the database. It changes nothing, and runs no code of the table's owner: the input functions of PostgreSQL's own
// types read the keys, and a condition is checked as a policy's where is. A problem is for the person who asked, and names no key. The session's
// role needs no right on the table.
func Resolve(ctx context.Context, db database.DB, request Request) (h *Hold, problem string, err error) {
	h = &Hold{}
	err = database.Pinned(ctx, db, func(tx pgx.Tx) error {
		var t database.Table
		if t, problem, err = findHeld(ctx, tx, request.Table); err != nil || problem != "" {
			return err
		}
		h.TableOID, h.Table = t.OID, t.Name
		if request.Where == "" {
			problem, err = h.readKeys(ctx, tx, request)
			return err
		}
		read, wrong, err := expression.Read(ctx, tx, t.OID, request.Where, expression.Boolean)
		if err != nil || wrong != "" {
			problem = "where: " + wrong
			return err
		}
		h.Where = read.SQL
		for _, c := range read.Columns {
			h.Columns = append(h.Columns, expiry.Column{Name: c.Name, Number: c.Number, Type: expiry.ColumnType(c.Type)})
		}
		for _, warning := range read.Warnings {
			h.Warnings = append(h.Warnings, "where: "+warning)
		}
		return nil
	})
	if err != nil {
		return nil, "", fmt.Errorf("compare the hold with the database: %w", err)
	}
	return h, problem, nil
}

// findHeld finds a table that can have a hold: a policy's, one that refers to it, or a partition.
func findHeld(ctx context.Context, tx pgx.Tx, written string) (database.Table, string, error) {
	t, problem, err := database.FindTable(ctx, tx, written)
	if err != nil || t.OID == 0 {
		return t, problem, err
	}
	switch {
	case t.System:
		return t, fmt.Sprintf("%s belongs to the system", t.Name), nil
	case t.Kind != "r" && t.Kind != "p":
		return t, fmt.Sprintf("%s is not a table: name the table that its rows come from", t.Name), nil
	case t.Persistence == "t":
		return t, fmt.Sprintf("%s is a temporary table", t.Name), nil
	}
	return t, "", nil
}

// heldColumnsSQL finds columns $2 of table $1, or those of its replica identity if $2 is empty. A type has a name here if it, or the type under its
// domain, is PostgreSQL's own, writes each value in one way, and has an equality that can be hashed.
const heldColumnsSQL = `
	select a.attname::text, a.attnum, format_type(a.atttypid, null),
	       case when b.oid in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'oid'::regtype, 'numeric'::regtype, 'text'::regtype,
	                           'varchar'::regtype, 'bpchar'::regtype, 'uuid'::regtype, 'date'::regtype, 'timestamp'::regtype,
	                           'timestamptz'::regtype, 'bytea'::regtype, 'inet'::regtype)
	            then (select y.typname::text from pg_type y where y.oid = b.oid) else '' end
	  from pg_attribute a
	  left join lateral (
	    select array_agg(m.attname::text order by k.n) as names
	      from pg_class c
	      join pg_index i on i.indrelid = c.oid and i.indisvalid
	       and case c.relreplident when 'd' then i.indisprimary when 'i' then i.indisreplident else false end
	     cross join lateral unnest(i.indkey::int2[]) with ordinality k(attnum, n)
	      join pg_attribute m on m.attrelid = c.oid and m.attnum = k.attnum
	     where c.oid = $1 and k.n <= i.indnkeyatts
	  ) k on true
	  join lateral (
	    with recursive base(oid, next) as (
	      select t.oid, t.typbasetype from pg_type t where t.oid = a.atttypid
	      union all
	      select u.oid, u.typbasetype from base join pg_type u on u.oid = base.next
	    )
	    select base.oid from base where base.next = 0
	  ) b on true
	 where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
	   and a.attname = any (case when cardinality($2::text[]) > 0 then $2::text[] else k.names end)
	 order by array_position(case when cardinality($2::text[]) > 0 then $2::text[] else k.names end, a.attname::text)`

// heldColumn is a column of keys.
type heldColumn struct {
	Name   string
	Number int16
	Type   string
	Base   string // the name of PostgreSQL's own type, "" for one that keys cannot be of
}

// readKeys finds the columns, and has PostgreSQL read the keys.
func (h *Hold) readKeys(ctx context.Context, tx pgx.Tx, request Request) (problem string, err error) {
	columns, err := database.Collect[heldColumn](ctx, tx, heldColumnsSQL, h.TableOID, append([]string{}, request.Columns...))
	if err != nil {
		return "", fmt.Errorf("find the columns of keys: %w", err)
	}
	for i, wanted := range request.Columns {
		if slices.Contains(request.Columns[:i], wanted) {
			return fmt.Sprintf("column %s is named twice", yamldoc.Quote(wanted)), nil
		}
		if !slices.ContainsFunc(columns, func(c heldColumn) bool { return c.Name == wanted }) {
			return fmt.Sprintf("%s has no column %s", h.Table, yamldoc.Quote(wanted)), nil
		}
	}
	if len(columns) == 0 {
		return h.Table + " has no replica identity that names its rows: say with --column which column the keys are values of", nil
	}
	for _, c := range columns {
		if c.Base == "" {
			return fmt.Sprintf("column %s is of type %s, which keys cannot be given for: hold its rows by --where", schemas.Identifier(c.Name), c.Type), nil
		}
		h.Columns = append(h.Columns, expiry.Column{Name: c.Name, Number: c.Number, Type: expiry.ColumnType(c.Type)})
		h.bases = append(h.bases, "pg_catalog."+schemas.Identifier(c.Base))
	}
	flat, problem := flatKeys(columns, request.Keys)
	if problem != "" {
		return problem, nil
	}
	return h.parseKeys(ctx, tx, flat)
}

// flatKeys are the values of all keys in one list.
func flatKeys(columns []heldColumn, keys [][]string) (flat []string, problem string) {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name
	}
	if len(columns) == 1 {
		var single [][]string
		for _, values := range keys {
			for _, value := range values {
				single = append(single, []string{value})
			}
		}
		keys = single
	}
	switch {
	case len(keys) == 0:
		return nil, "there are no keys"
	case len(keys) > mostKeys:
		return nil, fmt.Sprintf("there are %d keys, and %d are the most that one hold can have: hold the rows by --where, or by several holds", len(keys), mostKeys)
	}
	for n, key := range keys {
		if len(key) != len(columns) {
			return nil, fmt.Sprintf("key number %d has %d values, and a key is (%s)", n+1, len(key), strings.Join(names, ", "))
		}
		if slices.ContainsFunc(key, func(v string) bool { return strings.ContainsRune(v, 0) || strings.ToValidUTF8(v, "") != v }) {
			return nil, fmt.Sprintf("key number %d is no text: it has a zero byte, or is not UTF-8", n+1)
		}
		flat = append(flat, key...)
	}
	return flat, ""
}

// parseKeys lets the types' input functions read the keys, and keeps the keys as the types write them.
func (h *Hold) parseKeys(ctx context.Context, tx pgx.Tx, flat []string) (problem string, err error) {
	width := len(h.Columns)
	parsed, err := h.castKeys(ctx, tx, flat)
	if expiry.IsDataException(err) {
		wrong := 0 // so many keys at the beginning can be read
		for step := len(flat) / width; step > 0; step /= 2 {
			for wrong+step <= len(flat)/width {
				_, err := h.castKeys(ctx, tx, flat[wrong*width:(wrong+step)*width])
				if err != nil && !expiry.IsDataException(err) {
					return "", err
				}
				if err != nil {
					break
				}
				wrong += step
			}
		}
		types := make([]string, width)
		for i, c := range h.Columns {
			types[i] = string(c.Type)
		}
		return fmt.Sprintf("key number %d cannot be read as %s", wrong+1, strings.Join(types, ", ")), nil
	}
	if err != nil {
		return "", err
	}
	h.given = slices.Clone(parsed)
	slices.SortFunc(parsed, slices.Compare)
	h.Keys = slices.CompactFunc(parsed, slices.Equal)
	return "", nil
}

// castKeys reads the keys, and returns them in their types' spelling.
func (h *Hold) castKeys(ctx context.Context, tx pgx.Tx, flat []string) (keys [][]string, err error) {
	width := len(h.Columns)
	values := make([]string, width)
	for i, base := range h.bases {
		values[i] = fmt.Sprintf("(($1::text[])[k.n + %d]::%s)::text", i, base)
	}
	err = expiry.Attempt(ctx, tx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, fmt.Sprintf("select array[%s] from generate_series(1, cardinality($1::text[]), %d) k(n)", strings.Join(values, ", "), width), flat)
		if err != nil {
			return err
		}
		keys, err = pgx.CollectRows(rows, pgx.RowTo[[]string])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the keys: %w", err)
	}
	return keys, nil
}

// Condition is SQL that is true for a row t of the table, or of a leaf of it, that hold number id covers, and null or false for others. If a
// condition is null for a row, the row is held. Keys are looked up in a hash table of all of them, which a statement fills once; they are not in the
// statement's text, which the server may log.
func (h *Hold) Condition(id schemas.HoldID) string {
	if h.Where != "" {
		return "(" + h.Where + ") is not false"
	}
	columns, values := make([]string, len(h.Columns)), make([]string, len(h.Columns))
	for i, c := range h.Columns {
		columns[i], values[i] = "t."+schemas.Identifier(c.Name), fmt.Sprintf("k.key[%d]::%s", i+1, h.bases[i])
	}
	left := columns[0]
	if len(columns) > 1 {
		left = "(" + strings.Join(columns, ", ") + ")"
	}
	return fmt.Sprintf("%s operator(pg_catalog.=) any (select %s from lapse.held_keys(%d, %s) k)", left, strings.Join(values, ", "), id, schemas.CallerProof)
}

// Digest binds the published row of the hold to its content.
func (h *Hold) Digest(salt []byte) ([]byte, error) {
	var content bytes.Buffer
	encoder := json.NewEncoder(&content)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(struct {
		Columns []expiry.Column `json:"columns"`
		Keys    [][]string      `json:"keys,omitempty"`
		Where   string          `json:"where,omitempty"`
	}{h.Columns, h.Keys, h.Where}); err != nil {
		return nil, fmt.Errorf("write what is held: %w", err)
	}
	sum := sha256.Sum256(append(slices.Clone(salt), content.Bytes()...))
	return sum[:], nil
}
