// Command throughput measures how fast two lapse binaries delete and audit, side by side in one run:
//
//	go build -o bin/lapse ./cmd/lapse
//	go run ./bench/throughput -before /tmp/lapse-before -after bin/lapse -pg 15,17 -rounds 5
//
// or `make bench-throughput BEFORE=/tmp/lapse-before`. Without -before it measures the one binary alone.
//
// Each figure is the median of the rounds, after one round that does not count, with the smallest and the largest after it.
// In each round the sides take turns in going first.
//
// Deleting: both sides get a fresh copy of the same database, install with their own `init` and `apply`, and run once. The
// audit is off, so that no Kafka is in the way. What counts is the time from the first batch's start to the last one's
// end, as in the ledger; where nothing is due, the whole time of `lapse run`. A run that takes too long is cut off,
// and what it did until then counts.
//
// Auditing: each side has a PostgreSQL, the newest that is installed, with a slot, and topics of its own in one Kafka. In each
// round it deletes the same rows, partly as the application and partly by `lapse run`. What counts is the whole time of the
// `lapse audit --once` that brings these deletes from the slot into Kafka. The number of records in the topics is checked.
//
// It starts throw-away servers and takes them away again. The table goes to standard output, and all figures to
// bench/out/throughput.json. Give the machine nothing else to do meanwhile.
//
//	main.go       what is measured, in which order
//	scenario.go   what is measured; the next scenario goes there
//	delete.go     how a scenario of deleting is measured
//	audit.go      how the audit is measured
//	side.go       what is asked of a binary
//	report.go     ratios and the table
package main
