package main

import (
	"testing"

	"lapse/internal/pgtest"
)

func TestTheSlotFollowsToAStandbyWhereTheServerCanDoThat(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		newDesk(t, db, db.URL)
		var failover *bool
		err := db.Connect(t).QueryRow(t.Context(),
			`select (to_jsonb(s) ->> 'failover')::boolean from pg_replication_slots s where s.slot_name = 'lapse_' || current_database()`).
			Scan(&failover)
		if err != nil {
			t.Fatal(err)
		}
		if db.Major < 17 && failover != nil || db.Major >= 17 && (failover == nil || !*failover) {
			t.Errorf("PostgreSQL %d: failover is %v", db.Major, failover)
		}
	})
}
