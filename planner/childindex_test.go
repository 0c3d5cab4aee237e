package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
)

func TestAForeignKeyWithoutAnIndexIsNamedWithItsIndex(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db,
			`create table sessions (id bigint, region text, last_seen timestamptz, primary key (id, region))`,
			`create index on sessions (last_seen, id, region)`)
		const key = `foreign key (s, r) references sessions (id, region) `
		served := map[string]string{
			"in order":            `(s, r)`,
			"in another order":    `(r, s)`,
			"with more after":     `(r, s, n)`,
			"with more included":  `(s, r) include (n)`,
			"of what is not null": `(s, r) where s is not null`,
		}
		n := 0
		for _, index := range served {
			n++
			w.do(fmt.Sprintf(`create table good%d (n int primary key, s bigint, r text, %s on delete cascade)`, n, key))
			w.do(fmt.Sprintf(`create index on good%d %s`, n, index))
		}
		bare := map[string]string{ // the child's index, and what follows the foreign key
			"none":           ``,
			"one column":     `create index on %s (s)`,
			"not leading":    `create index on %s (n, s, r)`,
			"other rows":     `create index on %s (s, r) where n > 0`,
			"both not null":  `create index on %s (s, r) where s is not null and n > 0`,
			"another column": `create index on %s (s, r) where n is not null`,
			"of hashes":      `create index on %s using hash (s)`,
			"an expression":  `create index on %s (s, lower(r))`,
		}
		for i, action := range []string{"cascade", "set null", "set default", "restrict", "no action"} {
			child := fmt.Sprintf(`bad%d`, i)
			w.do(fmt.Sprintf(`create table %s (n int, s bigint, r text, %s on delete %s)`, child, key, action))
		}
		n = 10
		for _, index := range bare {
			n++
			child := fmt.Sprintf("bad%d", n)
			w.do(fmt.Sprintf(`create table %s (n int, s bigint, r text, %s)`, child, key))
			if index != "" {
				w.do(fmt.Sprintf(index, child))
			}
		}
		// Below a cascade, on a partitioned child with one partition that lacks it, and on the table itself.
		w.do(`alter table good1 add unique (s)`)
		w.do(`create table "Deep"(n int references good1 on delete set null)`)
		w.do(`create table parts (r text, s bigint, ` + key + `) partition by list (r)`)
		w.do(`create table parts_eu (s bigint, r text)`)
		w.do(`alter table parts attach partition parts_eu for values in ('eu')`)
		w.do(`create table parts_us partition of parts for values in ('us')`)
		w.do(`create index on parts_eu (r, s)`)
		w.do(`alter table sessions add column up bigint, add column up_region text, add foreign key (up, up_region) references sessions (id, region)`)

		changes, err := w.difference(policyText("shop.sessions", "last_seen", "30 days"), false)
		must(t, err)
		warnings := ofIndexes(changes[0].Warnings)
		var tables []string
		for _, warning := range warnings {
			_, rest, _ := strings.Cut(warning, "foreign key ")
			_, rest, _ = strings.Cut(rest, " of shop.")
			table, _, _ := strings.Cut(rest, ",")
			tables = append(tables, table)
		}
		want := `"Deep" bad0 bad1 bad11 bad12 bad13 bad14 bad15 bad16 bad17 bad18 bad2 bad3 bad4 parts on shop.parts_us sessions`
		if got := strings.Join(tables, " "); got != want {
			t.Errorf("warned of %s\nwant      %s", got, want)
		}
		for _, want := range []string{
			` on shop.bad0 (s, r);`, ` on shop."Deep" (n);`,
			`of shop."Deep", so that each row deleted from shop.good1 reads the whole of it`, ` on shop.parts_us (s, r);`,
		} {
			if !strings.Contains(strings.Join(warnings, "\n"), want) {
				t.Errorf("no warning says %q:\n%s", want, strings.Join(warnings, "\n"))
			}
		}
		// The statement is one that helps, and plan says the same as apply.
		w.do(`create index on shop.bad0 (s, r)`)
		w.apply(policyText("shop.sessions", "last_seen", "30 days"))
		s, err := surveyInForce(t.Context(), w.exec, &w.inForce()[0], time.Time{})
		must(t, err)
		if said := ofIndexes(s.Warnings); len(said) != len(warnings)-1 || strings.Contains(strings.Join(said, "\n"), "bad0") {
			t.Errorf("plan warns of\n%s", strings.Join(said, "\n"))
		}
	})
}

// ofIndexes are those of warnings that are about foreign keys without an index.
func ofIndexes(warnings []string) []string {
	return slices.DeleteFunc(slices.Clone(warnings), func(w string) bool { return !strings.HasPrefix(w, "no index serves foreign key ") })
}
