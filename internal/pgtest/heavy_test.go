package pgtest

import (
	"slices"
	"testing"
)

func TestAHeavyTestRunsOnItsNewestMajorOrOnTheOlderOnesThatAreAskedFor(t *testing.T) {
	t.Parallel()
	all := []int{14, 15, 16, 17, 18}
	for _, test := range []struct{ wanted, majors, want []int }{
		{all, []int{14, 18}, []int{18}},
		{all[:4], []int{14, 18}, []int{14}},
		{[]int{14}, []int{14, 18}, []int{14}},
		{all[:4], []int{17, 18}, []int{17}},
		{all, []int{14, 16, 18}, []int{18}},
		{all[:4], []int{14, 16, 18}, []int{14, 16}},
		{[]int{16}, []int{14, 18}, []int{14, 18}},
	} {
		if got := heaviest(test.wanted, test.majors); !slices.Equal(got, test.want) {
			t.Errorf("of %d with %d asked for: %d, want %d", test.majors, test.wanted, got, test.want)
		}
	}
}
