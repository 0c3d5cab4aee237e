package replication

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// identityReason says why a table cannot be published for deletion.
type identityReason string

// The reasons.
const (
	noTable           identityReason = "it does not exist"
	notATable         identityReason = "it is not a table that the server's log describes row by row"
	systemTable       identityReason = "it belongs to PostgreSQL"
	temporaryTable    identityReason = "it is temporary and not in the server's log"
	unloggedTable     identityReason = "it is unlogged and not in the server's log"
	inheritanceParent identityReason = "other tables inherit from it, and a deletion in it reaches them"
	inheritanceChild  identityReason = "it inherits from another table"
	noPrimaryKey      identityReason = "it has no primary key, so a published deletion could not name its row and would fail"
	deferrableKey     identityReason = "its primary key is deferrable, which cannot identify a row to be deleted"
	invalidKey        identityReason = "the index of its replica identity is gone or invalid"
	identityNothing   identityReason = "its replica identity is nothing, so a published deletion would fail"
	identityFull      identityReason = "its replica identity is full, so every deleted value would be kept in the log and in the events"
	generatedKey      identityReason = "its replica identity has a generated column, which is not published"
	filteredRows      identityReason = "a publication filters its rows by columns outside the replica identity, so its deletions fail"
	filteredColumns   identityReason = "a publication leaves out columns of its replica identity, so its deletions fail"
	filteredByUs      identityReason = "one of Lapse's publications has a row filter or column list for it"
)

// IdentityError names a table that publishing would harm, or whose deletions would not show.
type IdentityError struct {
	Table  string // quoted, with its schema; the partition, if it is one of many
	Reason identityReason
	Fix    string // SQL, where SQL helps
	Others int    // the number of further partitions that cannot be published either
	Theirs bool   // it is published by others, and its deletions fail
}

func (e *IdentityError) Error() string {
	if e.Theirs {
		return fmt.Sprintf("no row of table %s can be deleted, since a publication has it: %s; %s", e.Table, e.Reason, e.Fix)
	}
	text := fmt.Sprintf("table %s cannot be published: %s; %s", e.Table, e.Reason, e.Fix)
	if e.Others > 0 {
		text += fmt.Sprintf(" (and the same or worse for %d more of its partitions)", e.Others)
	}
	return text
}

// CheckIdentity returns an *IdentityError unless the table's deletions can be published: each of them names its row by
// a primary key or a unique index, and nothing else prevents it. PostgreSQL does not ask when a table joins a
// publication; it makes the application's own deletes fail afterwards.
//
// Of a partitioned table every partition is checked, since each has a replica identity of its own, and the primary key
// of the table itself, which is all that partitions made later are sure to have. What changes later
// is not noticed here: Join checks under its lock, and the doctor checks again.
func CheckIdentity(ctx context.Context, q Querier, relation uint32) error {
	found, err := CheckIdentities(ctx, q, []uint32{relation})
	if refused := found[relation]; err == nil && refused != nil {
		return refused
	}
	return err
}

// CheckIdentities is CheckIdentity of many tables, in two statements. It returns the errors of those that have one.
func CheckIdentities(ctx context.Context, q Querier, relations []uint32) (map[uint32]*IdentityError, error) {
	all, err := readFacts(ctx, q, relations)
	if err != nil {
		return nil, err
	}
	found, known := map[uint32]*IdentityError{}, map[uint32]bool{}
	note := func(table uint32, e *IdentityError) {
		switch first := found[table]; {
		case e == nil:
		case first == nil:
			found[table] = e
		default:
			first.Others++
		}
	}
	for _, f := range all {
		known[f.Table] = true
		note(f.Table, f.problem())
	}
	for _, table := range relations {
		if !known[table] {
			note(table, &IdentityError{Table: fmt.Sprintf("oid %d", table), Reason: noTable, Fix: "name a table that exists"})
		}
	}
	filtered, err := readFilters(ctx, q, slices.DeleteFunc(all, func(f facts) bool { return found[f.Table] != nil }))
	if err != nil {
		return nil, err
	}
	for _, f := range filtered {
		note(f.table, f.IdentityError)
	}
	return found, nil
}

