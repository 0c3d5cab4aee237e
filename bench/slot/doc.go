// Command slot measures how fast `lapse audit` brings deletions from the slot into Kafka:
//
//	go build -o bin/lapse ./cmd/lapse
//	go run ./bench/slot -lapse bin/lapse -pg 17 -rounds 5
//
// In each round a backlog of rows is deleted by `lapse run`, in tagged batches. Then pg_recvlogical drains a copy of the slot to
// nothing, and `lapse audit --once` drains the slot into Kafka; the two change places from round to round. What is printed is the ratio of
// their rows a second, median, least and most, with the CPU seconds per million rows of client, PostgreSQL and broker, and the client's largest
// resident memory. Both transports are measured: the server's Unix socket, and TCP on loopback.
//
// Then, with `lapse audit` running, rows are deleted at some rates as an application does, and it is measured how long after the
// answer to COMMIT the event is read from the topic. And one transaction that deletes many rows passes through the audit, whose memory is
// what counts.
//
// The broker is a real one of its own process, with all of Java's compilers (a lab's -XX:TieredStopAtLevel=1 costs it much). Client, server
// and broker share the machine's cores. pg_recvlogical is of PostgreSQL's client programs; it is looked for in PATH.
//
//	main.go      what is measured, in which order
//	server.go    server, broker, tables
//	lapse.go     the commands of the lapse binary
//	drain.go     who drains the slot
//	latency.go   from COMMIT to the topic
//	report.go    ratios and tables
package main
