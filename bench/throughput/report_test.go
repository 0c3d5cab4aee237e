package main

import "testing"

func TestARatioAboveOneSaysThatAfterIsFaster(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		before, after float64
		less          bool
		want          float64
	}{{2, 6, false, 3}, {6, 2, true, 3}, {6, 2, false, 1. / 3}, {0, 2, false, 0}} {
		if got := ratio(c.before, c.after, c.less); got != c.want {
			t.Errorf("before %v, after %v, less is better: %v: %v, want %v", c.before, c.after, c.less, got, c.want)
		}
	}
}
