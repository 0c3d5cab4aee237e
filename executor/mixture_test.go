package executor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lapse/internal/pgtest"
)

// mixture is a table and a policy in which many of the executor's parts meet: how a batch finds its rows, slices, limits, holds, rows that resist.
type mixture struct {
	schema   string
	key      [3]string // types and collation, the value of row n, the key's columns
	parts    string    // how it is partitioned
	ttl      bool      // each row has its own age, and some never fall due
	entry    []string  // further keys of the policy
	ways     []int     // of each executor: 0 range, 1 heap, 2 ranges for several workers
	workers  int
	rows     []string
	resist   string // how some rows resist, "" for not
	held     [][2]int
	deeds    []string
	defaults string // of the database
}

// keys are types of keys with the value of row n, in orders that are not that of n.
var keys = [][3]string{
	{"k bigint", "n", "k"},
	{"k uuid", "md5(n::text)::uuid", "k"},
	{"k numeric", "(n % 7)::numeric + n / 1000.0", "k"},
	{"k bytea", "decode(md5(n::text), 'hex')", "k"},
	{`k text collate "en-x-icu"`, "(array['ä', 'Z', 'a', '-', 'É', '_b'])[1 + n % 6] || n", "k"},
	{`k text collate "C", k2 int`, "'x' || n % 5, n", "k, k2"},
	{"k char(9), k2 timestamp", "'x' || n % 3, '2020-01-01'::timestamp + n * interval '1 microsecond'", "k, k2"},
	{"k float8", "-1.0 / (n + 1)", "k"},
	{"k interval", "n * interval '7 hours'", "k"},
}

func drawMixture(rt *rapid.T, schema string) *mixture {
	m := &mixture{
		schema:   schema,
		key:      rapid.SampledFrom(keys).Draw(rt, "key"),
		parts:    rapid.SampledFrom([]string{"", "", "range", "hash"}).Draw(rt, "parts"),
		workers:  rapid.IntRange(1, 3).Draw(rt, "workers"),
		resist:   rapid.SampledFrom([]string{"", "", "foreign key", "deferred", "trigger"}).Draw(rt, "resist"),
		defaults: rapid.SampledFrom([]string{"read committed", "serializable", "repeatable read"}).Draw(rt, "isolation"),
		ttl:      rapid.IntRange(0, 2).Draw(rt, "ttl") == 0,
		ways:     rapid.SliceOfN(rapid.IntRange(0, 2), 1, 3).Draw(rt, "ways"),
	}
	m.entry = []string{
		"state: armed", fmt.Sprintf("batch: %d", rapid.SampledFrom([]int{1, 2, 7, 40, 500}).Draw(rt, "batch")),
		rapid.SampledFrom([]string{"pace: unlimited", "pace: gentle"}).Draw(rt, "pace"),
	}
	for _, choice := range [][]string{
		{"", "", "shards: {count: 3}"}, {"", "", "max_rows_per_run: 60"}, {"", "", "rate: 400"}, {"", `where: "color is distinct from 'blue'"`},
	} {
		if more := rapid.SampledFrom(choice).Draw(rt, "more"); more != "" {
			m.entry = append(m.entry, more)
		}
	}
	if m.parts == "range" && !slices.Contains(m.entry, "shards: {count: 3}") && rapid.Bool().Draw(rt, "drops") {
		m.entry = append(m.entry, "action: drop_partition")
	}
	if m.resist == "trigger" {
		m.entry = append(m.entry, "triggers: trusted")
	}
	some := instants(rt, "30 days", m.parts != "range")
	for n := range rapid.IntRange(0, 400).Draw(rt, "rows") {
		m.rows = append(m.rows, fmt.Sprintf("(%d, %s)", n, rapid.SampledFrom(some).Draw(rt, "at")))
	}
	for range rapid.IntRange(0, 3).Draw(rt, "holds") {
		from := rapid.IntRange(0, 400).Draw(rt, "held from")
		m.held = append(m.held, [2]int{from, from + rapid.IntRange(0, 40).Draw(rt, "held")})
	}
	for range rapid.IntRange(0, 25).Draw(rt, "deeds") {
		m.deeds = append(m.deeds, m.drawDeed(rt))
	}
	return m
}

