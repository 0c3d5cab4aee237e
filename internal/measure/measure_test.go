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
		t.Errorf("it took %v, of which an ended child took %v", spent(), took)
	}
}
