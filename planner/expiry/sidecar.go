package expiry

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// Sidecar is the kind {sidecar, column, after}: a registry, which is a second table with the same primary key, says when a row is due:
// Column of its row in the registry + After <= cutoff. A row without one in the registry is never due, and a registry's row
// without a row does not matter. A batch locks the registry's row and then reads it: an update that extends a row's time either comes before
// that, or waits until the row is deleted.
//
// The columns of the two primary keys are matched by their names if these are the same, or else by their position.
type Sidecar struct {
	Kind string `json:"kind"`
	Moment
	After   Interval     `json:"after"`
	Sidecar string       `json:"sidecar"` // schema.table, quoted where SQL wants it
	OID     uint32       `json:"sidecar_oid"`
	Key     []sidecarKey `json:"sidecar_key"` // the registry's primary key, in its order
}

// sidecarKey is a column of the registry's primary key, and the one of the table's that it is matched with.
type sidecarKey struct {
	Column Column `json:"column"`
	Cast   string `json:"cast"`  // the type to read its text back as
	Plain  bool   `json:"plain"` // ordered by PostgreSQL's own order of the type; others by their text
	Of     Column `json:"of"`    // of the policy's table
}

const (
	sidecarKind  = "sidecar"
	sidecarAlias = "r"
)

func sidecarFamily() family {
	return family{
		name:  sidecarKind,
		keys:  []string{"sidecar", "column", "after", "zone"},
		marks: []string{"sidecar"},
		check: checkMoment,
		read: func(ctx context.Context, db DB, e Entry) (Kind, []Problem, error) {
			s := &Sidecar{Kind: sidecarKind, Moment: momentOf(e), Sidecar: e["sidecar"]}
			s.alias = sidecarAlias
			if e["after"] == "" {
				return s, nil, nil
			}
			after, problem, err := ReadInterval(ctx, db, e["after"])
			s.After = after
			if problem != "" {
				return s, []Problem{{"after", problem}}, err
			}
			return s, nil, err
		},
		load: func(text []byte) (Kind, error) {
			s := &Sidecar{}
			kind, err := load(text, s)
			s.alias = sidecarAlias
			return kind, err
		},
	}
}

// registry is what the catalog says of the sidecar, beside the policy's table.
type registry struct {
	Table
	Kind, Persistence                   string
	Partition, Inherits, Same, Powerful bool
	Owner, WantedOwner                  string
	KeyNames, KeyTypes, KeyCasts        []string
	KeyNumbers                          []int16
	KeyPlain, KeyOwn                    []bool
	OfNames, OfTypes                    []string
	OfNumbers                           []int16
}

// sidecarKeySQL describes the primary key of relation %s. A column is plain as planner/resolve/key.go has it; own says that equality is
// PostgreSQL's own: the functions see no other.
const sidecarKeySQL = `
	select coalesce(array_agg(a.attname::text order by k.n), '{}'), coalesce(array_agg(a.attnum order by k.n), '{}'),
	       coalesce(array_agg(format_type(a.atttypid, null) order by k.n), '{}'),
	       coalesce(array_agg(format_type(b.oid, nullif(case when t.typtype = 'd' then t.typtypmod else a.atttypmod end, -1)) order by k.n), '{}'),
	       coalesce(array_agg(b.oid in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'oid'::regtype, 'numeric'::regtype, 'bool'::regtype,
	                           'text'::regtype, 'varchar'::regtype, 'uuid'::regtype, 'date'::regtype, 'timestamp'::regtype,
	                           'timestamptz'::regtype, 'bytea'::regtype, 'inet'::regtype, 'float4'::regtype, 'float8'::regtype)
	                          and coalesce(o.collisdeterministic, true) order by k.n), '{}'),
	       coalesce(array_agg(c.opcnamespace = 'pg_catalog'::regnamespace and coalesce(o.collisdeterministic, true) order by k.n), '{}')
	  from pg_index i
	 cross join lateral unnest(i.indkey::int2[], i.indclass::oid[]) with ordinality k(attnum, class, n)
	  join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
	  join pg_opclass c on c.oid = k.class
	  join pg_type t on t.oid = a.atttypid
	  join pg_type b on b.oid = case when t.typtype = 'd' then t.typbasetype else t.oid end
	  left join pg_collation o on o.oid = a.attcollation
	 where i.indrelid = $1 and i.indisprimary and i.indisvalid and k.n <= i.indnkeyatts`

const sidecarSQL = `
	select c.oid, format('%I.%I', n.nspname, c.relname), c.relkind::text, c.relpersistence::text, c.relispartition,
	       exists (select from pg_inherits h where c.oid in (h.inhparent, h.inhrelid)), c.oid = t.oid,
	       o.rolsuper or o.rolname = 'pg_database_owner', pg_get_userbyid(c.relowner)::text, o.rolname::text
	  from pg_class t
	  join pg_roles o on o.oid = t.relowner
	  join pg_namespace n on n.nspname = $2
	  join pg_class c on c.relnamespace = n.oid and c.relname = $3
	 where t.oid = $1`

