// Command pace measures what an application feels of `lapse run` beside it:
//
//	go build -o bin/lapse ./cmd/lapse
//	go run ./bench/pace -lapse bin/lapse -pg 17 -rounds 5
//
// The application's transactions (one update and two selects by key, on several connections) begin by a schedule, whatever became of
// those before, and a latency counts from when its transaction was to begin: an open loop. The schedule takes a part of all processors,
// which is calibrated on each server, and is the same for all ways. In each round the application runs alone, beside a policy at gentle
// and at unlimited pace, and beside the loop that people write: 200 rows, and a pause that leaves it a part of the time. These change
// places from round to round. What is printed is the ratio of the application's 99th percentile to that of the same round alone: median,
// least, most; and the rows that went a second.
//
// A scenario is a disk (fast: as it is; slow: each flush of the log takes a millisecond longer, by commit_delay), the place of the
// accounts (another table than the one that rows are deleted from, or that very table, among the rows that are not due) and the part
// of the processors. fsync is on: a fast disk is one in memory (LAPSE_TMPDIR). All latencies of a round are kept and sorted: no
// percentile is estimated. Lapse has deleted a batch when the application begins, or starts
// with it: -cold. The first seconds of each way are not counted: -warm. Give the machine nothing else to do.
//
// The constants that this is about are in executor/pace.go.
//
//	main.go     what is measured, in which order
//	app.go      the application
//	loop.go     the loop
//	lapse.go    what is asked of the lapse binary
//	server.go   the server and its tables
//	report.go   ratios and the table
package main
