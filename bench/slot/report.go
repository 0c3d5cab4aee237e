package main

import (
	"fmt"
	"io"

	"lapse/bench/internal/measure"
)

// report is all that was measured.
type report struct {
	Server    string    `json:"server"`
	Broker    string    `json:"broker"`
	Debezium  string    `json:"debezium,omitempty"`
	CPUs      int       `json:"cpus"`
	Rounds    int       `json:"rounds"`
	Rows      int       `json:"rows"`
	Figures   []figure  `json:"figures"`
	Beside    []beside  `json:"lapse_beside_debezium,omitempty"`
	Latencies []latency `json:"latencies"`
	Passing   []passing `json:"passing,omitempty"`
}

// figure is one line of the table. CPU seconds are per million rows.
type figure struct {
	Scenario  scenario       `json:"scenario"`
	Way       string         `json:"way"`
	Ratio     measure.Spread `json:"ratio"` // of rows a second, to pg_recvlogical's of the same round
	Rate      measure.Spread `json:"rows_per_second"`
	ClientCPU measure.Spread `json:"client_cpu_seconds_per_million"`
	ServerCPU measure.Spread `json:"server_cpu_seconds_per_million"`
	BrokerCPU measure.Spread `json:"broker_cpu_seconds_per_million"`
	Memory    measure.Spread `json:"client_memory_bytes"`
	Samples   []sample       `json:"samples"`
}

// beside is `lapse audit` into Kafka beside one way of Debezium: how many times better it is in the same round. What Debezium takes to warm
// up is in its CPU time, and not in its rows a second.
type beside struct {
	Scenario   scenario       `json:"scenario"`
	Way        string         `json:"way"`
	Rate       measure.Spread `json:"rows_per_second"`
	SecondHalf measure.Spread `json:"rows_per_second_to_its_second_half"`
	CPU        measure.Spread `json:"client_cpu"`
	CPUWarm    measure.Spread `json:"client_cpu_from_its_first_record_on"`
	Memory     measure.Spread `json:"client_memory"`
	Seconds    measure.Spread `json:"its_seconds_until_the_first_record"`
}

// add enters a scenario's samples, one of each way a round.
func (r *report) add(of scenario, ways []string, samples measure.Samples[sample]) {
	for _, way := range ways {
		each := func(value func(round int, s sample) float64) measure.Spread { return measure.Each(samples[way], value) }
		millions := func(seconds float64, s sample) float64 { return seconds / float64(s.Rows) * 1e6 }
		r.Figures = append(r.Figures, figure{
			Scenario: of, Way: way, Samples: samples[way],
			Ratio:     each(func(round int, s sample) float64 { return s.rate() / samples[toNothing][round].rate() }),
			Rate:      each(func(_ int, s sample) float64 { return s.rate() }),
			ClientCPU: each(func(_ int, s sample) float64 { return millions(s.ClientCPU, s) }),
			ServerCPU: each(func(_ int, s sample) float64 { return millions(s.ServerCPU, s) }),
			BrokerCPU: each(func(_ int, s sample) float64 { return millions(s.BrokerCPU, s) }),
			Memory:    each(func(_ int, s sample) float64 { return float64(s.Memory) }),
		})
		if samples[way][0].WarmUp == nil {
			continue
		}
		lapse := samples[toKafka]
		r.Beside = append(r.Beside, beside{
			Scenario: of, Way: way,
			Rate:       each(func(round int, s sample) float64 { return lapse[round].rate() / s.rate() }),
			SecondHalf: each(func(round int, s sample) float64 { return lapse[round].rate() / s.WarmUp.SecondHalf }),
			CPU:        each(func(round int, s sample) float64 { return s.ClientCPU / lapse[round].ClientCPU }),
			CPUWarm:    each(func(round int, s sample) float64 { return (s.ClientCPU - s.WarmUp.CPU) / lapse[round].ClientCPU }),
			Memory:     each(func(round int, s sample) float64 { return float64(s.Memory) / float64(lapse[round].Memory) }),
			Seconds:    each(func(_ int, s sample) float64 { return s.WarmUp.Seconds }),
		})
	}
}

// Empty says whether nothing was measured.
func (r *report) Empty() bool { return len(r.Figures)+len(r.Latencies)+len(r.Passing) == 0 }

// Print writes the tables.
func (r *report) Print(out io.Writer) error {
	fmt.Fprintf(out, "\nPostgreSQL %s, Kafka %s, %d CPUs shared, %d rows in tagged batches, medians of %d rounds (least–most); the ratio is that of rows a second to pg_recvlogical\n\n",
		r.Server, r.Broker, r.CPUs, r.Rows, r.Rounds)
	return measure.Table(out, "RATIO\tWAY\tROWS/S\tCPU S/M: CLIENT\tPOSTGRESQL\tBROKER\tMEMORY\tSCENARIO", func(w io.Writer) {
		for i := range r.Figures {
			f := &r.Figures[i]
			fmt.Fprintf(w, "%s\t%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.0f MB\t%s\n", f.Ratio, f.Way,
				f.Rate.Median, f.ClientCPU.Median, f.ServerCPU.Median, f.BrokerCPU.Median, f.Memory.Median/(1<<20), f.Scenario)
		}
		r.printBeside(w)
		if len(r.Latencies) > 0 {
			fmt.Fprintln(w, "\nDELETES/S\tMEASURED\tP50 MS\tP99 MS\tP99.9 MS\tMOST MS\tEVENTS\tSLOWEST\tfrom the answer to COMMIT to the topic's reader")
		}
		for i := range r.Latencies {
			l := &r.Latencies[i]
			fmt.Fprintf(w, "%d\t%.0f\t%.1f\t%.1f\t%.1f\t%.1f\t%d\t%s\t\n", l.Rate, l.Did, l.P50, l.P99, l.P999, l.Most, l.Events, l.Slowest[0])
		}
		if len(r.Passing) > 0 {
			fmt.Fprintln(w, "\nMEMORY\tROWS/S\tCPU S/M: CLIENT\tPOSTGRESQL\tROWS\tTRANSACTIONS\tthrough lapse audit into Kafka")
		}
		for _, p := range r.Passing {
			millions := float64(p.Rows) / 1e6
			fmt.Fprintf(w, "%.0f MB\t%.0f\t%.2f\t%.2f\t%d\t%d\t\n",
				float64(p.Memory)/(1<<20), p.rate(), p.ClientCPU/millions, p.ServerCPU/millions, p.Rows, p.Transactions)
		}
	})
}

// printBeside writes what lapse is beside Debezium.
func (r *report) printBeside(w io.Writer) {
	if len(r.Beside) == 0 {
		return
	}
	fmt.Fprintf(w, "\nTIMES THE ROWS/S\tOF ITS SECOND HALF\tLESS CPU\tTHAN IT WARM\tLESS MEMORY\tlapse audit into Kafka beside\tFIRST RECORD AFTER\tSCENARIO: %s\n", r.Debezium)
	for i := range r.Beside {
		b := &r.Beside[i]
		fmt.Fprintf(w, "%.1f (%.1f–%.1f)\t%.1f\t%.0f\t%.0f\t%.0f\t%s\t%.1f s\t%s\n",
			b.Rate.Median, b.Rate.Least, b.Rate.Most, b.SecondHalf.Median, b.CPU.Median, b.CPUWarm.Median, b.Memory.Median, b.Way, b.Seconds.Median, b.Scenario)
	}
}
