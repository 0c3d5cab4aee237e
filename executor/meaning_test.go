package executor

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/fixture"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// meansChange is a change to what a policy's where or expression reads, by the table's owner. {} is the table.
type meansChange struct {
	ddl    string // before apply: column c is made what it is
	reads  string // the policy's where, or its expression
	change string
	says   string // what the refusal names; "" where the policy goes on
}

const (
	labeled = `create type {}_e as enum ('open', 'closed', 'kept'); alter table {} alter column c type {}_e using 'open'`
	ordered = `c < 'kept'`
	isOpen  = `c = 'open'`
)

func meansChanges() map[string]meansChange {
	const swap = `alter type {}_e rename value 'open' to 'x'; alter type {}_e rename value 'kept' to 'open'; alter type {}_e rename value 'x' to 'kept'`
	const text = `alter table {} alter column c type text using 'open'`
	return map[string]meansChange{
		"renamed":   {labeled, `c::text <> 'kept'`, `alter type {}_e rename value 'kept' to 'retained'`, "c"},
		"swapped":   {labeled, isOpen, swap, "c"},
		"replaced":  {labeled, `c::text <> 'kept'`, `alter type {}_e rename value 'kept' to 'x'; alter type {}_e add value 'kept'`, "c"},
		"otherenum": {labeled, ordered, `alter type {}_e rename to {}_f; create type {}_e as enum ('kept', 'open', 'closed'); alter table {} alter column c type {}_e using c::text::{}_e`, "c"},
		"arrayed": {
			`create type {}_e as enum ('open', 'closed', 'kept'); alter table {} alter column c type {}_e[] using '{open}'`,
			`'open' = any (c)`, swap, "c",
		},
		"domained": {
			`create type {}_e as enum ('open', 'closed', 'kept'); create domain {}_d as {}_e; alter table {} alter column c type {}_d using 'open'`,
			`c::text = 'open'`, swap, "c",
		},
		"nested": {
			`create type {}_e as enum ('open', 'closed', 'kept'); create domain {}_d as {}_e[]; create domain {}_dd as {}_d; alter table {} alter column c type {}_dd using '{open}'`,
			`c::text like '%open%'`, swap, "c",
		},
		"collated":  {text, `c >= 'P'`, `alter table {} alter column c type text collate "und-x-icu"`, "c"},
		"refreshed": {`create collation {}_c (provider = icu, locale = 'und'); alter table {} alter column c type text collate {}_c using 'open'`, `c < 'P'`, `alter collation {}_c rename to {}_cc`, "c"},
		"locale": {
			`create collation {}_c (provider = icu, locale = 'de'); alter table {} alter column c type text collate {}_c using 'open'`, `c < 'P'`,
			`alter table {} alter column c type text; drop collation {}_c; create collation {}_c (provider = icu, locale = 'sv'); alter table {} alter column c type text collate {}_c`, "c",
		},
		"casted": {labeled, `c::text = 'open'`, `create function {}_f({}_e) returns varchar immutable language sql as $$select 'open'$$; create cast ({}_e as varchar) with function {}_f({}_e)`, "c"},
		"castto": {
			labeled, `c = d::text::{}_e`,
			`create function {}_f(text) returns {}_e immutable language plpgsql as $$begin return 'open'::public.{}_e;end$$; create cast (text as {}_e) with function {}_f(text)`, "c",
		},
		"expressed": {labeled, `expression: case when c::text = 'open' then at + interval '30 days' end`, swap, "c"},

		"added":     {labeled, ordered, `alter type {}_e add value 'fresh' before 'closed'`, ""},
		"many":      {labeled, ordered, `alter type {}_e add value 'a' before 'closed'; alter type {}_e add value 'b' before 'closed'`, ""},
		"unread":    {labeled, `d > 0`, swap, ""},
		"unreadcol": {text, `d > 0`, `alter table {} alter column c type text collate "C"`, ""},
		"checked":   {`create domain {}_d as text; alter table {} alter column c type {}_d using 'open'`, isOpen, `alter domain {}_d add check (value <> '')`, ""},
		"defaulted": {labeled, isOpen, `alter table {} alter column c set default 'open'; alter table {} add column more int; create index on {} (c)`, ""},
		"commented": {labeled, isOpen, `comment on type {}_e is 'states'; create type other_{}_e as enum ('a'); drop type other_{}_e`, ""},
	}
}

// entry is the policy on table n.
func (m *meansChange) entry(n string) string {
	reads := strings.ReplaceAll(m.reads, "{}", "public."+n)
	if instant, found := strings.CutPrefix(reads, "expression: "); found {
		return "  - {name: " + n + ", table: public." + n + ", state: armed, batch: 2, expire: {expression: \"" + instant + "\"}}\n"
	}
	return fixture.Policy(n, "public."+n, "at", "30 days", "state: armed", "batch: 2", "where: \""+reads+"\"")
}

// What a policy's where and expression read may come to mean something else under it: a label, a collation, a cast. The next batch
// is refused, and names the column and what to do. What changes no row's answer stops nothing.
//
//lapse:long
func TestAPolicyStopsWhenWhatItReadsComesToMeanSomethingElse(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		all := meansChanges()
		var entries []string
		for n, c := range all {
			owned(t, db, strings.ReplaceAll(`create table {} (id bigint primary key, at timestamptz, c text, d text);
				insert into {} select n, now() - interval '1 year', 'open', 'open' from generate_series(1, 10) n; create index on {} (at, id)`, "{}", n))
			if strings.HasPrefix(c.reads, "d > 0") {
				owned(t, db, strings.ReplaceAll(`alter table {} alter column d type int using 1`, "{}", n))
			}
			owned(t, db, strings.ReplaceAll(c.ddl, "{}", n))
			entries = append(entries, c.entry(n))
		}
		arm(t, db, policies(entries...))
		for n, c := range all {
			w := open(t, db, schemas.PolicyName(n))
			for range 2 {
				if _, err := w.batch(t, 1); err != nil {
					t.Fatalf("%s: %v", n, err)
				}
			}
			for _, sql := range strings.Split(strings.ReplaceAll(c.change, "{}", n), "; ") {
				owned(t, db, sql)
			}
			_, err := w.batch(t, 1)
			want := "3 4 5 6 7 8 9 10"
			if c.says == "" {
				if err != nil {
					t.Errorf("%s: %v", n, err)
				}
				want = "4 5 6 7 8 9 10"
			} else if refused := (*pgconn.PgError)(nil); !errors.As(err, &refused) || refused.Code != schemas.SQLStateColumns ||
				!strings.Contains(refused.Message, "public."+n) || !strings.Contains(refused.Message, c.says) || !strings.Contains(refused.Message, "lapse apply") {
				t.Errorf("%s: got %v, want a refusal that names the column and what to do", n, err)
			}
			if got := ids(t, db, n); got != want {
				t.Errorf("%s: rows %s stay, want %s", n, got, want)
			}
		}
	})
}
