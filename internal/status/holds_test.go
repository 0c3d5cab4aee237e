package status_test

import (
	"slices"
	"testing"

	"lapse/internal/fixture"
	"lapse/internal/pgtest"
	"lapse/internal/setup/holds"
	"lapse/internal/status"
)

// A hold whose release has become due is over although nobody has written that, and one that was moved counts where it is now: status
// has as many holds of each table as the list.
func TestStatusCountsTheHoldsThatTheListHas(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		db.Exec(t,
			`insert into lapse.hold (id, table_oid, table_name, columns, digest, matter, reason)
			 select n, n, 'public.old', '[]', sha256(n::text::bytea), 'm', 'r' from generate_series(1, 4) n`,
			`insert into lapse.hold_state (id, hold, state, enforced_until, reason) values
			 (1, 1, 'effective', null, ''), (2, 2, 'releasing', now() - interval '1 second', ''), (3, 3, 'releasing', now() + interval '1 day', '')`,
			`insert into lapse.hold_state (id, hold, state, reason, table_oid, table_name, columns) values (4, 4, 'requested', '', 44, 'public.new', '[]')`,
			`insert into lapse.hold_state (id, hold, state, reason) values (5, 4, 'effective', '')`)
		conn := db.Connect(t)
		s, err := status.Read(t.Context(), conn, "", "")
		fixture.Must(t, err)
		if want := []status.HeldTable{{Table: "public.new", Holds: 1}, {Table: "public.old", Holds: 2}}; !slices.Equal(s.Holds, want) {
			t.Errorf("status has %+v, want %+v", s.Holds, want)
		}
		listed, err := holds.Read(t.Context(), conn, false)
		fixture.Must(t, err)
		if len(listed) != 3 {
			t.Errorf("the list has %d", len(listed))
		}
	})
}
