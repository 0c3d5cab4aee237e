package main

import (
	"fmt"
	"slices"
	"strings"
)

// table is one as people have it, with the policy that half of its rows are due under.
type table struct {
	name     string // what -tables calls it
	title    string
	columns  string   // of shop.sessions
	values   string   // of a row; n is its number, at its time
	then     []string // what follows the rows, such as indexes
	expire   string   // the policy's, and what else it says
	due      string   // the same as a condition in SQL
	shuffled bool     // the rows do not lie in the order of their times
	snapshot bool     // an old one is held while rows are deleted
	leaves   int      // partitions by hash of the key; 0: it is not partitioned
	part     int      // of -rows, where the rows are large or a way is slow: one in so many
}

const (
	plainColumns = "id bigint primary key, user_id int not null, at timestamptz not null, note text not null"
	plainValues  = "n, n % 1000, at, repeat('x', 100)"
	byAt         = "create index on shop.sessions (at)"
	afterMonth   = "expire: {column: at, after: 30 days}"
	monthGone    = "at <= now() - interval '30 days'"
)

// plain is a table with a bigint key, which the others are variants of.
func plain(name, title string, change func(t *table)) table {
	t := table{name: name, title: title, columns: plainColumns, values: plainValues, then: []string{byAt}, expire: afterMonth, due: monthGone, part: 1}
	if change != nil {
		change(&t)
	}
	return t
}

// quick is how many tables -quick measures: the first ones.
const quick = 4

func tables() []table {
	return []table{
		plain("uuid", "uuid key, inserted at random, index (at)", func(t *table) {
			t.columns, t.shuffled = "id uuid primary key, user_id int not null, at timestamptz not null, note text not null", true
			t.values = "gen_random_uuid(), n % 1000, at, repeat('x', 100)"
		}),
		plain("bigint", "bigint key, clustered, index (at)", nil),
		plain("bigint-key", "the same, index (at, id)", func(t *table) { t.then = []string{"create index on shop.sessions (at, id)"} }),
		plain("wide", "bigint key, 900-byte rows, index (at) and three more", func(t *table) {
			t.columns, t.values, t.part = plainColumns+", amount numeric not null", "n, n % 1000, at, repeat('x', 860), n * 0.01", 2
			t.then = []string{byAt, "create index on shop.sessions (user_id)", "create index on shop.sessions (user_id, id)", "create index on shop.sessions (amount)"}
		}),
		plain("shuffled", "bigint key, shuffled, index (at)", func(t *table) { t.shuffled = true }),
		plain("composite", "key (tenant, id), clustered, index (at)", func(t *table) {
			t.columns = "tenant int, id bigint, at timestamptz not null, note text not null, primary key (tenant, id)"
			t.values = "n % 100, n, at, repeat('x', 100)"
		}),
		plain("text", "text key, clustered, index (at)", func(t *table) {
			t.columns, t.values = "id text primary key, at timestamptz not null, note text not null", "'session-' || md5(n::text), at, repeat('x', 100)"
		}),
		plain("where", "`where` that one row in five fails, clustered, index (at)", func(t *table) {
			t.columns, t.values = plainColumns+", status text not null", plainValues+", case when n % 5 = 0 then 'open' else 'closed' end"
			t.expire += "\n    where: \"status = 'closed'\""
			t.due += " and status = 'closed'"
		}),
		plain("ttl", "`ttl_column`, clustered, index (at)", func(t *table) {
			t.columns, t.values = plainColumns+", ttl int not null", plainValues+", 30 * 86400"
			t.expire = "expire: {column: at, ttl_column: ttl}"
			t.due = "at + ttl * interval '1 second' <= now()"
		}),
		plain("sidecar", "`sidecar` with a cascading foreign key, clustered, index (at)", func(t *table) {
			t.part = 4
			t.then = []string{
				"create table shop.expiry (id bigint primary key references shop.sessions on delete cascade, at timestamptz not null)",
				"insert into shop.expiry select id, at from shop.sessions", "create index on shop.expiry (at)",
			}
			t.expire = "expire: {sidecar: shop.expiry, column: at, after: 30 days}"
			t.due = "id in (select id from shop.expiry where " + monthGone + ")"
		}),
		plain("partitions", "100 partitions by hash, clustered, index (at)", func(t *table) { t.leaves = 100 }),
		plain("snapshot", "bigint key, clustered, index (at), an old snapshot held", func(t *table) { t.snapshot = true }),
		plain("ties", "a date: 30 days due with a thirtieth of the rows each, index (at)", func(t *table) {
			t.columns = strings.Replace(plainColumns, "timestamptz", "date", 1)
			t.due = "at <= current_date - 30"
		}),
		tie("tie", "a date: all due rows on one day, index (at)", false),
		tie("tie-scattered", "the same, rows in no order", true),
	}
}

// tie is a table in which all due rows have one value.
func tie(name, title string, shuffled bool) table {
	return plain(name, title, func(t *table) {
		t.columns, t.shuffled, t.due = strings.Replace(plainColumns, "timestamptz", "date", 1), shuffled, "at <= current_date - 30"
		t.values = "n, n % 1000, case when at <= now() - interval '30 days' then '2020-01-01' else at end, repeat('x', 100)"
	})
}

// chosenTables are those of some names.
func chosenTables(wanted []string) (chosen []table) {
	for _, t := range tables() {
		if slices.Contains(wanted, t.name) {
			chosen = append(chosen, t)
		}
	}
	return chosen
}

// rows is how many it has, where a table of plain rows has n.
func (t *table) rows(n int) int { return n / t.part }

// create are the statements that make it. None of its rows falls due, or is no longer due, while others are measured: their
// times leave out the two days around the month that they stay for.
func (t *table) create(rows int) []string {
	order := "n"
	if t.shuffled {
		order = fmt.Sprintf("(n::bigint * 7919) %% %d + 1", rows)
	}
	made := "create table shop.sessions (" + t.columns + ")"
	if t.leaves > 0 {
		made += " partition by hash (id)"
	}
	statements := []string{"create schema shop", "create role app", "alter schema shop owner to app", "set role app", made}
	for i := range t.leaves {
		statements = append(statements, fmt.Sprintf("create table shop.sessions_%d partition of shop.sessions for values with (modulus %d, remainder %[1]d)", i, t.leaves))
	}
	statements = append(statements, fmt.Sprintf(`insert into shop.sessions select %[1]s
		from (select n, now() - case when m <= %[2]d / 2 then interval '61 days' else interval '59 days' end + interval '60 days' * (m::float8 / %[2]d) as at
		        from (select n, %[3]s as m from generate_series(1, %[2]d) n) r) r`, t.values, rows, order))
	return append(append(statements, t.then...), "reset role", "vacuum analyze", "checkpoint")
}

// policy is the file of the table's policy.
func (t *table) policy() string {
	return "policies:\n  - name: bench\n    table: shop.sessions\n    state: armed\n    pace: unlimited\n    " + t.expire + "\n"
}
