package planner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"lapse/internal/pgtest"
	"lapse/planner/database"
	"lapse/planner/expiry"
)

// foreignKey is a row of pg_constraint.
type foreignKey struct {
	From, To   uint32
	OnDelete   string // confdeltype
	OnUpdate   string
	Columns    []string
	Referenced []string
}

// foreignKeys is what reach reads of the catalog, the whole of it.
type foreignKeys struct {
	keys     []foreignKey
	children map[uint32][]uint32
	plain    map[uint32]bool // holds rows
}

func readForeignKeys(ctx context.Context, q database.Querier) (*foreignKeys, error) {
	all := &foreignKeys{children: map[uint32][]uint32{}, plain: map[uint32]bool{}}
	var err error
	all.keys, err = database.Collect[foreignKey](ctx, q, `
		select c.conrelid, c.confrelid, c.confdeltype::text, c.confupdtype::text,
		       array(select a.attname::text from pg_attribute a where a.attrelid = c.conrelid and a.attnum = any (c.conkey)),
		       array(select a.attname::text from pg_attribute a where a.attrelid = c.confrelid and a.attnum = any (c.confkey))
		  from pg_constraint c
		 where c.contype = 'f' and coalesce((to_jsonb(c) ->> 'conenforced')::boolean, true)`)
	if err != nil {
		return nil, err
	}
	edges, err := database.Collect[struct{ Parent, Child uint32 }](ctx, q, `select inhparent, inhrelid from pg_inherits`)
	if err != nil {
		return nil, err
	}
	for _, e := range edges {
		all.children[e.Parent] = append(all.children[e.Parent], e.Child)
	}
	plain, err := database.Collect[struct{ OID uint32 }](ctx, q, `select oid from pg_class where relkind = 'r'`)
	for _, r := range plain {
		all.plain[r.OID] = true
	}
	return all, err
}

// reach follows the foreign keys in the words of lapse.reach.
func (f *foreignKeys) reach(targets []uint32) []string {
	above := slices.Clone(targets)
	for i := 0; i < len(above); i++ {
		for parent, children := range f.children {
			if slices.Contains(children, above[i]) && !slices.Contains(above, parent) {
				above = append(above, parent)
			}
		}
	}
	type step struct {
		relation uint32
		deletes  bool
		updated  string // its columns, each between commas
	}
	const acts = "cnd"
	var steps []step
	push := func(s step) {
		if !slices.Contains(steps, s) {
			steps = append(steps, s)
		}
	}
	deleted := func(k *foreignKey) {
		switch {
		case k.OnDelete == "c":
			push(step{relation: k.From, deletes: true})
		case strings.Contains(acts, k.OnDelete):
			push(step{relation: k.From, updated: "," + strings.Join(k.Columns, ",") + ","})
		}
	}
	for i := range f.keys {
		if slices.Contains(above, f.keys[i].To) {
			deleted(&f.keys[i])
		}
	}
	for i := 0; i < len(steps); i++ {
		s := steps[i]
		for j := range f.keys {
			k := &f.keys[j]
			hit := slices.ContainsFunc(k.Referenced, func(c string) bool { return strings.Contains(s.updated, ","+c+",") })
			switch {
			case k.To != s.relation:
			case s.deletes:
				deleted(k)
			case hit && strings.Contains(acts, k.OnUpdate):
				push(step{relation: k.From, updated: "," + strings.Join(k.Columns, ",") + ","})
			}
		}
		for _, child := range f.children[s.relation] {
			push(step{child, s.deletes, s.updated})
		}
	}
	var found []string
	for _, s := range steps {
		if text := fmt.Sprintf("%d %t", s.relation, s.deletes); f.plain[s.relation] && !slices.Contains(found, text) {
			found = append(found, text)
		}
	}
	slices.Sort(found)
	return found
}

