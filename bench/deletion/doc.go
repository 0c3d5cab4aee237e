// Command deletion measures `lapse run` beside what else deletes what is due, in one run on one machine:
//
//	go build -o bin/lapse ./cmd/lapse
//	go run ./bench/deletion -lapse bin/lapse -pg 17 -rounds 5
//
// Half of a table's rows are due. In each round every way gets a fresh copy of the same database; the ways change places from
// round to round. What is printed is the ratio to one giant DELETE of the same round: median, least, most. The ways:
//
//	giant              one DELETE of all that is due
//	loop               pg_ttl_index's loop, written anew from its document: 10,000 rows by ctid, 10 ms pause, one transaction
//	loop, index        the same with enable_seqscan = off: its other plan
//	lapse              lapse run --now, pace unlimited, one worker
//	lapse 2 workers    the same with two workers
//	lapse 4 executors  four processes of one worker each
//
// A scenario is an order of the rows (clustered: by due time, as they were written; shuffled: by chance), with or without a
// snapshot that is held open meanwhile. Lapse writes its ledger, tags and MACs as always; `audit: off` leaves out the auditor,
// which is measured by bench/throughput.
//
// Beside the time: bytes of the write-ahead log for each deleted row, and CPU seconds of the server and of the deleting process
// for a million rows.
//
// Before that, what a look costs that finds nothing: on a small table, on a large one, and on 1,000 partitions by the due column.
// And what an executor costs that has nothing to do: CPU seconds of server and process for a minute with one policy, and with two hundred,
// each looked at every second. This alone:
//
//	go run ./bench/deletion -lapse bin/lapse -ways idle
//
//	main.go     what is measured, in which order
//	way.go      the ways to delete
//	looks.go    looks that find nothing
//	idle.go     an executor with nothing to do
//	lapse.go    what is asked of the lapse binary
//	server.go   the server, its copies of a database, its CPU time
//	report.go   ratios and the table
package main
