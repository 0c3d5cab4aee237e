package index

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"lapse/planner/database"
	"lapse/schemas"
)

// Prefixes of index names. A name identifies the index: the table's name, and a digest of table and columns.
const (
	AdvisedPrefix = ""       // a person makes it
	MadePrefix    = "lapse_" // apply makes it
)

// Step is one statement of an advice.
type Step struct {
	SQL      string
	Does     StepKind
	Relation uint32 // the table or partition
	Table    string // its name, quoted
	Schema   string // of the index
	Name     string
}

// StepKind is what a Step does.
type StepKind int

// The kinds of steps.
const (
	DropLeftover    StepKind = iota // an invalid index of the same name, which an interrupted attempt left
	CreateOnRoot                    // an index of a partitioned table, without those of its partitions
	CreateOnLeaf                    // CONCURRENTLY
	AttachPartition                 // to the index of the partitioned table
)

// Index is the index's name in SQL.
func (s *Step) Index() string { return schemas.Identifier(s.Schema, s.Name) }

// treeNode is a table or one of its partitions, sub-partitioned ones included.
type treeNode struct {
	OID      uint32
	Parent   uint32 // 0 for the root
	Kind     string // pg_class.relkind
	Schema   string
	Relation string
	Name     string // schema.table, quoted where SQL wants it
}

// quoted is a name of an index: it ends with a digest, so that it is no key word.
func quoted(name string) string {
	if plainName.MatchString(`"` + name + `"`) {
		return name
	}
	return schemas.Identifier(name)
}

// existing is an index with the name of a wanted one.
type existing struct {
	Relation uint32 // the table or partition that it is of
	Name     string
	Valid    bool
	Attached bool // to an index of the parent
}

// tree is a table with its partitions, and one index that all of them should have.
type tree struct {
	nodes []treeNode // parents before their partitions
	body  string     // what follows the table's name
	names map[uint32]string
	lacks map[uint32]bool // leaves that no index serves
	there map[uint32]existing
}

// treeSQL lists relation $1 and its partitions; $2: of the whole table that it is a partition of.
const treeSQL = `
	with recursive tree(oid, parent, depth) as (
	  select coalesce(case when $2 then pg_partition_root($1::oid)::oid end, $1::oid), 0::oid, 0
	  union all
	  select i.inhrelid, i.inhparent, tree.depth + 1 from tree join pg_inherits i on i.inhparent = tree.oid
	)
	select c.oid, tree.parent, c.relkind::text, n.nspname::text, c.relname::text, format('%I.%I', n.nspname, c.relname)
	  from tree
	  join pg_class c on c.oid = tree.oid
	  join pg_namespace n on n.oid = c.relnamespace
	 where c.relkind in ('r', 'p')
	 order by tree.depth, n.nspname, c.relname`

// treeOf returns the tree that a relation belongs to (whole), or that is below it. It locks nothing.
func treeOf(ctx context.Context, q database.Querier, relation uint32, whole bool) (*tree, error) {
	nodes, err := database.Collect[treeNode](ctx, q, treeSQL, relation, whole)
	if err != nil {
		return nil, fmt.Errorf("list the partitions of relation %d: %w", relation, err)
	}
	return &tree{nodes: nodes, lacks: map[uint32]bool{}, there: map[uint32]existing{}}, nil
}

// want sets the wanted index: one name for each table and partition.
func (t *tree) want(body, prefix string) {
	t.body, t.names = body, map[uint32]string{}
	for i := range t.nodes {
		t.names[t.nodes[i].OID] = indexName(prefix, &t.nodes[i], body)
	}
}

