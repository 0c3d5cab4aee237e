package main

import (
	"testing"
	"time"
)

func TestAPeriodIsOneOfThree(t *testing.T) {
	t.Parallel()
	for _, bad := range [][4]string{ // from, to, last, month
		{},
		{"", "2026-10-02"},
		{"2026-10-01", "", "30d"},
		{"2026-10-01", "", "", "2026-10"},
		{"", "", "30d", "2026-10"},
		{"", "2026-10-02", "30d"},
		{"", "2026-10-02", "", "2026-10"},
		{"2026-10-02", "2026-10-01"},
		{"2026-10-01", "2026-10-01"},
		{"2026-13-01"},
		{"2026-10-32"},
		{"yesterday"},
		{"end"},
		{"2026-10-01", "begin"},
		{"", "", "0d"},
		{"", "", "-3d"},
		{"", "", "1.5d"},
		{"", "", "d"},
		{"", "", "10000w"},
		{"", "", "99999999h"},
		{"", "", "30"},
		{"", "", "-1h"},
		{"", "", "3 d"},
		{"", "", "", "2026-1"},
		{"", "", "", "2026-13"},
		{"", "", "", "2026-10-01"},
		{"", "", "", "10"},
		{"", "", "", "last"},
	} {
		if p, err := readPeriod(bad[0], bad[1], bad[2], bad[3]); err == nil {
			t.Errorf("%q is the period %+v", bad, p)
		}
	}
	if p, err := readPeriod("", "", "", "2026-12"); err != nil || !p.to.Equal(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)) || p.to.Sub(p.from) != 31*24*time.Hour {
		t.Errorf("December is %+v: %v", p, err)
	}
	if p, err := readPeriod("", "", "4w", ""); err != nil || p.last != 28*24*time.Hour {
		t.Errorf("4 weeks are %+v: %v", p, err)
	}
	if p, err := readPeriod("begin", "2026-10-02", "", ""); err != nil || !p.begin || p.to.IsZero() {
		t.Errorf("from the beginning it is %+v: %v", p, err)
	}
}
