package replication

import (
	"context"
	"fmt"
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
	facts, err := readFacts(ctx, q, relation)
	if err != nil {
		return err
	}
	if len(facts) == 0 {
		return &IdentityError{Table: fmt.Sprintf("oid %d", relation), Reason: noTable, Fix: "name a table that exists"}
	}
	var first *IdentityError
	note := func(e *IdentityError) {
		switch {
		case e == nil:
		case first == nil:
			first = e
		default:
			first.Others++
		}
	}
	for _, f := range facts {
		note(f.problem())
	}
	if first != nil {
		return first
	}
	filtered, err := readFilters(ctx, q, facts)
	if err != nil {
		return err
	}
	for _, e := range filtered {
		note(e)
	}
	if first != nil {
		return first
	}
	return nil
}

// CheckDeletes returns an *IdentityError if deletions in the table, or in a partition, fail because of a publication of
// others. It is for a table that Lapse does not publish; CheckIdentity asks for more.
func CheckDeletes(ctx context.Context, q Querier, relation uint32) error {
	all, err := readFacts(ctx, q, relation)
	if err != nil {
		return err
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
	if len(unfit) > 0 {
		broken, err := readBroken(ctx, q, unfit, generated)
		if err != nil {
			return err
		}
		for _, f := range all {
			if slices.Contains(broken, f.OID) {
				e := f.problem()
				e.Theirs = true
				return e
			}
		}
	}
	filtered, err := readFilters(ctx, q, all)
	if err != nil {
		return err
	}
	for _, e := range filtered {
		if e.Theirs = true; e.Reason != filteredByUs {
			return e
		}
	}
	return nil
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
func readFacts(ctx context.Context, q Querier, relation uint32) ([]facts, error) {
	const query = `
with recursive tree as (
    select c.oid
      from pg_catalog.pg_class c
     where c.oid = $1
     union
    select i.inhrelid
      from tree
      join pg_catalog.pg_class c on c.oid = tree.oid and c.relkind = 'p'
      join pg_catalog.pg_inherits i on i.inhparent = c.oid
)
select c.oid,
       format('%I.%I', n.nspname, c.relname),
       c.relkind::text, c.relpersistence::text, c.relreplident::text,
       c.oid < 16384 or n.nspname in ('pg_catalog', 'information_schema'),
       c.relkind <> 'p' and exists (select from pg_catalog.pg_inherits i where i.inhparent = c.oid),
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
 order by c.oid <> $1, n.nspname, c.relname`
	rows, err := q.Query(ctx, query, relation)
	if err != nil {
		return nil, fmt.Errorf("read the replica identity of table with oid %d: %w", relation, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[facts])
	if err != nil {
		return nil, fmt.Errorf("read the replica identity of table with oid %d: %w", relation, err)
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
select format('%I.%I', n.nspname, c.relname),
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
 order by 1, 2`

// readFilters looks for publications, ours and others', that leave out rows or columns in a way that makes deletions
// fail or hides them. PostgreSQL 15 and later.
func readFilters(ctx context.Context, q Querier, all []facts) ([]*IdentityError, error) {
	version, err := serverVersion(ctx, q)
	if err != nil || version < 150000 {
		return nil, err
	}
	var oids []uint32
	for _, f := range all {
		oids = append(oids, f.OID)
	}
	rows, err := q.Query(ctx, filtersQuery, oids, Publications())
	if err != nil {
		return nil, fmt.Errorf("read row filters and column lists: %w", err)
	}
	type filter struct {
		Table, Publication  string
		Ours, Rows, Columns bool
	}
	filters, err := pgx.CollectRows(rows, pgx.RowToStructByPos[filter])
	if err != nil {
		return nil, fmt.Errorf("read row filters and column lists: %w", err)
	}
	var found []*IdentityError
	for _, f := range filters {
		fix := fmt.Sprintf("alter publication %s set table … without it", f.Publication)
		switch {
		case f.Ours:
			found = append(found, &IdentityError{Table: f.Table, Reason: filteredByUs, Fix: fix})
		case f.Rows:
			found = append(found, &IdentityError{Table: f.Table, Reason: filteredRows, Fix: fix})
		case f.Columns:
			found = append(found, &IdentityError{Table: f.Table, Reason: filteredColumns, Fix: fix})
		}
	}
	return found, nil
}
