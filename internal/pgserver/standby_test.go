package pgserver_test

import (
	"context"
	"testing"

	"lapse/internal/pgserver"
)

func standby(t *testing.T, primary *pgserver.Server) *pgserver.Standby {
	t.Helper()
	standby, err := primary.Standby(t.Context(), "standby", nil)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, standby.Server)
	return standby
}

func TestAPromotionLosesWhatTheStandbyHadNotReceivedAndNothingElse(t *testing.T) {
	t.Parallel()
	on(t, []int{14, 18}, quiet, func(t *testing.T, primary *pgserver.Server) {
		exec1(t, primary, tableOfIDs)
		exec1(t, primary, makeSlot)
		standby := standby(t, primary)
		exec1(t, primary, `insert into ids values (1)`)
		if err := standby.WaitReplayed(t.Context(), flushed(t, primary)); err != nil {
			t.Fatal(err)
		}
		if a, b := identity(t, primary), identity(t, standby.Server); a != b {
			t.Errorf("the standby of %s is %s", a, b)
		}
		if err := standby.Detach(t.Context()); err != nil {
			t.Fatal(err)
		}
		exec1(t, primary, `insert into ids values (2)`)
		if err := standby.Attach(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := standby.WaitReplayed(t.Context(), flushed(t, primary)); err != nil {
			t.Fatal(err)
		}
		if err := standby.Detach(t.Context()); err != nil {
			t.Fatal(err)
		}
		exec1(t, primary, `insert into ids values (3)`)
		if err := primary.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := standby.Promote(t.Context()); err != nil {
			t.Fatal(err)
		}
		exec1(t, standby.Server, `insert into ids values (4)`)
		if got := query1(t, standby.Server, idsOf); got != "1,2,4" {
			t.Errorf("rows %q after the promotion, want all but the third", got)
		}
		if got := timeline(t, standby.Server); got != 2 {
			t.Errorf("timeline %d after the promotion, want 2", got)
		}
		if got := query1(t, standby.Server, slotsOf); got != "" {
			t.Errorf("slots %q: none of them could be there", got)
		}
		if err := standby.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := standby.Start(t.Context()); err != nil {
			t.Fatalf("start the promoted server again: %v", err)
		}
	})
}

func TestAFailoverSlotOutlivesThePromotion(t *testing.T) {
	t.Parallel()
	on(t, []int{17, 18}, quiet, func(t *testing.T, primary *pgserver.Server) {
		exec1(t, primary, tableOfIDs)
		standby := standby(t, primary)
		exec1(t, primary, `select pg_create_logical_replication_slot('kept', 'test_decoding', false, false, true)`)
		exec1(t, primary, `insert into ids values (1)`)
		read := func(context.Context) error {
			exec1(t, primary, `select count(*) from pg_logical_slot_get_changes('kept', null, null)`)
			return nil
		}
		if err := standby.WaitSlotSynced(t.Context(), "kept", read); err != nil {
			t.Fatal(err)
		}
		exec1(t, primary, `insert into ids values (2)`)
		if err := standby.WaitReplayed(t.Context(), flushed(t, primary)); err != nil {
			t.Fatal(err)
		}
		if err := primary.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := standby.Promote(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := query1(t, standby.Server, slotsOf); got != "kept" {
			t.Errorf("slots %q", got)
		}
		if got := query1(t, standby.Server, commitOf); got == "" {
			t.Error("the slot does not have what was not read")
		}
	})
}
