package executor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"lapse/executor/guard"
	"lapse/planner/record"
	"lapse/schemas"
)

// always is a goal of policies that are always due.
type always struct {
	over bool
	idle func(*record.InForce) bool // shares; nil: none does
}

func (*always) lastLines() []reportLine { return nil }
func (*always) listed([]record.InForce, *guard.Answer, func(schemas.PolicyID) bool) error {
	return nil
}
func (*always) due(*record.InForce) (time.Time, bool) { return time.Time{}, true }
func (a *always) shares(p *record.InForce) bool       { return a.idle != nil && a.idle(p) }
func (*always) whole(*record.InForce) bool            { return false }
func (*always) ended(*turn)                           {}
func (a *always) reached() bool                       { return a.over }
func (*always) reread() time.Duration                 { return time.Hour }
func (*always) patience() time.Duration               { return forever }
func (*always) outlasts(error, bool) bool             { return false }

// schedule makes a scheduler of n policies that are always due.
func schedule(n int) (*scheduler, []record.InForce) {
	list := make([]record.InForce, n)
	for i := range list {
		list[i].ID, list[i].Name = schemas.PolicyID(i), schemas.PolicyName(fmt.Sprint(i))
	}
	memory := func(*record.InForce) *policyMemory { return newPolicyMemory(&record.InForce{}, nil) }
	return newScheduler(&always{}, memory, func() time.Time { return time.Unix(1e9, 0) }), list
}

// step gives a worker its next turn. It reads the list on the way, and returns nil if the worker has to wait.
func step(t rapid.TB, s *scheduler, list []record.InForce) *turn {
	t.Helper()
	for range 3 {
		switch task := s.next(true); {
		case task.read:
			if err := s.list(list, guard.Answer{}); err != nil {
				t.Fatal(err)
			}
		default:
			return task.turn
		}
	}
	t.Fatal("the list is read again and again")
	return nil
}

// Two hundred policies, each checked every second, had an executor do nothing but read their list.
func TestReadingTheListTakesATenthOfTheTimeAtMost(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{
		0: 0, time.Millisecond: 9 * time.Millisecond, 20 * time.Millisecond: 180 * time.Millisecond, time.Minute: rereadInterval,
	} {
		s, list := schedule(1)
		now := time.Unix(1e9, 0)
		s.now = func() time.Time { return now }
		if task := s.next(true); !task.read {
			t.Fatalf("the first task is %+v, want to read", task)
		}
		now = now.Add(took)
		if err := s.list(list, guard.Answer{}); err != nil {
			t.Fatal(err)
		}
		read := now
		s.leave(s.next(true).turn, turnFinished)
		if want > 0 {
			if task := s.next(true); task.read || !task.until.Equal(read.Add(want)) {
				t.Errorf("a reading took %v, and the next task is %+v, want to wait for %v", took, task, want)
			}
		}
		now = read.Add(want)
		if task := s.next(true); !task.read {
			t.Errorf("a reading took %v, and %v after it nobody reads", took, want)
		}
	}
}

// Whatever the lengths of turns: no worker waits while a policy could have a turn, no policy has two, and none waits longer
// than one turn of each other policy.
func TestNoPolicyWaitsLongerThanTheTurnsBeforeIt(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policies, workers := rapid.IntRange(1, 12).Draw(t, "policies"), rapid.IntRange(1, 6).Draw(t, "workers")
		s, list := schedule(policies)
		var busy []*turn
		waiting := map[schemas.PolicyID]map[schemas.PolicyID]int{} // turns that others were given since a policy's last end
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			for len(busy) < workers {
				next := step(t, s, list)
				if next == nil {
					break
				}
				for _, other := range busy {
					if other.policy.ID == next.policy.ID {
						t.Fatalf("policy %d has two turns", next.policy.ID)
					}
				}
				delete(waiting, next.policy.ID)
				for id, since := range waiting {
					if since[next.policy.ID]++; since[next.policy.ID] > 1 {
						t.Fatalf("policy %d was given two turns while %d waited", next.policy.ID, id)
					}
				}
				busy = append(busy, next)
			}
			if want := min(policies, workers); len(busy) != want {
				t.Fatalf("%d turns at once, want %d", len(busy), want)
			}
			i := rapid.IntRange(0, len(busy)-1).Draw(t, "ends")
			s.leave(busy[i], turnMore)
			waiting[busy[i].policy.ID] = map[schemas.PolicyID]int{}
			busy = append(busy[:i], busy[i+1:]...)
		}
	})
}

