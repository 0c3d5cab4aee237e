// Command deletion measures `lapse run` beside what else deletes what is due, in one run on one machine, on the tables that people have:
//
//	go build -o bin/lapse ./cmd/lapse
//	go run ./bench/deletion -lapse bin/lapse -pg 17 -rounds 3
//	go run ./bench/deletion -quick
//	go run ./bench/deletion -tables bigint,wide -ways "lapse 1"
//
// Half of each table's rows are due. In each round every way gets a fresh copy of the same database; the ways change places from
// round to round. Whole commands are timed, each from its start to its end, and each must leave exactly the rows that are not due. What is
// printed is the ratio to one giant DELETE of the same round: median, least, most. The ways:
//
//	giant     one DELETE of all that is due
//	loop      the loop that everybody writes: 10,000 rows by their ctid, a commit, and 10 ms pause, until nothing is due
//	no pause  the same without the pause
//	floor     plain SQL for what a batch of Lapse's promises: a row in a ledger, a range of the index found first, the whole condition, a second pass
//	lapse 1   lapse run --now, pace unlimited, one worker
//	lapse 2   the same with two workers
//
// Lapse writes its ledger, tags and MACs as always; `audit: off` leaves out the auditor, which is measured by bench/throughput. Beside
// the time: how much of it lies before Lapse's first batch, bytes of the write-ahead log for each deleted row, and CPU seconds of the
// server and of the deleting process for a million rows.
//
// Beside the tables, by names that -tables knows too:
//
//	looks  what a look costs that finds nothing: on a small table, on a large one, and on 1,000 partitions by the due column
//	idle   what an executor costs that has nothing to do: CPU seconds of server and process for a minute with one policy, with
//	       two hundred and five hundred, and with one on 5,000 partitions, each checked every second; before that plan -f, apply and plan of these
//	big    plan and run on a table of 2 M and one of 20 M rows: how long until the first rows are gone, and lapse's memory
//
//	main.go     what is measured, in which order
//	table.go    the tables
//	way.go      the ways to delete
//	looks.go    looks that find nothing
//	idle.go     an executor with nothing to do
//	planning.go plans and apply of the same policies
//	big.go      a large table's plan and first run
//	lapse.go    what is asked of the lapse binary
//	server.go   the server, its copies of a database, its CPU time
//	report.go   ratios and the tables
package main
