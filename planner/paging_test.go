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
	"lapse/planner/functions"
	"lapse/planner/record"
)

// pagedTable is a table whose key makes paging difficult. row writes row n of it, at instant $1.
type pagedTable struct {
	name, columns, identity, row string
	plain                        []bool // of the key columns
}

// keyText is a text that sorts differently in every collation.
const keyText = `(array['a','A','ä','Ä','b','B','z','Z','-','_','1','10','2',' ','é','É','ß','ss','o','ö'])[n % 20 + 1] || (array['','x','X','-'])[n / 20 % 4 + 1] || n / 80`

func pagedTables(icu bool) []pagedTable {
	all := []pagedTable{
		{"p_bigint", `id bigint`, `primary key (id)`, `n - 40`, []bool{true}},
		{"p_composite", `tenant text, id int`, `primary key (tenant, id)`, keyText + `, n`, []bool{true, true}},
		{"p_reverse", `id int, tenant text`, `primary key (tenant, id)`, `n, ` + keyText, []bool{true, true}},
		{"p_with_column", `id int`, `primary key (id, at)`, `n % 3 * 1000 + n`, []bool{true, true}},
		{"p_citext", `id citext`, `primary key (id)`, keyText + ` || '.' || n`, []bool{false}},
		{"p_uuid", `id uuid`, `primary key (id)`, `md5(n::text)::uuid`, []bool{true}},
		{"p_char", `id char(12)`, `primary key (id)`, keyText, []bool{false}},
		{"p_varchar", `id varchar(12) collate "C"`, `primary key (id)`, keyText, []bool{true}},
		{"p_numeric", `id numeric(12,3)`, `primary key (id)`, `(n - 40) * 1.5`, []bool{true}},
		{"p_float", `id float8`, `primary key (id)`, `case n when 1 then 'nan' when 2 then 'infinity' when 3 then '-infinity' else sqrt(n) * 1e-300 end`, []bool{true}},
		{"p_bytea", `id bytea`, `primary key (id)`, `decode(md5(n::text), 'hex')`, []bool{true}},
		{"p_enum", `id mood, n int`, `primary key (id, n)`, `(enum_range(null::mood))[n % 3 + 1], n`, []bool{false, true}},
		{"p_domain", `id positive`, `primary key (id)`, `n + 1`, []bool{true}},
		{"p_interval", `id interval`, `primary key (id)`, `n * interval '1 day'`, []bool{false}},
		{"p_array", `id int[]`, `primary key (id)`, `array[n / 10, n]`, []bool{false}},
		{"p_jsonb", `id jsonb`, `primary key (id)`, `jsonb_build_object('n', n)`, []bool{false}},
		{"p_inet", `id inet`, `primary key (id)`, `'10.0.0.0'::inet + n`, []bool{true}},
		{"p_bool", `id bool, n smallint`, `primary key (id, n)`, `n % 2 = 0, n`, []bool{true, true}},
		{"p_index", `id text not null, note text`, `unique (id)`, keyText + `, 'x'`, []bool{true}},
		{"p_moment", `id timestamptz`, `primary key (id)`, `case n when 1 then 'infinity' when 2 then '-infinity' else '2000-01-01'::timestamptz + n * interval '1.000001 s' end`, []bool{true}},
	}
	if icu {
		all = append(all,
			pagedTable{"p_german", `id text collate "de-x-icu"`, `primary key (id)`, keyText, []bool{true}},
			pagedTable{"p_folded", `id text collate folded`, `primary key (id)`, keyText + ` || '.' || n`, []bool{false}},
		)
	}
	return all
}

func makePaged(w *world) []pagedTable {
	w.t.Helper()
	must(w.t, runSQL(w.admin, `create extension citext schema public`))
	w.do(`set search_path = shop, public`)
	w.do(`create type mood as enum ('sad', 'ok', 'happy')`)
	w.do(`create domain positive as bigint check (value > 0)`)
	icu := value[bool](w, `select exists (select from pg_collation where collname = 'de-x-icu')`)
	if icu {
		w.do(`create collation folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`)
	}
	all := pagedTables(icu)
	for _, p := range all {
		w.do(fmt.Sprintf(`create table %s (at timestamptz not null, %s, %s)`, p.name, p.columns, p.identity))
		if strings.HasPrefix(p.identity, "unique") {
			w.do(fmt.Sprintf(`alter table %s replica identity using index %s_id_key`, p.name, p.name))
		}
	}
	return all
}

// fill makes rows with few different instants, so that most of them tie.
func (p *pagedTable) fill(ctx context.Context, conn *pgx.Conn, instants []int) error {
	if _, err := conn.Exec(ctx, `delete from `+p.name); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, `insert into `+p.name+` select '2020-01-01'::timestamptz + at * interval '0.25 s', `+p.row+`
		from (select at, (row_number() over ())::int as n from unnest($1::int[]) at) r`, instants)
	return err
}