func (m *mixture) drawDeed(rt *rapid.T) string {
	from := rapid.IntRange(0, 400).Draw(rt, "from")
	these := fmt.Sprintf("where n between %d and %d", from, from+rapid.IntRange(0, 30).Draw(rt, "many"))
	deed := rapid.SampledFrom([]string{
		"update t set at = now() ", "update t set at = now() - interval '400 days' ", "update t set color = 'red' ", "delete from t ", "update t set color = 'blue' ",
		"select from t ", "insert", "load", "vacuum full t", "cluster",
	}).Draw(rt, "deed")
	switch deed {
	case "insert":
		return m.insert(fmt.Sprintf("(%d, now() - interval '500 days')", 1000+from*100+len(m.deeds)))
	case "load": // into one instant
		return m.insert(fmt.Sprintf("(select x, '2001-01-01'::timestamptz from generate_series(%d, %[1]d + 60) x)", 100000+from*10000+len(m.deeds)*100))
	case "vacuum full t", "cluster":
		return deed
	case "select from t ":
		return deed + these + " for update skip locked"
	}
	return deed + these
}

func (m *mixture) insert(rows string) string {
	if !strings.HasPrefix(rows, "(select") {
		rows = "(values " + rows + ")"
	}
	return fmt.Sprintf("insert into t select %s, n, at::timestamptz from %s v(n, at) on conflict do nothing", m.key[1], rows)
}

func (m *mixture) policy() string {
	expire := "{column: at, after: 30 days}"
	if m.ttl {
		expire = "{column: at, ttl_column: ttl}"
	}
	return fmt.Sprintf("  - {name: p, table: %s.t, expire: %s, %s}\n", m.schema, expire, strings.Join(m.entry, ", "))
}

// falls is SQL of the instant when a row falls due.
func (m *mixture) falls() string {
	if m.ttl {
		return "at + ttl"
	}
	return "at + interval '30 days'"
}

func (m *mixture) create(t *testing.T, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, "grant create on database "+db.Name+" to "+appRole, "alter database "+db.Name+" set default_transaction_isolation = '"+m.defaults+"'")
	more := map[string]string{"": "", "range": " partition by range (at)", "hash": " partition by hash (" + m.key[2] + ")"}[m.parts]
	key := m.key[2]
	if m.parts == "range" {
		key += ", at"
	}
	all := []string{"create schema " + m.schema, "set search_path = " + m.schema, "create table t (" + m.key[0] + ", n bigint, at timestamptz, color text, ttl interval generated always as (case n % 9 when 0 then interval '300 years' else interval '30 days' end) stored, primary key (" + key + "))" + more}
	for i := range 3 {
		switch bound := func(n int) string { return time.Now().AddDate(0, 0, []int{-90, -60, -31, 0}[n]).Format(time.DateOnly) }; m.parts {
		case "hash":
			all = append(all, fmt.Sprintf("create table t%d partition of t for values with (modulus 3, remainder %[1]d)", i))
		case "range":
			all = append(all, fmt.Sprintf("create table t%d partition of t for values from ('%s') to ('%s')", i, bound(i), bound(i+1)))
		}
	}
	if m.parts == "range" {
		all = append(all, "create table td partition of t default")
	}
	if len(m.rows) > 0 {
		all = append(all, m.insert(strings.Join(m.rows, ", ")))
	}
	all = append(all, "create index on t (at, "+m.key[2]+")")
	switch m.resist {
	case "trigger":
		all = append(all, `create function refuse() returns trigger language plpgsql as $$ begin if old.n % 17 = 0 and old.color is null then raise exception 'no'; end if; return old; end $$`,
			"create trigger refuse before delete on t for each row execute function refuse()")
	case "foreign key", "deferred":
		all = append(all, "create table child as select "+key+" from t where n % 17 = 0",
			"alter table child add foreign key ("+key+") references t"+map[bool]string{true: " deferrable initially deferred"}[m.resist == "deferred"],
			"create index on child ("+key+")")
	}
	owned(t, db, all...)
}
