package survey

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner/functions"
	"lapse/planner/record"
)

// If much is due, a leaf is cut into ranges of the column that its rows expire by, for several workers at once. The first range is open below and
// the last one above, so every row is in one of them. Rows whose column is NULL are in none, and never due. The cuts only affect how evenly the
// work is shared. lapse.open_run cuts the leaves that batches read in the order of their files, into ranges of pages.

const (
	rangesOfLeaf = 8    // that a leaf is cut into
	maxCuts      = 1024 // of a run: lapse.open_run takes no more
)

// Cut ends a range of a leaf, and begins the next: its instant is the last one of the former.
type Cut struct {
	Leaf uint32
	At   time.Time
}

// span is the distribution of a leaf's due rows: between two neighboring marks there are about equally many.
type span struct {
	Leaf        uint32      `json:"leaf"`
	Marks       []time.Time `json:"marks"`
	Rows        float64     `json:"rows"`        // that are due
	Of          float64     `json:"of"`          // that the leaf has
	Correlation *float64    `json:"correlation"` // of the column's order with that of the file
	Tie         float64     `json:"tie"`         // rows of the commonest value that is due
}

// cutSpans cuts each span into as many as parts ranges, with as many marks in each. It returns the cuts of a leaf in order.
func cutSpans(spans []span, parts int) (all []Cut) {
	for _, s := range spans {
		var last time.Time
		for i := 1; i < parts; i++ {
			at := i * len(s.Marks) / parts
			if at == 0 || !s.Marks[at].After(last) || len(all) == maxCuts {
				continue
			}
			last = s.Marks[at]
			all = append(all, Cut{s.Leaf, last})
		}
	}
	return all
}

// mostRanges is the largest number of ranges of a leaf.
func mostRanges(cuts []Cut) int {
	of, most := map[uint32]int{}, 0
	for _, c := range cuts {
		of[c.Leaf]++
		most = max(most, of[c.Leaf]+1)
	}
	return most
}

// MuchMayBeDue reports whether ReadBacklog is worth calling, by what is known without it: the policy's last run had much to delete, was of another
// version, or was long ago. A policy that finds little, however often, does not call it.
func MuchMayBeDue(p *record.InForce, now time.Time) bool {
	if p.Unfinished != nil || !p.Definition.Ranged() {
		return false
	}
	last := p.LastRun
	return last == nil || last.Version != p.Version || now.Sub(last.StartedAt) >= 24*time.Hour || p.LastPicked >= int64(functions.Backlog(p.Batch))
}

// Backlog says how to work off a run's leaves with much due.
type Backlog struct {
	Cuts  []Cut    // leaves that are cut into ranges
	Heaps []uint32 // leaves whose batches are best of ShapeHeap; none of them is in Cuts
	Due   int64    // rows that are due: PostgreSQL's estimate, or what the judgement has counted
}

// ReadBacklog plans how to work off a policy's leaves; the result is empty if not much is due. What a judgement has counted says it already.
// Otherwise it calls the policy's survey function, which plans and reads no row, over a session whose state does not matter.
func ReadBacklog(ctx context.Context, conn *pgx.Conn, p *record.InForce, now time.Time, judged *Judgement) (b Backlog, err error) {
	f := judged.counted
	if f == nil {
		if f, err = callInForce(ctx, conn, &p.Definition, now, upTo(0)); err != nil {
			return b, fmt.Errorf("check the backlog of policy %s: %w", p.Name, err)
		}
	}
	var found plan
	if found, err = f.read(); err != nil {
		return b, err
	}
	b.Due, b.Heaps = f.Due, heaps(f.Spans, found, p.Definition.Condition().Certain())
	b.Cuts = cutSpans(slices.DeleteFunc(slices.Clone(f.Spans), func(s span) bool { return slices.Contains(b.Heaps, s.Leaf) }), rangesOfLeaf)
	return b, nil
}

// A leaf's batches read its file in order if a good part of it is due, so that few rows are read in vain, and if the index would lead them back and
// forth over it: because its order is not the file's, or there is no index, or because many rows have one value: then the file would be read once
// for each value. Where rows within the bound need not be due, both passes read all of them, by an index for twice what the file's order costs: so the
// file is read, too, if most of its rows are within the bound.
const (
	heapPart        = 0.1 // of the leaf's rows that are due; in that order reading a row costs a fifteenth of a deletion
	heapMost        = 0.3 // the same where they need not be due: PostgreSQL takes half of those within the bound for due
	heapCorrelation = 0.7 // below it the index's order is not the file's
	heapTie         = 10000
)

// heaps are the leaves with much due whose batches should use ShapeHeap. found is how the largest leaf's rows would be found; certain is
// whether all rows within the bound are due.
func heaps(spans []span, found plan, certain bool) (leaves []uint32) {
	method, _ := found.method(false)
	for _, s := range spans {
		scattered := s.Correlation != nil && math.Abs(*s.Correlation) < heapCorrelation
		if s.Of > 0 && s.Rows >= heapPart*s.Of && (scattered || s.Tie >= heapTie || method == Sequential || !certain && s.Rows >= heapMost*s.Of) {
			leaves = append(leaves, s.Leaf)
		}
	}
	return leaves
}
