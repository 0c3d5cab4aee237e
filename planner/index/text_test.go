package index

import (
	"fmt"
	"testing"
)

func TestExpressionsAreComparedWithoutWhatMeansNothing(t *testing.T) {
	t.Parallel()
	same := [][]string{
		{`(a)`, `a`, `(("a"))`, `t."a"`, `A`},
		{`(a + b) * c`, `((a + b) * c)`, `(t.a + t."b")*c`},
		{`a + b * c`},
		{`lower((a))`, `pg_catalog.lower(a)`, `LOWER ( a )`},
		{`"A"`},
		{`lower(("A")::text)`},
		{`a ->> 'B'::text`, `(a ->> 'B')`},
		{`a ->> 'b'`},
		{`'where ('`},
	}
	for i, group := range same {
		for _, one := range group {
			for j, other := range same {
				if got, want := normalise(one) == normalise(other[0]), i == j; got != want {
					t.Errorf("%s and %s: the same is %t, want %t (%s, %s)", one, other[0], got, want, normalise(one), normalise(other[0]))
				}
			}
		}
	}
	for condition, want := range map[string]int{"": 0, "a": 1, "(a and b) AND (c)": 3, "a and b or c": 1, "a between 1 and 2": 1, "'a and b' = c and d": 2} {
		if got := conjuncts(condition); len(got) != want {
			t.Errorf("%s has %q, want %d parts", condition, fmt.Sprint(got), want)
		}
	}
	if got := predicateOf(`CREATE INDEX "x where (" ON a USING btree (lower(' where ')) WITH (fillfactor='70') WHERE (b > 1)`); normalise(got) != "b > 1" {
		t.Errorf("got %q", got)
	}
}
