package main

import "time"

// gauge tells when a topic's first and last records came, from readings of its end.
type gauge struct {
	want  int // records
	begun time.Time

	n           int // records at the last reading
	first, last time.Time
	half        time.Time // when half of them had come, with atHalf
	atHalf      int
}

const (
	shortestPause = 25 * time.Millisecond
	longestPause  = time.Second
	standstill    = 2 * time.Minute // without a record
)

// saw enters a reading.
func (g *gauge) saw(n int, at time.Time) {
	if n == g.n {
		return
	}
	if g.n == 0 {
		g.first = at
	}
	if g.n < g.want/2 && n >= g.want/2 {
		g.half, g.atHalf = at, n
	}
	g.n, g.last = n, at
}

// done says whether all have come.
func (g *gauge) done() bool { return g.n >= g.want }

// stalled reports whether none has come for a long time.
func (g *gauge) stalled(at time.Time) bool {
	since := g.begun
	if g.n > 0 {
		since = g.last
	}
	return at.Sub(since) > standstill
}

// pause is how long to wait until the next reading. The broker pays for each, as much as for thousands of records: so there are few, but at the
// beginning, where nothing is measured yet, and towards the end.
func (g *gauge) pause() time.Duration {
	took := g.last.Sub(g.first)
	if g.n == 0 || took <= 0 {
		return shortestPause
	}
	left := time.Duration(float64(took) * float64(g.want-g.n) / float64(g.n))
	return min(max(left/2, shortestPause), longestPause)
}

// seconds is the time from the first record to the last, no less than what a reading can tell.
func (g *gauge) seconds() float64 { return max(g.last.Sub(g.first), shortestPause).Seconds() }

// secondHalf is how fast the second half came, as a multiple of all.
func (g *gauge) secondHalf() float64 {
	if !g.last.After(g.half) {
		return 1
	}
	part := float64(g.n-g.atHalf) / float64(g.n)
	return part / g.last.Sub(g.half).Seconds() * g.seconds()
}
