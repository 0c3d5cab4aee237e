package planner

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lapse/internal/pgtest"
)

// Whatever a finding function returns, the deletion deletes no row but those that are due and need not stay.
func TestNothingThatFindReturnsMakesTheDeletionDeleteMore(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, past)
		w.apply(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		w.opens()
		p := w.named("p")
		w.rest(&p, "shop.sessions", "1 hour", []string{"35"})
		b := w.lease(p, w.open(&p))
		db.Exec(t, `create or replace function lapse.find_1_1(claim lapse.claim, work lapse.work, place lapse.place) returns lapse.aim language plpgsql stable as
			$$ begin return (select a from jsonb_populate_record(null::lapse.aim, current_setting('find.says')::jsonb) a); end $$`)
		w.do("grant usage on schema shop to " + testRoles.Executor + "; grant select on sessions to " + testRoles.Executor)
		deletes := func(says string, limit int) (deleted int64, stay int) {
			tx, err := w.exec.Begin(t.Context())
			must(t, err)
			defer func() { _ = tx.Rollback(t.Context()) }()
			_, err = tx.Exec(t.Context(), `select set_config('find.says', $1, true)`, says)
			must(t, err)
			b.Limit = limit
			got, err := w.callIn(tx, b, nil)
			if err != nil {
				return 0, 30 // all or nothing
			}
			must(t, tx.QueryRow(t.Context(), `select count(*) from shop.sessions where id < 30 or id = 35`).Scan(&stay))
			return got.Deleted, stay
		}
		if deleted, _ := deletes(`{"found_by": "page", "after": [null, "(0,0)"], "last": [null, "(4000,0)"], "counted": 60}`, 1000); deleted != 30 {
			t.Fatalf("%d rows are deleted of 30: the test shows nothing", deleted)
		}
		rapid.Check(t, func(rt *rapid.T) {
			says, limit := drawAim(rt), rapid.SampledFrom([]int{1, 10, 1000}).Draw(rt, "limit")
			if _, stay := deletes(says, limit); stay != 30 {
				rt.Fatalf("by %s it deletes %d rows that must stay", says, 30-stay)
			}
		})
	})
}

// drawAim draws what a finding function could return, as JSON: what ours would, and what it never would.
func drawAim(rt *rapid.T) string {
	text := func(name string, values ...string) string { return rapid.SampledFrom(values).Draw(rt, name) }
	place := func(name string) string {
		return text(name, `null`, `[]`, `["-infinity", "0"]`, `["infinity", "9223372036854775807"]`, `["4713-01-01 BC", "0"]`, `["now", "60"]`,
			`[null, "(0,0)"]`, `[null, "(4000,0)"]`, `["x' or true --", "0"]`, `[null, null]`, `["infinity", "(4000,0)", "0", "true"]`,
			`["2020-01-01", "(0,0)", "0", "true"]`, `["2020-01-01", "(4000,0)", "0", "false"]`, `["now", "(4000,0)", "0", "' or true --"]`)
	}
	rows := []string{}
	for n := rapid.IntRange(0, 60).Draw(rt, "rows"); n > 0; n-- {
		rows = append(rows, fmt.Sprintf(`"(0,%d)"`, n))
	}
	return fmt.Sprintf(`{"found_by": %s, "after": %s, "last": %s, "rows_at": [%s], "counted": %s, "ended": %s, "more": false, "again": %s, "key": %s}`,
		text("by", `"row"`, `"row"`, `"page"`, `"place"`, `"tie"`, `"beside"`, `"heap"`, `null`, `"' or true --"`), place("after"), place("last"), strings.Join(rows, ", "),
		text("counted", "0", "1", "30", "60", "1000000", "null"), text("ended", "true", "false", "null"), text("again", "true", "false", "null"), text("key", `null`, `["1"]`))
}
