//go:build long

package executor

import (
	"testing"

	"lapse/internal/pgtest"
)

func TestFiftySmallPoliciesKeepTheirPeriodBesideTenMillionRows(t *testing.T) {
	db := pgtest.New(t, pgtest.Newest(t))
	f := fairness{big: 10_000_000, small: 50, every: 10, runs: 4, bigKeys: []string{"batch: 500"}}
	worst := f.judge(t, db)
	t.Logf("from one run of a small policy to the next it took %.2f periods at most", worst)
	if worst > 1.5 {
		t.Errorf("a small policy waited for %.2f of its periods", worst)
	}
}
