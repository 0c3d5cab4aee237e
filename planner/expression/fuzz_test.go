package expression

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"lapse/internal/pgtest"
)

// What is taken apart can be put together again, on one line, and then is taken apart into the same.
func FuzzScan(f *testing.F) {
	for _, c := range accepted {
		f.Add(c.text)
	}
	for _, c := range turnedDown {
		f.Add(c.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tokens, problem := scan(text)
		if problem != "" {
			return
		}
		line, problem := oneLine(text)
		again, more := scan(line)
		same := slices.EqualFunc(tokens, again, func(a, b token) bool { return a.kind == b.kind && a.text == b.text })
		if problem != "" || more != "" || !same {
			t.Errorf("%q became %q (%s%s)", text, line, problem, more)
		}
		_, _ = qualifiedNames(tokens)
		if parts := Conjuncts(text); len(parts) == 0 {
			t.Errorf("%q has no part", text)
		}
	})
}

// No text of a tree makes the reader fail otherwise than by an error.
func FuzzReadTree(f *testing.F) {
	f.Add(`{OPEXPR :opno 98 :opfuncid 67 :opresulttype 16 :args ({VAR :varno 1 :varattno 3 :vartype 25} {CONST :consttype 25 :constvalue 10 [ 40 0 0 0 99 ]})}`)
	f.Add(`{NAMEDARGEXPR :name da\ ys :arg {A} :argnumber 0`)
	f.Fuzz(func(_ *testing.T, text string) {
		root, err := readTree(text)
		if err != nil {
			return
		}
		_, _ = usesOf(root)
		_ = root.columnNumbers()
	})
}

// pieces are what texts are made of that could be taken apart in two ways.
var pieces = []string{
	"'", `"`, `\`, "e'", "E'a\\'", "''", `""`, "$$", "$a$", "--", "/*", "*/", "\n", " ", "(", ")", "[", "]", ".", ",", ";", "::", "U&", "b'1'", "x'f'",
	"1", "1.", ".5e", "e1", "0x1", "a", "t", "shop", "status", " = ", "-", "+", "@", "operator", " or ", " and ", "true", "'x'", "ü", "_", "\t", "n'",
}

// A text that scan lets through cannot leave the parentheses that it is put in: whatever PostgreSQL makes of it, it is one
// constraint, or an error.
func TestNoTextLeavesItsParentheses(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		s := newSite(t, db)
		ctx := t.Context()
		_, err := s.admin.Exec(ctx, `create table public.outside (id int); create temporary table inside (status text, t text, a boolean)`, pgx.QueryExecModeSimpleProtocol)
		must(t, err)
		rapid.Check(t, func(rt *rapid.T) {
			text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 12).Draw(rt, "pieces"), "")
			if _, problem := scan(text); problem != "" {
				return
			}
			tx, err := s.admin.Begin(ctx)
			must(t, err)
			defer func() { must(t, tx.Rollback(ctx)) }()
			// In the simple protocol several statements may be here.
			_, err = tx.Exec(ctx, "alter table inside add constraint one check ("+text+") not valid, add constraint two check (true) not valid; drop table public.outside",
				pgx.QueryExecModeSimpleProtocol)
			if err != nil {
				return
			}
			var constraints, outside int
			must(t, tx.QueryRow(ctx, `select count(*), (select count(*) from pg_class where relname = 'outside') from pg_constraint where conrelid = 'inside'::regclass`,
				pgx.QueryExecModeSimpleProtocol).Scan(&constraints, &outside))
			if constraints != 2 || outside != 0 {
				rt.Errorf("%q made %d constraints, and left the rest of the statement out (%d)", text, constraints-1, outside)
			}
		})
	})
}
