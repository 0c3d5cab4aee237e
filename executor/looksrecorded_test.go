package executor

import (
	"testing"
	"time"

	"lapse/internal/pgtest"
)

// If it cannot be recorded for one policy that nothing is due, the others' records are not lost: each looks alone, and its error is its own.
func TestLooksTogetherThatCannotBeRecordedAreRecordedAlone(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w, turns := idlers(t, db, 3)
		db.Exec(t, "delete from lapse.looked", `create function public.refuse() returns trigger language plpgsql as 'begin if new.policy_id = 2 then raise exception ''no''; end if; return new; end'`,
			"create trigger refuse before insert on lapse.looked for each row execute function public.refuse()")
		now := w.now().Add(2 * lookedInterval)
		w.now = func() time.Time { return now }
		for _, turn := range turns {
			turn.memory.quiet.share(true, now)
		}
		w.looks(t.Context(), turns)
		for _, turn := range turns {
			if turn.memory.quiet.mayShare(now) || turn.workers != 0 {
				t.Errorf("%s shares its next look, or is in a turn", turn.policy.Name)
			}
			_, _, err := w.look(t.Context(), turn)
			if (err != nil) != (turn.policy.ID == 2) {
				t.Errorf("alone the look of %s ends with %v", turn.policy.Name, err)
			}
		}
		if n := one[int](t, db, "select count(*) from lapse.looked"); n != 2 {
			t.Errorf("%d looks are recorded", n)
		}
		if turns[0].memory.quiet.mayShare(now.Add(sharedInterval/2)) || !turns[0].memory.quiet.mayShare(now.Add(sharedInterval)) {
			t.Error("they share again too soon, or never")
		}
		if turns[0].memory.quiet.mayShare(now.Add(sharedInterval + time.Second)) {
			t.Error("a policy that has not looked for long shares its look")
		}
	})
}
