// Command pace measures what an application feels of `lapse run` beside it:
//
//	go build -o bin/lapse ./cmd/lapse
//	go run ./bench/pace -lapse bin/lapse -pg 17 -rounds 5
//
// The application is a mix like TPC-B's on several connections: an account, a teller and a branch are updated, and a row of history
// is inserted; with -app keys, one update and two reads by key, each by itself. In each round it runs alone, beside Lapse at gentle pace
// and beside Lapse at unlimited pace; these change places from round to round. What is printed is the ratio of its 99th percentile to that of the same round without Lapse: median, least, most.
//
// A scenario is a disk (fast: as it is; slow: each flush of the log takes a millisecond longer, by commit_delay) and the place of the
// accounts: in another table than the one that rows are deleted from, or in that very table, among the rows that are not due.
// fsync is on. All latencies of a round are kept and sorted: no percentile is estimated. Connections wait for their answers and go
// on at once, as pgbench's do; with -rate they keep to a schedule, and a latency counts from when it should have begun. With -cpu the
// rate is the one that takes so much of the machine's time. The first seconds of each way are not counted: -warm.
//
// The constants that this is about are in executor/pace.go.
//
//	main.go     what is measured, in which order
//	app.go      the application
//	lapse.go    what is asked of the lapse binary
//	server.go   the server and its tables
//	report.go   ratios and the table
package main