// indexName returns the same name for the same index of the same table, so that the remains of an attempt are found again.
func indexName(prefix string, n *treeNode, body string) string {
	sum := sha256.Sum256([]byte(n.Name + " " + body))
	tail := "_idx_" + hex.EncodeToString(sum[:4])
	const longest = 63 // bytes of a name
	name := n.Relation
	for len(prefix)+len(name)+len(tail) > longest {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return prefix + name + tail
}

// load looks for indexes that already have the names.
func (t *tree) load(ctx context.Context, q database.Querier) error {
	var oids []uint32
	var names []string
	for _, n := range t.nodes {
		oids, names = append(oids, n.OID), append(names, t.names[n.OID])
	}
	all, err := database.Collect[existing](ctx, q, `
		select i.indrelid, c.relname::text, i.indisvalid, c.relispartition
		  from unnest($1::oid[], $2::text[]) w(relation, name)
		  join pg_index i on i.indrelid = w.relation
		  join pg_class c on c.oid = i.indexrelid and c.relname = w.name`, oids, names)
	if err != nil {
		return fmt.Errorf("look for what an attempt at an index has left: %w", err)
	}
	t.there = map[uint32]existing{}
	for _, e := range all {
		t.there[e.Relation] = e
	}
	return nil
}

// all marks every leaf as lacking the index, whatever it has.
func (t *tree) all() {
	for _, n := range t.nodes {
		t.lacks[n.OID] = t.lacks[n.OID] || n.Kind == "r"
	}
}

// others reports whether an index of another name serves a leaf.
func (t *tree) others() bool {
	return slices.ContainsFunc(t.nodes, func(n treeNode) bool {
		return n.Kind == "r" && !t.lacks[n.OID] && !t.there[n.OID].Valid
	})
}

// steps are the statements that make what is missing. A plain table takes one. A partitioned table has no CREATE INDEX CONCURRENTLY: its own index
// is made first, without those of the partitions; then each partition's concurrently, and attached. The index is valid once the last is
// attached, and partitions made later have theirs from the start. If indexes of their own serve some partitions, only the others get one.
func (t *tree) steps() (steps []Step) {
	whole := !t.others() && len(t.nodes) > 1 && (len(t.lacks) > 0 || t.there[t.nodes[0].OID].Name != "" && !t.there[t.nodes[0].OID].Valid)
	for i := range t.nodes {
		n := &t.nodes[i]
		at := t.there[n.OID]
		create := Step{
			Relation: n.OID, Table: n.Name, Schema: n.Schema, Name: t.names[n.OID], Does: CreateOnLeaf,
			SQL: fmt.Sprintf("create index concurrently %s on %s %s", quoted(t.names[n.OID]), n.Name, t.body),
		}
		switch {
		case n.Kind == "p" && (!whole || at.Name != ""):
		case n.Kind == "p":
			create.Does = CreateOnRoot
			create.SQL = fmt.Sprintf("create index %s on only %s %s", quoted(create.Name), n.Name, t.body)
			steps = append(steps, create)
		case t.lacks[n.OID] && !at.Valid:
			if at.Name != "" {
				drop := create
				drop.Does, drop.SQL = DropLeftover, "drop index concurrently "+create.Index()
				steps = append(steps, drop)
			}
			steps = append(steps, create)
		}
		if whole && n.Parent != 0 && !at.Attached && (n.Kind == "p" || t.lacks[n.OID] || at.Valid) {
			steps = append(steps, t.attach(n))
		}
	}
	return steps
}

func (t *tree) attach(n *treeNode) Step {
	parent := t.nodes[slices.IndexFunc(t.nodes, func(p treeNode) bool { return p.OID == n.Parent })]
	step := Step{Relation: n.OID, Table: n.Name, Schema: n.Schema, Name: t.names[n.OID], Does: AttachPartition}
	step.SQL = fmt.Sprintf("alter index %s attach partition %s", schemas.Identifier(parent.Schema, t.names[parent.OID]), step.Index())
	return step
}

// candidate is an index that may serve.
type candidate struct {
	Relation   uint32
	Name       string // schema.index, quoted
	Columns    []string
	First      string // the text of its first expression
	Collation  string // of its first column or expression, "" if it has none
	Definition string // "" unless it is partial
	OneWay     bool   // all of it ascending, or all of it descending
}

// candidatesSQL lists, for relations $1, the btrees that begin with column $2, or, where that is "", with an expression. It
// reads only the catalog, and locks no table.
const candidatesSQL = `
	select i.indrelid, format('%I.%I', m.nspname, x.relname), k.names, case when i.indkey[0] = 0 then pg_get_indexdef(x.oid, 1, false) else '' end,
	       coalesce((select l.collname::text from pg_collation l where l.oid = i.indcollation[0]), ''),
	       case when i.indpred is null then '' else pg_get_indexdef(x.oid) end,
	       (select count(distinct o.n) from unnest(i.indoption::int2[]) o(n)) = 1
	  from unnest($1::oid[]) w(oid)
	  join pg_index i on i.indrelid = w.oid
	  join pg_class x on x.oid = i.indexrelid
	  join pg_namespace m on m.oid = x.relnamespace
	  join pg_am on pg_am.oid = x.relam
	 cross join lateral (
	   select array_agg(coalesce(a.attname::text, '') order by k.n) as names
	     from unnest(i.indkey::int2[]) with ordinality k(attnum, n)
	     left join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum and k.attnum > 0
	    where k.n <= i.indnkeyatts
	 ) k
	 where i.indisvalid and i.indisready and pg_am.amname = 'btree' and k.names[1] = $2
	 order by i.indrelid, i.indpred is not null, cardinality(k.names), x.relname`

// served finds the best index of each leaf. found then says whether every leaf's index has only the rows that
// meet where, or only those with a ttl: such an index serves only a statement with that condition.
func (t *tree) served(ctx context.Context, q database.Querier, w *wantedIndex, leaves []database.Relation, found *Found) (all []leafIndex, err error) {
	oids := make([]uint32, 0, len(leaves))
	for _, l := range leaves {
		oids = append(oids, l.OID)
	}
	candidates, err := database.Collect[candidate](ctx, q, candidatesSQL, oids, w.first)
	if err != nil {
		return nil, fmt.Errorf("look for an index: %w", err)
	}
	none := func(l leafIndex) bool { return l.Index == "" }
	for _, of := range []struct{ byWhere, sparse bool }{{true, true}, {true, false}, {false, true}, {false, false}} {
		all = bestOf(candidates, leaves, func(c *candidate) (serves, whole bool) { return w.fits(c, of.byWhere, of.sparse) })
		if !slices.ContainsFunc(all, none) {
			found.ByWhere, found.Sparse = of.byWhere, of.sparse
			return all, nil
		}
	}
	if w.made != "" && !slices.ContainsFunc(all, func(l leafIndex) bool { return !none(l) }) {
		// The index is made without the rows that never expire: the version that is written with it has that condition.
		found.Sparse = true
		t.want(w.made, MadePrefix)
		all = bestOf(candidates, leaves, func(c *candidate) (serves, whole bool) { return w.fits(c, false, true) })
	}
	return all, nil
}

// bestOf chooses for each leaf the first index that serves, preferring one in which the key follows.
func bestOf(candidates []candidate, leaves []database.Relation, fits func(*candidate) (serves, whole bool)) []leafIndex {
	best := map[uint32]leafIndex{}
	for i := range candidates {
		c := &candidates[i]
		serves, whole := fits(c)
		if has := best[c.Relation]; serves && (has.Index == "" || whole && !has.Whole) {
			best[c.Relation] = leafIndex{Index: c.Name, Whole: whole}
		}
	}
	all := make([]leafIndex, len(leaves))
	for i, l := range leaves {
		all[i] = best[l.OID]
		all[i].Leaf = l
	}
	return all
}

// predicateOf is the condition in the definition of a partial index, "" for none.
func predicateOf(definition string) string {
	if definition == "" {
		return ""
	}
	tokens := tokenise(definition)
	depth := 0
	for i, token := range tokens {
		switch token {
		case "(":
			depth++
		case ")":
			depth--
		case "where":
			if depth == 0 {
				return strings.Join(tokens[i+1:], " ")
			}
		}
	}
	return ""
}
