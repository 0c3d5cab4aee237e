package survey

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestALeafGoesByItsFileWhereItsIndexWouldLeadToAndFro(t *testing.T) {
	t.Parallel()
	scattered, inOrder := 0.01, -0.99
	indexed := plan{Node: "Limit", Plans: []plan{{Node: "Index Scan", Index: "i"}}}
	for name, c := range map[string]struct {
		span  span
		found plan
		sure  bool // all rows within the bound are due
		want  bool
	}{
		"in order":                    {span{Rows: 500, Of: 1000, Correlation: &inOrder}, indexed, true, false},
		"scattered":                   {span{Rows: 500, Of: 1000, Correlation: &scattered}, indexed, true, true},
		"scattered, little of it due": {span{Rows: 50, Of: 1000, Correlation: &scattered}, indexed, true, false},
		"nothing is known":            {span{Rows: 500, Of: -1, Correlation: &scattered}, indexed, true, false},
		"of no known order":           {span{Rows: 500, Of: 1000}, indexed, true, false},
		"without an index":            {span{Rows: 500, Of: 1000, Correlation: &inOrder}, plan{Node: "Seq Scan"}, true, true},
		"many of one value":           {span{Rows: 5e5, Of: 1e6, Correlation: &inOrder, Tie: 5e5}, indexed, true, true},
		"few of one value":            {span{Rows: 5e5, Of: 1e6, Correlation: &inOrder, Tie: 50}, indexed, true, false},
		"most need not be due":        {span{Rows: 350, Of: 1000, Correlation: &inOrder}, indexed, false, true},
		"some need not be due":        {span{Rows: 250, Of: 1000, Correlation: &inOrder}, indexed, false, false},
	} {
		c.span.Leaf = 7
		if got := heaps([]span{c.span}, c.found, c.sure); (len(got) == 1) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestCutsAreInOrderAndShareTheMarks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var spans []span
		for leaf := range rapid.IntRange(0, 200).Draw(rt, "leaves") {
			marks := make([]time.Time, rapid.IntRange(0, 30).Draw(rt, "marks"))
			for i := range marks {
				marks[i] = time.Unix(int64(i), 0)
			}
			spans = append(spans, span{Leaf: uint32(leaf), Marks: marks})
		}
		parts := rapid.IntRange(1, 12).Draw(rt, "parts")
		cuts := cutSpans(spans, parts)
		if len(cuts) > maxCuts || mostRanges(cuts) > max(parts, 1) {
			rt.Fatalf("%d cuts, %d ranges of a leaf", len(cuts), mostRanges(cuts))
		}
		at := 0
		for _, s := range spans {
			former := int64(0)
			for ; at < len(cuts) && cuts[at].Leaf == s.Leaf; at++ {
				here := cuts[at].At.Unix()
				if here <= former && here != 0 || here-former > int64(len(s.Marks)/parts+1) && len(s.Marks) >= parts {
					rt.Fatalf("a cut of %d marks into %d at %d after %d", len(s.Marks), parts, here, former)
				}
				former = here
			}
		}
		if at != len(cuts) {
			rt.Fatal("the cuts are not leaf by leaf")
		}
	})
}