// drawForeignKeys draws the DDL of a few tables, some of them partitioned, with foreign keys between them and their partitions.
// Some partitions are attached afterwards. What PostgreSQL refuses is left out.
func drawForeignKeys(t *rapid.T, major int) (ddl, relations []string) {
	referenced := map[string][]string{} // columns that a foreign key may lead to
	var plain, attached []string
	for i := range rapid.IntRange(2, 6).Draw(t, "tables") {
		name := fmt.Sprintf("t%d", i)
		columns := " (id int primary key, a int, b int, x int default 0, y int default 0)"
		if !rapid.Bool().Draw(t, name+" is partitioned") {
			ddl = append(ddl, "create table "+name+columns, "alter table "+name+" add unique (a), add unique (b)")
			relations, plain, referenced[name] = append(relations, name), append(plain, name), []string{"id", "a", "b"}
			continue
		}
		ddl = append(ddl, "create table "+name+columns+" partition by hash (id)",
			"create table "+name+"_0 partition of "+name+" for values with (modulus 3, remainder 0)",
			"create table "+name+"_1 partition of "+name+" for values with (modulus 3, remainder 1) partition by range (id)",
			"create table "+name+"_1_0 partition of "+name+"_1 default", "create table "+name+"_2"+columns)
		attached = append(attached, "alter table "+name+" attach partition "+name+"_2 for values with (modulus 3, remainder 2)")
		for _, r := range []string{name, name + "_0", name + "_1", name + "_1_0", name + "_2"} {
			relations, referenced[r] = append(relations, r), []string{"id"}
		}
		plain = append(plain, name+"_0", name+"_1_0", name+"_2")
	}
	actions := []string{"cascade", "no action", "restrict", "cascade", "set null", "set default"}
	for i := range rapid.IntRange(4, 16).Draw(t, "foreign keys") {
		from := rapid.SampledFrom(relations).Draw(t, fmt.Sprint("from ", i))
		to := rapid.SampledFrom(relations).Draw(t, fmt.Sprint("to ", i))
		sql := fmt.Sprintf("alter table %s add constraint fk%d foreign key (%s) references %s (%s) on delete %s on update %s", from, i,
			rapid.SampledFrom([]string{"id", "a", "b", "x", "y"}).Draw(t, fmt.Sprint("column ", i)),
			to, rapid.SampledFrom(referenced[to]).Draw(t, fmt.Sprint("referenced ", i)),
			rapid.SampledFrom(actions).Draw(t, fmt.Sprint("on delete ", i)), rapid.SampledFrom(actions).Draw(t, fmt.Sprint("on update ", i)))
		if major >= 18 && rapid.IntRange(0, 5).Draw(t, fmt.Sprint("enforced ", i)) == 0 {
			sql += " not enforced"
		}
		ddl = append(ddl, unlessRefused(sql))
	}
	for _, sql := range attached {
		ddl = append(ddl, unlessRefused(sql))
	}
	return ddl, plain
}

func unlessRefused(sql string) string {
	return "do $$ begin " + sql + "; exception when object_in_use or invalid_table_definition or wrong_object_type or feature_not_supported or invalid_object_definition then null; end $$"
}

func TestReachIsWhatTheForeignKeysSay(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 15, 16, 17, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		must(t, runSQL(w.admin, `set search_path = shop`))
		reached, made := 0, 0
		rapid.Check(t, func(rt *rapid.T) {
			ddl, leaves := drawForeignKeys(rt, db.Major)
			targets := rapid.SliceOfNDistinct(rapid.SampledFrom(leaves), 1, 2, rapid.ID[string]).Draw(rt, "targets")
			err := expiry.Attempt(t.Context(), w.admin, func(tx pgx.Tx) error {
				if err := script(t.Context(), tx, strings.Join(ddl, ";\n")); err != nil {
					return fmt.Errorf("%w\nin: %s", err, strings.Join(ddl, ";\n"))
				}
				var oids []uint32
				if err := tx.QueryRow(t.Context(), `select array_agg(r::regclass::oid) from unnest($1::text[]) r`, targets).Scan(&oids); err != nil {
					return err
				}
				keys, err := readForeignKeys(t.Context(), tx)
				if err != nil {
					return err
				}
				got, err := database.Collect[struct {
					Relation uint32
					Deletes  bool
				}](t.Context(), tx, `select relation, deletes from lapse.reach($1::oid[])`, oids)
				if err != nil {
					return err
				}
				var found []string
				for _, r := range got {
					found = append(found, fmt.Sprintf("%d %t", r.Relation, r.Deletes))
				}
				slices.Sort(found)
				want := keys.reach(oids)
				reached, made = reached+len(want), made+len(keys.keys)
				if !slices.Equal(found, want) {
					rt.Errorf("from %v reach finds %v, want %v, after\n%s", oids, found, want, strings.Join(ddl, ";\n"))
				}
				return nil
			})
			if err != nil {
				rt.Fatal(err)
			}
		})
		if reached < 40 || made < 40 {
			t.Errorf("%d foreign keys reached %d relations: the test checks too few", made, reached)
		}
		t.Logf("%d foreign keys reached %d relations", made, reached)
	})
}

func TestAKeyThatIsNotEnforcedKeepsNothing(t *testing.T) {
	t.Parallel()
	pgtest.Every(t, func(t *testing.T, db *pgtest.DB) {
		if db.Major < 18 {
			return // it knows no such keys
		}
		w := newWorld(t, db, `create table a (id bigint primary key)`)
		w.do(`create table b (id bigint primary key, up bigint references a on delete cascade not enforced, too bigint references a not enforced)`)
		if got := valueOn[string](t, w.admin, `select lapse.referring('shop.a'::regclass)`); got != "false" {
			t.Errorf("a drop would look for rows by a key that is not enforced: %s", got)
		}
		keeps, err := database.FindBlocking(t.Context(), w.admin, valueOn[uint32](t, w.admin, `select 'shop.a'::regclass::oid`), nil, nil)
		if err != nil || len(keeps) > 0 {
			t.Errorf("a key that is not enforced keeps rows: %v %v", keeps, err)
		}
		if got := valueOn[*string](t, w.admin, `select coalesce(lapse.ways('shop.a'::regclass, null, null)::text, lapse.cascade_statement('shop.a'::regclass, 'true'))`); got != nil {
			t.Errorf("a batch would follow a key that is not enforced: %s", *got)
		}
	})
}