// CheckDeletes returns the errors of tables whose deletions, or those of a partition, fail because of a publication of others. It is for
// tables that Lapse does not publish; CheckIdentities asks for more.
func CheckDeletes(ctx context.Context, q Querier, relations []uint32) (map[uint32]*IdentityError, error) {
	all, err := readFacts(ctx, q, relations)
	if err != nil {
		return nil, err
	}
	unfit, generated := []uint32{}, []uint32{} // not null in SQL
	for _, f := range all {
		e := f.problem()
		if f.Kind != "r" || e == nil || slices.Contains(harmless, e.Reason) {
			continue
		}
		if unfit = append(unfit, f.OID); e.Reason == generatedKey {
			generated = append(generated, f.OID)
		}
	}
	found := map[uint32]*IdentityError{}
	note := func(table uint32, e *IdentityError) {
		if found[table] == nil {
			e.Theirs = true
			found[table] = e
		}
	}
	if len(unfit) > 0 {
		broken, err := readBroken(ctx, q, unfit, generated)
		if err != nil {
			return nil, err
		}
		for _, f := range all {
			if slices.Contains(broken, f.OID) {
				note(f.Table, f.problem())
			}
		}
	}
	filtered, err := readFilters(ctx, q, all)
	if err != nil {
		return nil, err
	}
	for _, f := range filtered {
		if f.Reason != filteredByUs {
			note(f.table, f.IdentityError)
		}
	}
	return found, nil
}

// harmless are the reasons that keep a table out of Lapse's publications though its deletions would not fail in one.
var harmless = []identityReason{identityFull, inheritanceParent, inheritanceChild, unloggedTable, systemTable, temporaryTable}

// readBroken says which of some tables without a fit identity are in a publication of deletions. generated are those whose
// identity has a generated column: that breaks deletions from PostgreSQL 18 on, where the publication leaves such columns out.
func readBroken(ctx context.Context, q Querier, unfit, generated []uint32) ([]uint32, error) {
	rows, _ := q.Query(ctx, `
select distinct t.oid
  from pg_catalog.pg_publication p
 cross join lateral pg_catalog.pg_get_publication_tables(p.pubname) m
  join unnest($1::oid[]) as t(oid) on m.relid = t.oid
    or m.relid in (select a.relid from pg_catalog.pg_partition_ancestors(t.oid) a)
 where p.pubdelete
   and (t.oid <> all ($2)
        or to_jsonb(p) ->> 'pubgencols' = 'n'
           and not exists (select from pg_catalog.pg_publication_rel r
                            where r.prpubid = p.oid and r.prrelid = m.relid and to_jsonb(r) ->> 'prattrs' is not null))`, unfit, generated) // CollectRows has its error
	broken, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	if err != nil {
		return nil, fmt.Errorf("read which publications have a table: %w", err)
	}
	return broken, nil
}

// facts are the properties of one table or partition that CheckIdentity judges.
type facts struct {
	Table       uint32 // the one that was asked about
	OID         uint32
	Name        string
	Kind        string // pg_class.relkind
	Persistence string // pg_class.relpersistence
	Identity    string // pg_class.relreplident
	System      bool
	Parent      bool // of an inheritance child that is no partition
	Child       bool
	HasKey      bool // a primary key, or whatever index the identity names
	Immediate   bool
	Valid       bool
	Generated   bool
	Key         string // the index's name, quoted
	Columns     string // the key's columns, quoted
}

