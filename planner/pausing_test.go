package planner

import (
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/planner/change"
)

// What would run on other tables, and whether that can be found out at all, keeps nobody from pausing.
func TestPoliciesArePausedThoughTheirTablesCannotBeExamined(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	w := newWorld(t, db, sessions, `create table carts (id int primary key, last_seen timestamptz)`)
	file := policyText("shop.sessions", "last_seen", "30 days", "    state: armed") +
		"  - {name: carts, table: shop.carts, expire: {column: last_seen, after: 30 days}, state: armed}\n"
	w.armed(file)
	db.Exec(t, `create or replace function lapse.surroundings(leaves oid[], beside oid[], updates boolean)
		returns table (leaf oid, part text, relation oid, deletes boolean, stays boolean, class oid, object oid, name name) language plpgsql stable as 'begin raise exception ''too slow''; end'`)
	changes, err := w.difference(strings.ReplaceAll(file, "armed", "paused"), false)
	must(t, err)
	if len(changes) != 2 || changes[0].Kind != change.Restated || changes[1].Kind != change.Restated {
		t.Errorf("got %+v", changes)
	}
}
