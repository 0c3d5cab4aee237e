package main

import (
	"math"
	"testing"
	"time"
)

// watchedTopic reads a topic in which so many records are after a time, as often as the gauge wants.
func watchedTopic(g *gauge, records func(since time.Duration) int) (looks int) {
	g.begun = time.Unix(1_800_000_000, 0)
	for at := g.begun; !g.done() && !g.stalled(at); at = at.Add(g.pause()) {
		g.saw(records(at.Sub(g.begun)), at)
		if g.n > 0 {
			looks++
		}
	}
	return looks
}

func TestTheClockRunsFromTheFirstRecordToTheLast(t *testing.T) {
	t.Parallel()
	g := &gauge{want: 1_000_000}
	looks := watchedTopic(g, func(since time.Duration) int { // 50,000 records a second after ten, and twice as many after twenty
		since -= 10 * time.Second
		return min(1_000_000, int(50_000*(max(0, since)+max(0, since-10*time.Second)).Seconds()))
	})
	if got := g.seconds(); math.Abs(got-15) > 0.1 {
		t.Errorf("it took %.3f s, want 15", got)
	}
	if got := g.secondHalf(); math.Abs(got-1.5) > 0.05 {
		t.Errorf("the second half came %.3f times as fast as all, want 1.5", got)
	}
	if got := g.first.Sub(g.begun); got < 10*time.Second || got > 10*time.Second+2*shortestPause {
		t.Errorf("the first came after %v", got)
	}
	if looks > 60 {
		t.Errorf("%d looks while it was measured", looks)
	}
}

func TestWhatComesAtOnceHasATime(t *testing.T) {
	t.Parallel()
	g := &gauge{want: 100}
	watchedTopic(g, func(since time.Duration) int {
		if since < time.Second {
			return 0
		}
		return 100
	})
	if g.seconds() != shortestPause.Seconds() || g.secondHalf() != 1 {
		t.Errorf("%v s, %v", g.seconds(), g.secondHalf())
	}
}

func TestATopicThatStandsStillIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int{"empty": 0, "half": 50} {
		g := &gauge{want: 100}
		watchedTopic(g, func(since time.Duration) int { return min(most, int(since/time.Second)) })
		if g.done() || g.n != most {
			t.Errorf("%s: %+v", name, g)
		}
	}
}
