package batch

import (
	"errors"
	"testing"

	"lapse/planner/functions"
)

func TestCountsThatDoNotAddUpAreRefused(t *testing.T) {
	t.Parallel()
	a := &Assignment{Lease: &Lease{Leaf: 7}, Cascades: []uint32{8}}
	for name, c := range map[string]struct {
		done   Result
		counts map[string]int64
	}{
		"more picked than allowed":          {Result{Picked: 11, Deleted: 11}, map[string]int64{"7": 11}},
		"more deleted than picked":          {Result{Picked: 5, Deleted: 6}, map[string]int64{"7": 6}},
		"more gone from the target":         {Result{Picked: 5, Deleted: 5}, map[string]int64{"7": 6}},
		"nothing said of the target":        {Result{Picked: 5, Deleted: 5}, map[string]int64{"8": 5}},
		"gone from what no claim names":     {Result{Picked: 5, Deleted: 5}, map[string]int64{"7": 5, "9": 1}},
		"gone from what is not a relation":  {Result{Picked: 5, Deleted: 5}, map[string]int64{"7": 5, "x": 1}},
		"gone from a relation out of range": {Result{Picked: 5, Deleted: 5}, map[string]int64{"7": 5, "4294967304": 1}},
	} {
		var wrong *CountsError
		if _, err := check(a, &c.done, c.counts, Order{Limit: 10, Shape: functions.ShapePick}); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cascaded, err := check(a, &Result{Picked: 5, Deleted: 4}, map[string]int64{"7": 4, "8": 3}, Order{Limit: 10, Shape: functions.ShapePick})
	if cascaded != 3 || err != nil {
		t.Errorf("right counts gave %d, %v", cascaded, err)
	}
	for deleted, fits := range map[int64]bool{20: true, 21: false} { // rows that came into a range meanwhile
		_, err := check(a, &Result{Picked: deleted, Deleted: deleted}, map[string]int64{"7": deleted}, Order{Limit: 10, Shape: functions.ShapeRange})
		if (err == nil) != fits {
			t.Errorf("a range of 10 rows that deleted %d: %v", deleted, err)
		}
	}
}