// Resolve finds the registry, its column, and how the two primary keys match.
func (s *Sidecar) Resolve(ctx context.Context, db DB, t Table) ([]Problem, error) {
	r, problem, err := findRegistry(ctx, db, t, s.Sidecar)
	if err != nil || problem != "" {
		return []Problem{{"sidecar", problem}}, err
	}
	s.Sidecar, s.OID = r.Name, r.OID
	if problem = r.unfit(t); problem == "" {
		s.Key, problem = r.match(t)
	}
	if problem != "" {
		return []Problem{{"sidecar", problem}}, nil
	}
	return s.resolve(ctx, db, r.Table)
}

// findRegistry finds the registry and both primary keys.
func findRegistry(ctx context.Context, db DB, t Table, written string) (r registry, problem string, err error) {
	var name []string
	err = Attempt(ctx, db, func(tx pgx.Tx) error { return tx.QueryRow(ctx, `select parse_ident($1)`, written).Scan(&name) })
	switch {
	case IsDataException(err) || err == nil && len(name) != 2:
		return r, "sidecar must be a table with its schema, quoted as in SQL: schema.table", nil
	case err != nil:
		return r, "", fmt.Errorf("read a table name: %w", err)
	}
	rows, err := db.Query(ctx, sidecarSQL, t.OID, name[0], name[1])
	if err == nil {
		found := false
		for rows.Next() {
			found = true
			err = rows.Scan(&r.OID, &r.Name, &r.Kind, &r.Persistence, &r.Partition, &r.Inherits, &r.Same, &r.Powerful, &r.Owner, &r.WantedOwner)
		}
		if rows.Close(); err == nil {
			err = rows.Err()
		}
		if err == nil && !found {
			near, err := SuggestTable(ctx, db, name[0], name[1])
			return r, fmt.Sprintf("there is no table %s in this database%s", written, near), err
		}
	}
	if err == nil {
		err = db.QueryRow(ctx, sidecarKeySQL, r.OID).Scan(&r.KeyNames, &r.KeyNumbers, &r.KeyTypes, &r.KeyCasts, &r.KeyPlain, &r.KeyOwn)
	}
	if err == nil {
		var casts []string
		var plain, own []bool
		err = db.QueryRow(ctx, sidecarKeySQL, t.OID).Scan(&r.OfNames, &r.OfNumbers, &r.OfTypes, &casts, &plain, &own)
	}
	if err != nil {
		return r, "", fmt.Errorf("find sidecar %s: %w", written, err)
	}
	return r, "", nil
}

// unfit says why the registry cannot be one, or "".
func (r *registry) unfit(t Table) string {
	switch {
	case r.Same:
		return "the sidecar is the policy's table: leave sidecar out"
	case r.Kind == "p" || r.Partition:
		return r.Name + " is partitioned or a partition, which a sidecar must not be in this version"
	case r.Kind != "r":
		return r.Name + " is not a table"
	case r.Persistence == "t":
		return r.Name + " is a temporary table"
	case r.Inherits:
		return r.Name + " inherits or is inherited from, which is not supported"
	case r.Powerful:
		return fmt.Sprintf("%s is owned by a superuser or the database's owner, whose tables cannot have a sidecar: give both tables to another role", t.Name)
	case r.Owner != r.WantedOwner:
		return fmt.Sprintf("%s belongs to %s and %s to %s, and deletion runs with the rights of one of them: alter table %s owner to %s",
			r.Name, schemas.Identifier(r.Owner), t.Name, schemas.Identifier(r.WantedOwner), r.Name, schemas.Identifier(r.WantedOwner))
	case len(r.KeyNames) == 0:
		return fmt.Sprintf("%s has no primary key: give it that of %s", r.Name, t.Name)
	case len(r.OfNames) == 0:
		return fmt.Sprintf("%s has no primary key, which the sidecar must share", t.Name)
	}
	return ""
}

