package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestRatiosAreOfTheSameRound(t *testing.T) {
	t.Parallel()
	of := scenario{tcp, keyOnly}
	r := report{Debezium: "Debezium 1", Passing: []passing{{Transactions: 1, sample: sample{Rows: 1_000_000, Seconds: 2, Memory: 40 << 20, ClientCPU: 3}}}}
	rows := func(seconds, cpu float64) sample {
		return sample{Rows: 1_000_000, Seconds: seconds, ClientCPU: cpu, Memory: 10 << 20}
	}
	debezium := func(seconds, cpu float64) sample {
		s := rows(seconds, cpu)
		s.Memory *= 20
		s.WarmUp = &warmUp{Seconds: 5, CPU: cpu / 2, SecondHalf: 2 * s.rate()}
		return s
	}
	// A machine that is twice as slow in the second round changes no ratio.
	r.add(of, []string{toNothing, toKafka, debeziumTuned}, map[string][]sample{
		toNothing: {rows(4, 1), rows(8, 2)}, toKafka: {rows(2, 1), rows(4, 2)}, debeziumTuned: {debezium(12, 30), debezium(24, 60)},
	})
	for i, want := range []float64{1, 2, 1. / 3} {
		if got := r.Figures[i].Ratio; got.Least != want || got.Most != want {
			t.Errorf("%s: %+v, want %v", r.Figures[i].Way, got, want)
		}
	}
	if len(r.Beside) != 1 {
		t.Fatalf("%+v", r.Beside)
	}
	b := r.Beside[0]
	for name, got := range map[string][2]float64{
		"rows a second": {b.Rate.Median, 6}, "its second half": {b.SecondHalf.Median, 3}, "CPU": {b.CPU.Median, 30}, "CPU when warm": {b.CPUWarm.Median, 15},
		"memory": {b.Memory.Median, 20},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %v, want %v", name, got[0], got[1])
		}
	}
	var out bytes.Buffer
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"0.33 (0.33–0.33)  Debezium, tuned", "6.0 (6.0–6.0) ", "Debezium 1", "40 MB ", "5.0 s ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
}

func TestEachTransportIsMeasuredWithEachIdentity(t *testing.T) {
	t.Parallel()
	all, err := parseScenarios("unix,tcp", "default,columns,full")
	if err != nil || len(all) != 6 || all[0] != (scenario{unix, keyOnly}) || all[5] != (scenario{tcp, full}) {
		t.Errorf("%v, %v", all, err)
	}
	titles := map[string]bool{}
	for _, s := range all {
		titles[s.String()] = true
	}
	if len(titles) != len(all) {
		t.Errorf("titles %v", titles)
	}
	for _, wrong := range [][2]string{{"unix,", "default"}, {"udp", "default"}, {"unix", "nothing"}, {"unix", ""}} {
		if all, err := parseScenarios(wrong[0], wrong[1]); err == nil {
			t.Errorf("%q: %v", wrong, all)
		}
	}
	for _, wrong := range []string{"x", "0", "10,-1"} {
		if rates, err := parseRates(wrong); err == nil {
			t.Errorf("%q: %v", wrong, rates)
		}
	}
}

func TestNothingIsReadFromTheSlotThatKafkaHasAlready(t *testing.T) {
	t.Parallel()
	ways := (&bench{debezium: "/there"}).ways(scenario{tcp, keyOnly})
	firsts := map[string]bool{}
	for round := range len(ways) {
		order := inTurn(ways, round)
		firsts[order[0]] = true
		if slices.Index(order, toNull) > slices.Index(order, toKafka) || !slices.Equal(slices.Sorted(slices.Values(order)), slices.Sorted(slices.Values(ways))) {
			t.Errorf("round %d: %v", round, order)
		}
	}
	if len(firsts) != len(ways)-1 {
		t.Errorf("first are %v", firsts)
	}
}

func TestDebeziumIsMeasuredOverTCPAlone(t *testing.T) {
	t.Parallel()
	b := bench{debezium: "/there"}
	if ways := b.ways(scenario{unix, keyOnly}); len(ways) != 3 {
		t.Error(ways)
	}
	if ways := b.ways(scenario{tcp, keyOnly}); len(ways) != 5 {
		t.Error(ways)
	}
	b.debezium = ""
	if ways := b.ways(scenario{tcp, keyOnly}); len(ways) != 3 {
		t.Error(ways)
	}
}
