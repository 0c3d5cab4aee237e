package change

import (
	"fmt"
	"testing"

	"lapse/planner/record"
)

// Each standing, each state in the file and each version beside what was accepted has a rule, and what it leads to is never more
// than a person said yes to.
func TestEveryCaseHasARuleThatArmsNothingOfItself(t *testing.T) {
	t.Parallel()
	used := map[int]bool{}
	for _, s := range []says{saysNothing, saysObserving, saysPaused, saysArmed} {
		for _, p := range []standing{isAbsent, isIdle, isWaiting, isHalted, isLive} {
			for _, next := range []compared{isSame, isNoMore, isWider, isOther} {
				if next == isSame && p != isLive || next == isWider && p == isAbsent {
					continue // there is no such case
				}
				o := becomes(s, p, next)
				for i := range rules {
					if r := &rules[i]; r.says&s != 0 && r.standing&p != 0 && r.next&next != 0 {
						used[i] = true
						break
					}
				}
				deletes := record.Live(o.state) || o.state == "" && p == isLive
				name := fmt.Sprintf("says %b, standing %b, compared %b: %+v", s, p, next, o)
				if next&isMore != 0 && deletes && !o.goesOn {
					t.Errorf("%s: more than was accepted is armed", name)
				}
				if o.goesOn && (next != isWider || !o.held || p&(isLive|isHalted) == 0) {
					t.Errorf("%s: goes on, and what waits is not more of the same", name)
				}
				if (s == saysObserving || s == saysPaused) && (deletes || o.held) {
					t.Errorf("%s: the file says stop", name)
				}
				if o.state == "" && p == isAbsent {
					t.Errorf("%s: as it was, and it was not", name)
				}
			}
		}
	}
	for i := range rules {
		if !used[i] {
			t.Errorf("rule %d is for no case: %+v", i+1, rules[i])
		}
	}
}