// readFacts follows the catalog down to the partitions: pg_partition_tree would lock each of
// them, and wait for every other lock.
func readFacts(ctx context.Context, q Querier, relations []uint32) ([]facts, error) {
	const query = `
with recursive tree(top, oid) as (
    select c.oid, c.oid
      from unnest($1::oid[]) as r(oid)
      join pg_catalog.pg_class c on c.oid = r.oid
     union
    select tree.top, i.inhrelid
      from tree
      join pg_catalog.pg_class c on c.oid = tree.oid and c.relkind = 'p'
      join pg_catalog.pg_inherits i on i.inhparent = c.oid
)
select t.top, c.oid,
       format('%I.%I', n.nspname, c.relname),
       c.relkind::text, c.relpersistence::text, c.relreplident::text,
       c.oid < 16384 or n.nspname in ('pg_catalog', 'information_schema'),
       c.relkind <> 'p' and c.relhassubclass and exists (select from pg_catalog.pg_inherits i where i.inhparent = c.oid),
       not c.relispartition and exists (select from pg_catalog.pg_inherits i where i.inhrelid = c.oid),
       k.indexrelid is not null,
       coalesce(k.indimmediate, false),
       coalesce(k.indisvalid and k.indisready and k.indislive, false),
       coalesce(k.generated, false),
       coalesce(k.name, ''),
       coalesce(k.columns, '')
  from tree t
  join pg_catalog.pg_class c on c.oid = t.oid
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  left join lateral (
      select i.indexrelid, i.indimmediate, i.indisvalid, i.indisready, i.indislive,
             quote_ident(x.relname) as name,
             bool_or(a.attgenerated <> '') as generated,
             string_agg(quote_ident(a.attname), ', ' order by array_position(i.indkey::int2[], a.attnum)) as columns
        from pg_catalog.pg_index i
        join pg_catalog.pg_class x on x.oid = i.indexrelid
        join pg_catalog.pg_attribute a on a.attrelid = i.indrelid
         and a.attnum = any((i.indkey::int2[])[0:i.indnkeyatts - 1])
       where i.indrelid = c.oid
         and case when c.relreplident = 'i' and c.relkind <> 'p' then i.indisreplident else i.indisprimary end
       group by i.indexrelid, i.indimmediate, i.indisvalid, i.indisready, i.indislive, x.relname
  ) k on true
 order by t.top, c.oid <> t.top, n.nspname, c.relname`
	rows, _ := q.Query(ctx, query, relations) // CollectRows has its error
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[facts])
	if err != nil {
		return nil, fmt.Errorf("read the replica identity of tables: %w", err)
	}
	return all, nil
}

// problem returns what is wrong with one table or partition, the least mendable first, or nil.
func (f facts) problem() *IdentityError {
	refuse := func(reason identityReason, format string, args ...any) *IdentityError {
		return &IdentityError{Table: f.Name, Reason: reason, Fix: fmt.Sprintf(format, args...)}
	}
	switch {
	case f.Kind != "r" && f.Kind != kindPartitioned:
		return refuse(notATable, "name the tables that it reads")
	case f.System:
		return refuse(systemTable, "name a table of your own")
	case f.Persistence == "t":
		return refuse(temporaryTable, "name a permanent table")
	case f.Persistence == "u":
		return refuse(unloggedTable, "alter table %s set logged", f.Name)
	case f.Parent:
		return refuse(inheritanceParent, "use declarative partitioning, or alter table CHILD no inherit %s", f.Name)
	case f.Child:
		return refuse(inheritanceChild, "use declarative partitioning, or alter table %s no inherit PARENT", f.Name)
	case f.Kind == kindPartitioned && !f.HasKey:
		// A partition that is made tomorrow is published at once, with the default identity whatever the root's is: only
		// a primary key of the root is sure to be the partition's too.
		return refuse(noPrimaryKey, "alter table %s add primary key (COLUMNS): partitions that are made later have it then", f.Name)
	case f.Kind == kindPartitioned && !f.Immediate:
		return refuse(deferrableKey, "alter table %s drop constraint %s, add primary key (%s)", f.Name, f.Key, f.Columns)
	case f.Kind == kindPartitioned && f.Generated:
		return refuse(generatedKey, "alter table %s drop constraint %s, add primary key (COLUMNS), of columns that are not "+
			"generated: partitions that are made later have it then", f.Name, f.Key)
	case f.Kind == kindPartitioned:
		return nil // its rows are its partitions'
	case f.Identity == "f":
		return refuse(identityFull, "alter table %s replica identity default", f.Name)
	case f.Identity == "n":
		return refuse(identityNothing, "alter table %s replica identity default", f.Name)
	case f.Identity == "i" && (!f.HasKey || !f.Valid):
		return refuse(invalidKey, "alter table %s replica identity default", f.Name)
	case !f.HasKey:
		return refuse(noPrimaryKey, "alter table %s add primary key (COLUMNS), "+
			"or, with a unique index on columns that are not null: alter table %s replica identity using index INDEX",
			f.Name, f.Name)
	case !f.Immediate:
		return refuse(deferrableKey, "alter table %s drop constraint %s, add primary key (%s)", f.Name, f.Key, f.Columns)
	case !f.Valid:
		return refuse(invalidKey, "reindex index %s", f.Key)
	case f.Generated:
		return refuse(generatedKey, "alter table %s replica identity using index INDEX, "+
			"a unique index on columns that are not null and not generated", f.Name)
	default:
		return nil
	}
}