// match says which columns of the two keys belong together.
func (r *registry) match(t Table) (key []sidecarKey, problem string) {
	if len(r.KeyNames) != len(r.OfNames) {
		return nil, fmt.Sprintf("the primary key of %s has %d columns and that of %s has %d: they must be the same", r.Name, len(r.KeyNames), t.Name, len(r.OfNames))
	}
	byName := slices.Equal(slices.Sorted(slices.Values(r.KeyNames)), slices.Sorted(slices.Values(r.OfNames)))
	for i, name := range r.KeyNames {
		of := i
		if byName {
			of = slices.Index(r.OfNames, name)
		}
		switch {
		case r.KeyTypes[i] != r.OfTypes[of]:
			return nil, fmt.Sprintf("column %s of %s is of type %s, and column %s of %s of type %s: give both the same type",
				schemas.Identifier(name), r.Name, r.KeyTypes[i], schemas.Identifier(r.OfNames[of]), t.Name, r.OfTypes[of])
		case !r.KeyOwn[i]:
			return nil, fmt.Sprintf("column %s of %s is of type %s, for which an extension or a collation decides which values are equal: a sidecar needs PostgreSQL's own types",
				schemas.Identifier(name), r.Name, r.KeyTypes[i])
		}
		key = append(key, sidecarKey{
			Column: Column{Name: name, Number: r.KeyNumbers[i], Type: ColumnType(r.KeyTypes[i])}, Cast: r.KeyCasts[i], Plain: r.KeyPlain[i],
			Of: Column{Name: r.OfNames[of], Number: r.OfNumbers[of], Type: ColumnType(r.OfTypes[of])},
		})
	}
	return key, ""
}

// Columns are those of the table's primary key.
func (s *Sidecar) Columns() []Column {
	var all []Column
	for _, k := range s.Key {
		all = append(all, k.Of)
	}
	return all
}

// Recall takes the registry and its columns from the record.
func (s *Sidecar) Recall(former Kind) Kind {
	was, same := former.(*Sidecar)
	next := *s
	if !same || s.Sidecar != was.Sidecar || !next.recall(was.Moment) {
		return nil
	}
	next.OID, next.Key = was.OID, was.Key
	return &next
}

// MoreThan is false for the same column of the same registry, and a time that is certainly no shorter.
func (s *Sidecar) MoreThan(former Kind) bool {
	was, same := former.(*Sidecar)
	return !same || s.OID != was.OID || s.reading() != was.reading() || !slices.Equal(s.Key, was.Key) || s.After.MayBeShorter(was.After)
}

// Fields are the entry's keys, and what was found.
func (s *Sidecar) Fields() []Field {
	var match []string
	for _, k := range s.Key {
		match = append(match, schemas.Identifier(k.Column.Name)+" = "+schemas.Identifier(k.Of.Name)+" "+string(k.Of.Type))
	}
	return []Field{
		{"expire.sidecar", s.Sidecar},
		{"expire.column", s.Column},
		{"expire.after", s.After.String()},
		{"expire.zone", s.Zone},
		{"sidecar's key", strings.Join(match, ", ")},
		{"column type", string(s.Type)},
		{"column number", strconv.Itoa(int(s.Number))},
	}
}

// Bound counts back from the cutoff, as Age does.
func (s *Sidecar) Bound(cutoff string) Bound { return s.age().Bound(cutoff) }

// Due is guarded as Age's is.
func (s *Sidecar) Due(cutoff, bound string) string { return s.age().Due(cutoff, bound) }

// age is the same without the table's key.
func (s *Sidecar) age() *Age { return &Age{Moment: s.Moment, After: s.After} }

// Order is the registry's column.
func (s *Sidecar) Order() Order { return Order{SQL: s.raw(), Cast: string(s.Type)} }

// Joins are the registry.
func (s *Sidecar) Joins() []Join {
	j := Join{Relation: s.Sidecar, OID: s.OID, Alias: sidecarAlias, Columns: []Column{s.onRecord()}}
	var on, onRow, numbers, of []string
	for _, k := range s.Key {
		own := sidecarAlias + "." + schemas.Identifier(k.Column.Name)
		on = append(on, own+" = "+column(k.Of.Name))
		onRow = append(onRow, own+" = case when t.ctid is not null then "+column(k.Of.Name)+" end")
		numbers, of = append(numbers, strconv.Itoa(int(k.Column.Number))), append(of, strconv.Itoa(int(k.Of.Number)))
		j.Columns = append(j.Columns, k.Column)
		if k.Plain {
			j.Key = append(j.Key, Order{SQL: own, Cast: k.Cast})
		} else {
			j.Key = append(j.Key, Order{SQL: "(" + own + `)::text collate "C"`, Cast: `text collate "C"`})
		}
	}
	j.On, j.OnRow = strings.Join(on, " and "), strings.Join(onRow, " and ")
	j.Refers = fmt.Sprintf("c.conkey = '{%s}' and c.confkey = '{%s}'", strings.Join(numbers, ","), strings.Join(of, ","))
	return []Join{j}
}

// Index is one of the registry, that begins with the column.
func (s *Sidecar) Index() Index {
	i := Index{Table: Table{OID: s.OID, Name: s.Sidecar}, Column: s.Column}
	for _, k := range s.Key {
		if !k.Plain {
			break
		}
		i.Rest = append(i.Rest, k.Column.Name)
	}
	return i
}
