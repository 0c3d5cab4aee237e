package measure

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestTheMedianOfAnEvenNumberLiesBetweenTheTwo(t *testing.T) {
	t.Parallel()
	if got, want := SpreadOf([]float64{4, 1, 3, 2}), (Spread{2.5, 1, 4}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := SpreadOf([]float64{3, 1, 2}), (Spread{2, 1, 3}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := SpreadOf(nil); got != (Spread{}) {
		t.Errorf("of nothing: %v", got)
	}
}

// A child counts while it runs and when it has ended.
func TestTheTimeOfAProcessHasItsChildrens(t *testing.T) {
	t.Parallel()
	before, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "sh", "-c", "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; read x")
	input, err := child.StdinPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	spent := func() time.Duration {
		t.Helper()
		after, err := CPU(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return after - before
	}
	for spent() < 50*time.Millisecond {
	}
	_ = input.Close()
	_ = child.Wait() // sh fails at the end of its input
	if took := child.ProcessState.UserTime(); spent() < took-2*tick {
		t.Errorf("it took %v, and an ended child %v of it", spent(), took)
	}
}

// Children end and are waited for all the time: none of them may be missing for a moment.
func TestTheTimeNeverGoesBack(t *testing.T) {
	t.Parallel()
	shell := exec.CommandContext(t.Context(), "sh", "-c", "while :; do sh -c 'i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done'; done")
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = shell.Process.Kill()
		_ = shell.Wait() // it was killed
	}()
	var last time.Duration
	for last < 500*time.Millisecond {
		spent, err := CPU(shell.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if spent < last {
			t.Fatalf("%v after %v", spent, last)
		}
		last = spent
	}
}

func TestThePeakOfAChildIsItsOwnAndNotItsParents(t *testing.T) {
	t.Parallel()
	large := make([]byte, 64<<20)
	for i := range large {
		large[i] = 1
	}
	if own, err := Peak(os.Getpid()); err != nil || own < int64(len(large)) {
		t.Errorf("%d, %v with %d in use", own, err, len(large))
	}
	child := exec.CommandContext(t.Context(), "cat")
	input, err := child.StdinPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	stop := WatchPeak(child.Process.Pid)
	_ = input.Close()
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
	if peak := stop(); peak <= 0 || peak >= int64(len(large)) {
		t.Errorf("%d of cat, beside %d of this process", peak, large[0])
	}
	if _, err := Peak(child.Process.Pid); err == nil {
		t.Error("a process that has ended has a peak")
	}
}
