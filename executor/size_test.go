package executor

import (
	"math/rand/v2"
	"testing"
	"time"
)

// wantedTime is what the rows of a batch are to take here.
const wantedTime = 2 * time.Millisecond

// batchesOf lets a size find itself on a server where a batch takes so long, and returns the last forty sizes, without those that are tried for the sake of the line.
func batchesOf(took func(rows int) time.Duration, batches, largest int) []int {
	var b batchSize
	var sizes []int
	for range batches {
		rows := b.nextGentle(largest)
		b.learnGentle(rows, took(rows), wantedTime)
		if b.given%probeEvery != 0 {
			sizes = append(sizes, rows)
		}
	}
	return sizes[len(sizes)-40:]
}

func TestTheRowsOfAGentleBatchTakeTheWantedTimeWhateverABatchCostsBeside(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fixed, row  time.Duration
		noise       float64
		largest     int
		least, most int
	}{
		"cheap rows, costly checks":   {20 * time.Millisecond, 5 * time.Microsecond, 0, 5000, 160, 1600},
		"cheap rows, no checks":       {0, 5 * time.Microsecond, 0, 5000, 180, 420},
		"usual, noisy":                {time.Millisecond, 10 * time.Microsecond, 0.5, 5000, 40, 800},
		"on a busy machine":           {1500 * time.Microsecond, 8 * time.Microsecond, 3, 5000, 50, 1000},
		"costly rows":                 {time.Millisecond, 10 * time.Millisecond, 0, 5000, 1, 4},
		"no more than the policy has": {time.Millisecond, 5 * time.Microsecond, 0, 30, 30, 30},
		"a row at a time":             {time.Millisecond, 5 * time.Microsecond, 0, 1, 1, 1},
	} {
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's noise
		sizes := batchesOf(func(rows int) time.Duration {
			took := float64(c.fixed + time.Duration(rows)*c.row)
			return time.Duration(took * (1 + c.noise*random.ExpFloat64()))
		}, 600, c.largest)
		for _, rows := range sizes {
			if rows < c.least || rows > c.most {
				t.Errorf("%s: batches of %v rows, want %d to %d", name, sizes, c.least, c.most)
				break
			}
		}
	}
}

func TestAGentleSizeFollowsWhatRowsCost(t *testing.T) {
	t.Parallel()
	n := 0
	row := func() time.Duration {
		if n++; n > 100 {
			return 100 * time.Microsecond
		}
		return 5 * time.Microsecond
	}
	for _, rows := range batchesOf(func(rows int) time.Duration { return time.Millisecond + time.Duration(rows)*row() }, 250, 5000) {
		if rows > 60 {
			t.Errorf("batches of %d rows of 100 µs each", rows)
		}
	}
}

func TestASizeThatWasHalvedToOneRowGrowsAgain(t *testing.T) {
	t.Parallel()
	var b batchSize
	for range 300 {
		rows := b.nextGentle(5000)
		b.learnGentle(rows, 5*time.Millisecond+time.Duration(rows)*10*time.Microsecond, wantedTime)
	}
	b.halve(2)
	for range 150 {
		rows := b.nextGentle(5000)
		b.learnGentle(rows, 5*time.Millisecond+time.Duration(rows)*10*time.Microsecond, wantedTime)
	}
	if b.rows < 100 {
		t.Errorf("it is %d rows, want about 200", b.rows)
	}
}

func TestWhileARowIsLookedForBatchesAreHalvedAndNothingElse(t *testing.T) {
	t.Parallel()
	b := batchSize{rows: 512}
	for want := 512; want > 1; want /= 2 {
		rows := b.nextGentle(5000)
		if rows != want {
			t.Fatalf("a batch of %d rows, want %d", rows, want)
		}
		b.halve(rows)
	}
}

func TestAPolicysFirstBatchesAreSmallAndABatchIsAtMostTwiceOrFourTimesTheFormer(t *testing.T) {
	t.Parallel()
	var gentle, unlimited batchSize
	formerG, formerU := firstBatch, firstBatch
	for n := range 12 {
		g, u := gentle.nextGentle(20_000), unlimited.next(20_000)
		if n == 0 && (g != firstBatch || u != firstBatch) {
			t.Errorf("the first batches are %d and %d rows, want %d", g, u, firstBatch)
		}
		if n < probeEvery-1 && g > 2*formerG || u > 4*formerU { // then a probe, and after it the size that it was tried for
			t.Errorf("batch %d is %d rows after %d, or %d after %d", n, g, formerG, u, formerU)
		}
		gentle.learnGentle(g, time.Nanosecond, wantedTime)
		unlimited.learn(u, true, time.Nanosecond, 200*time.Millisecond)
		formerG, formerU = g, u
	}
	if unlimited.next(20_000) != 20_000 || gentle.nextGentle(20_000) != 20_000 {
		t.Error("they do not reach the largest batch")
	}
}