func TestAWorkerHelpsOnlyWhereNoOtherPolicyIsDueAndAShardMayBeFree(t *testing.T) {
	t.Parallel()
	s, list := schedule(2)
	a, b := step(t, s, list), step(t, s, list)
	if a == nil || b == nil || a.policy.ID == b.policy.ID {
		t.Fatalf("the first two turns are %+v and %+v", a, b)
	}
	if got := step(t, s, list); got != nil {
		t.Fatal("somebody helps with a run that nobody has opened")
	}
	a.opened(&record.Run{ID: uuid.New(), Shards: 2}, 1000, time.Now().Add(time.Hour))
	b.opened(&record.Run{ID: uuid.New(), Shards: 1}, 1000, time.Now().Add(time.Hour))
	if got := step(t, s, list); got != a {
		t.Fatalf("the third worker got %+v, want to help with the run of two shards", got)
	}
	if got := step(t, s, list); got != nil {
		t.Fatal("a third worker helps with two shards")
	}
	// No shard is free for one of the two: it goes, and the other one sees to the end.
	if a.leaveUnlessLast() {
		t.Error("one of two workers takes itself for the last")
	}
	s.leave(a, turnLeft)
	if got := step(t, s, list); got != nil {
		t.Error("somebody helps where no shard was free")
	}
	if !a.leaveUnlessLast() {
		t.Error("the last worker does not know that it is")
	}
	s.leave(a, turnFinished)
	if got := step(t, s, list); got == nil || got.policy.ID != a.policy.ID || got == a {
		t.Errorf("after the end the next turn is %+v", got)
	}
}

func TestATurnEndsForAllItsWorkersWithTheGravestReason(t *testing.T) {
	t.Parallel()
	s, list := schedule(1)
	a := step(t, s, list)
	a.opened(&record.Run{ID: uuid.New(), Shards: 3}, 100, time.Now().Add(time.Hour))
	for range 2 {
		if step(t, s, list) != a {
			t.Fatal("nobody helps")
		}
	}
	// The share is everybody's.
	if a.spend(60, time.Now()) {
		t.Error("60 of 100 rows used it up")
	}
	if !a.spend(60, time.Now()) {
		t.Error("120 of 100 rows did not")
	}
	s.leave(a, turnMore)
	if !a.closed() {
		t.Error("the others do not see that the turn has ended")
	}
	s.leave(a, turnStopped)
	s.leave(a, turnGoesOn)
	if a.end != turnStopped || len(s.open) != 0 {
		t.Errorf("the turn ended with %v, %d are open", a.end, len(s.open))
	}
}

// A list that was read while a turn was under way says of its run what was.
func TestAListThatWasReadDuringATurnGivesItsPolicyNoOther(t *testing.T) {
	t.Parallel()
	s, list := schedule(2)
	a := step(t, s, list)
	b := step(t, s, list)
	s.leave(b, turnMore)
	if task := s.next(true); !task.read {
		t.Fatalf("after an end comes %+v, want another list", task)
	}
	s.leave(a, turnFinished) // during the reading
	if err := s.list(list, guard.Answer{}); err != nil {
		t.Fatal(err)
	}
	if task := s.next(true); task.turn == nil || task.turn.policy.ID != b.policy.ID {
		t.Errorf("the list gives %+v, want policy %d, whose turn had ended before", task, b.policy.ID)
	}
	if task := s.next(true); !task.read {
		t.Errorf("then comes %+v, want a list that was read after the turn", task)
	}
}

func TestAfterAFailedReadingNothingIsBegunBeforeTheNext(t *testing.T) {
	t.Parallel()
	s, list := schedule(1)
	clock := time.Now()
	s.now = func() time.Time { return clock }
	a := step(t, s, list)
	s.leave(a, turnMore)
	if task := s.next(true); !task.read {
		t.Fatalf("got %+v", task)
	}
	s.failed()
	task := s.next(true)
	if task.read || task.turn != nil || !task.until.After(clock) {
		t.Errorf("right after a failure: %+v, want to wait", task)
	}
	clock = task.until
	if task := s.next(false); !task.connect {
		t.Errorf("without a connection: %+v, want one", task)
	}
	if task := s.next(true); !task.read {
		t.Errorf("after the pause: %+v, want the list", task)
	}
}

func TestAWorkerThatWaitsIsWokenWhenSomethingChanges(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*scheduler, *turn){
		"a run is open":    func(s *scheduler, _ *turn) { s.ready() },
		"a turn ended":     func(s *scheduler, a *turn) { s.leave(a, turnMore) },
		"a reading failed": func(s *scheduler, _ *turn) { s.failed() },
		"there is a list": func(s *scheduler, _ *turn) {
			if err := s.list(nil, guard.Answer{}); err != nil {
				t.Error(err)
			}
		},
	} {
		s, list := schedule(1)
		a := step(t, s, list)
		waits := s.next(true)
		change(s, a)
		select {
		case <-waits.changed:
		default:
			t.Errorf("%s: nobody is woken", name)
		}
	}
}

func TestWhenTheGoalIsReachedEveryWorkerIsDone(t *testing.T) {
	t.Parallel()
	s, list := schedule(1)
	step(t, s, list)
	s.goal.(*always).over = true
	for _, connected := range []bool{true, false} {
		if task := s.next(connected); !task.over {
			t.Errorf("got %+v", task)
		}
	}
}

func TestATaskThatCannotBeBegunIsGivenBack(t *testing.T) {
	t.Parallel()
	e, err := New(Config{Database: nowhere(t), TagKey: testKey, Holder: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	s, list := schedule(1)
	w := e.newWorker(0, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.run(ctx); !errors.Is(err, ErrStopping) {
		t.Errorf("got %v", err)
	}
	a := step(t, s, list)
	w.drop(&task{turn: a})
	if len(s.open) != 0 {
		t.Error("the turn is still open")
	}
	if task := s.next(true); !task.read {
		t.Fatalf("got %+v", task)
	}
	w.drop(&task{read: true})
	if s.reading {
		t.Error("the reading is still under way")
	}
}