// filtersQuery finds row filters and column lists of the publications that some relations are in. It checks a filter in its
// stored form: only the columns that it names count.
const filtersQuery = `
select t.oid,
       format('%I.%I', n.nspname, c.relname),
       quote_ident(p.pubname),
       p.pubname = any($2),
       coalesce(f.outside, false) and c.relreplident <> 'f',
       coalesce(l.outside, false) or c.relreplident = 'f' and r.prattrs is not null
  from unnest($1::oid[]) as t(oid)
  join pg_catalog.pg_class c on c.oid = t.oid
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  join lateral (
      select t.oid as relid
       union
      select a.relid from pg_catalog.pg_partition_ancestors(t.oid) a
  ) h on true
  join pg_catalog.pg_publication_rel r on r.prrelid = h.relid and (r.prqual is not null or r.prattrs is not null)
  join pg_catalog.pg_publication p on p.oid = r.prpubid and (p.pubupdate or p.pubdelete)
  cross join lateral (
      select coalesce(array_agg(a.attname), '{}') as columns
        from pg_catalog.pg_index i
        join pg_catalog.pg_attribute a on a.attrelid = i.indrelid
         and a.attnum = any((i.indkey::int2[])[0:i.indnkeyatts - 1])
       where i.indrelid = t.oid
         and case c.relreplident when 'i' then i.indisreplident else i.indisprimary end
  ) k
  cross join lateral (
      select bool_or(a.attname <> all(k.columns)) as outside
        from regexp_matches(r.prqual::text, ':varattno (\d+)', 'g') as v(number)
        join pg_catalog.pg_attribute a on a.attrelid = r.prrelid and a.attnum = v.number[1]::int2
  ) f
  cross join lateral (
      select not k.columns <@ array_agg(a.attname) as outside
        from pg_catalog.pg_attribute a
       where a.attrelid = r.prrelid and a.attnum = any(r.prattrs::int2[])
  ) l
 where c.relkind = 'r'
 order by 2, 3`

// filtered is a filter that makes deletions of a table fail, or hides them.
type filtered struct {
	table uint32 // as in facts
	*IdentityError
}

// readFilters looks for publications, ours and others', that leave out rows or columns in a way that makes deletions
// fail or hides them. PostgreSQL 15 and later.
func readFilters(ctx context.Context, q Querier, all []facts) ([]filtered, error) {
	version, err := serverVersion(ctx, q)
	if err != nil || version < 150000 || len(all) == 0 {
		return nil, err
	}
	var there bool // most databases have none, and the rest takes milliseconds to plan
	err = q.QueryRow(ctx, `select exists (select from pg_catalog.pg_publication_rel r where r.prqual is not null or r.prattrs is not null)`).Scan(&there)
	if err != nil {
		return nil, fmt.Errorf("read row filters and column lists: %w", err)
	}
	if !there {
		return nil, nil
	}
	tables := map[uint32][]uint32{} // by relation
	for _, f := range all {
		tables[f.OID] = append(tables[f.OID], f.Table)
	}
	rows, _ := q.Query(ctx, filtersQuery, slices.Collect(maps.Keys(tables)), Publications()) // CollectRows has its error
	type filter struct {
		Relation            uint32
		Name, Publication   string
		Ours, Rows, Columns bool
	}
	filters, err := pgx.CollectRows(rows, pgx.RowToStructByPos[filter])
	if err != nil {
		return nil, fmt.Errorf("read row filters and column lists: %w", err)
	}
	var found []filtered
	for _, f := range filters {
		var reason identityReason
		switch {
		case f.Ours:
			reason = filteredByUs
		case f.Rows:
			reason = filteredRows
		case f.Columns:
			reason = filteredColumns
		default:
			continue
		}
		for _, table := range tables[f.Relation] {
			found = append(found, filtered{table, &IdentityError{Table: f.Name, Reason: reason, Fix: fmt.Sprintf("alter publication %s set table … without it", f.Publication)}})
		}
	}
	return found, nil
}
