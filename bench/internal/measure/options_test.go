package measure

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

type fakeReport struct {
	Figures []int `json:"figures"`
}

func (r *fakeReport) Empty() bool           { return len(r.Figures) == 0 }
func (r *fakeReport) Print(io.Writer) error { return nil }

func TestWhatWasMeasuredUpToAnErrorIsReported(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, figures := range map[string][]int{"none": nil, "some": {1, 2}} {
		o := &Options{Rounds: 1, out: filepath.Join(t.TempDir(), "out", name+".json")}
		err := run(t.Context(), o, func() error { return nil }, func(context.Context) (*fakeReport, error) {
			return &fakeReport{figures}, broken
		})
		if !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
		text, err := os.ReadFile(o.out)
		if (err == nil) != (len(figures) > 0) || err == nil && strings.Join(strings.Fields(string(text)), "") != `{"figures":[1,2]}` {
			t.Errorf("%s: %s, %v", name, text, err)
		}
		if _, err := os.Stat(o.Dir); !os.IsNotExist(err) {
			t.Errorf("%s: %s is still there: %v", name, o.Dir, err)
		}
	}
}

func TestNothingIsMeasuredWithoutABinaryRoundsOrWithWrongFlags(t *testing.T) {
	t.Parallel()
	wrong := errors.New("wrong")
	for name, c := range map[string]struct {
		options Options
		check   error
	}{
		"no rounds": {Options{}, nil},
		"no binary": {Options{Rounds: 1, Lapse: "/nowhere/lapse"}, nil},
		"a flag":    {Options{Rounds: 1}, wrong},
	} {
		measured := false
		err := run(t.Context(), &c.options, func() error { return c.check }, func(context.Context) (*fakeReport, error) {
			measured = true
			return &fakeReport{}, nil
		})
		if err == nil || measured {
			t.Errorf("%s: measured %v, %v", name, measured, err)
		}
	}
}

type word string

func (w word) String() string { return string(w) }

func TestTheWaysChangePlacesAndWarmingRoundsDoNotCount(t *testing.T) {
	t.Parallel()
	var order []string
	var progress strings.Builder
	samples, err := Rounds(&Options{Rounds: 2, Progress: &progress}, 1, []string{"a", "b"}, func(way string) (word, error) {
		order = append(order, way)
		return word(strings.Join(order, "")), nil
	})
	if err != nil || strings.Join(order, "") != "abbaab" {
		t.Errorf("%v, %v", order, err)
	}
	if !slices.Equal(samples["a"], []word{"abba", "abbaa"}) || !slices.Equal(samples["b"], []word{"abb", "abbaab"}) {
		t.Errorf("%v", samples)
	}
	if got := progress.String(); !strings.HasPrefix(got, "  round 0, a: a\n  round 0, b: ab\n  round 1, b: abb\n") {
		t.Error(got)
	}
}