// armPaged arms a policy on each table: of every second one all candidates are due, of the others each must be checked.
func armPaged(w *world, tables []pagedTable) map[string]record.InForce {
	w.t.Helper()
	file := "policies:\n"
	for i, p := range tables {
		file += fmt.Sprintf("  - {name: %s, table: shop.%s, expire: {column: at, after: %s}, state: armed}\n", p.name, p.name, []string{"1 day", "1 month"}[i%2])
	}
	_ = w.armed(file)
	policies := map[string]record.InForce{}
	for _, p := range w.inForce() {
		policies[string(p.Name)] = p
		if table := slices.IndexFunc(tables, func(t pagedTable) bool { return t.name == string(p.Name) }); !slices.Equal(plainOf(&p), tables[table].plain) {
			w.t.Errorf("%s: the key's columns are plain: %v, want %v", p.Name, plainOf(&p), tables[table].plain)
		}
	}
	// Of every third one a tie that is too large for a batch counts as one of many rows.
	for i, p := range tables {
		policy := policies[p.name]
		if name := functions.FindFunction(policy.ID, policy.Version); i%3 == 0 {
			text := valueOn[string](w.t, w.admin, `select pg_get_functiondef(to_regproc($1))`, name)
			small := strings.ReplaceAll(text, "16 * $4 + 20000", "$4")
			if small == text {
				w.t.Error("a tie of many rows is told by another number: the test shows nothing")
			}
			must(w.t, runSQL(w.admin, small))
		}
	}
	return policies
}

func plainOf(p *record.InForce) (plain []bool) {
	for _, k := range p.Definition.Key {
		plain = append(plain, k.Plain)
	}
	return plain
}

// Paging without deleting: the pages together hold every row once, and none of them is longer than its limit. That the table's file is written
// again between two pages loses no row.
func TestPagesHoldEveryRowOnce(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 15, 16, 17, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		tables := makePaged(w)
		policies := armPaged(w, tables)
		rapid.Check(t, func(rt *rapid.T) {
			p := rapid.SampledFrom(tables).Draw(rt, "table")
			instants := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 90).Draw(rt, "instants")
			limit, rewritten := rapid.IntRange(1, 12).Draw(rt, "limit"), rapid.IntRange(0, 40).Draw(rt, "rewritten before page")
			if err := p.fill(t.Context(), w.owner, instants); err != nil {
				rt.Fatal(err)
			}
			policy, seen, twice, startsOver := policies[p.name], map[string]bool{}, 0, false
			for cursor, n := []*string(nil), 0; ; n++ {
				if n == rewritten {
					w.do("vacuum full " + p.name)
					startsOver = true
				}
				page, next, ended, err := w.page(&policy, p.name, cursor, limit)
				if err != nil {
					rt.Fatalf("%s: %v", p.name, err)
				}
				for _, row := range page {
					if seen[row] {
						twice++
					}
					seen[row] = true
				}
				if len(page) > limit {
					rt.Fatalf("%s: a page of %d rows, limit %d", p.name, len(page), limit)
				}
				if ended {
					break
				}
				cursor = next
			}
			if len(seen) != len(instants) {
				rt.Fatalf("%s: %d rows are on the pages, want %d", p.name, len(seen), len(instants))
			}
			if twice > 0 && !startsOver { // a tie is begun again in another file; a batch has deleted its rows by then
				rt.Fatalf("%s: %d rows are on two pages", p.name, twice)
			}
		})
	})
}

// page is what the function that finds a batch's rows says, by itself: the rows, as texts.
func (w *world) page(p *record.InForce, table string, cursor []*string, limit int) (rows []string, next []*string, ended bool, err error) {
	err = w.admin.QueryRow(context.Background(), `
		select array(select r::text from shop.`+table+` r where r.ctid = any (f.rows_at)), f.last, f.ended
		  from `+functions.FindFunction(p.ID, p.Version)+`(
		       jsonb_populate_record(null::lapse.claim, jsonb_build_object('cutoff', now(), 'target', 'shop.`+table+`'::regclass::oid)),
		       jsonb_populate_record(null::lapse.work, jsonb_build_object('row_limit', $1::int, 'shape', 'pick')),
		       jsonb_populate_record(null::lapse.place, jsonb_build_object('leaf', 'shop.`+table+`', 'spared', '', 'cursor', to_jsonb($2::text[])))) f`, limit, cursor).
		Scan(&rows, &next, &ended)
	return rows, next, ended, err
}

// The same with deleting: the first pass takes all of it, so that nothing is left to the residual pass.
func TestTheFirstPassLeavesNothingToTheSecond(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		tables := makePaged(w)
		policies := armPaged(w, tables)
		rapid.Check(t, func(rt *rapid.T) {
			table := rapid.SampledFrom(tables).Draw(rt, "table")
			instants := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 60).Draw(rt, "instants")
			if err := table.fill(t.Context(), w.owner, instants); err != nil {
				rt.Fatal(err)
			}
			p := policies[table.name]
			r := w.open(&p)
			b := w.lease(p, r)
			b.Limit = rapid.IntRange(1, 12).Draw(rt, "limit")
			for got := (result{}); !got.Finished; {
				pass := valueOn[int](t, w.exec, `select pass from lapse.shard where id = $1`, b.Shard)
				var err error
				if got, err = w.call(b, nil); err != nil {
					rt.Fatalf("%s: %v", table.name, err)
				}
				if pass == 2 && got.Picked > 0 {
					rt.Fatalf("%s: the residual pass finds %d rows", table.name, got.Picked)
				}
			}
			if n := value[int](w, `select count(*) from `+table.name); n != 0 {
				rt.Fatalf("%s: %d rows are left", table.name, n)
			}
		})
	})
}
