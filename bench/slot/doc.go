// Command slot measures how fast `lapse audit` brings deletions from the slot into Kafka:
//
//	go build -o bin/lapse ./cmd/lapse
//	go run ./bench/slot -lapse bin/lapse -pg 17 -rounds 5
//
// In each round a backlog of rows is deleted by `lapse run`, in tagged batches. Then it is drained in several ways, which change places from
// round to round:
//
//	pg_recvlogical to nothing    from a copy of the slot, into /dev/null: the least that anybody has to do
//	lapse audit to nothing       `lapse audit --once --to -` into /dev/null, from a copy: reading, classifying and writing events
//	lapse audit into Kafka       `lapse audit --once`, from the slot itself
//	Debezium, default and tuned  in Kafka Connect, standalone, from a copy, into a topic of the same broker; over TCP alone, since it is Java
//
// What is printed is the ratio of their rows a second to pg_recvlogical's, median, least and most, with the CPU seconds per million rows of
// client, PostgreSQL and broker, and the client's largest resident memory; and Lapse beside Debezium. Both transports are measured: the
// server's Unix socket, and TCP on loopback. Rounds in which the broker warms up come before those that count. In the
// first of all the topics are read through: each row must be there once. In the others the records are counted.
//
// -identity says what the log has of a deleted row. By default it is the key. With columns it is the whole row, by a unique index with all
// columns, and the policy has them in its events. With full it is REPLICA IDENTITY FULL; no policy deletes from such a table, so the backlog is
// deleted by the application, and Lapse's events of it name no row and all go to one partition: what is measured is reading.
//
// Then, with `lapse audit` running, rows are deleted at some rates as an application does, and it is measured how long after the
// answer to COMMIT the event is read from the topic. And many rows pass through the audit, in one transaction and in many, while its memory
// is watched.
//
// The broker is a real one of its own process, with all of Java's compilers (a lab's -XX:TieredStopAtLevel=1 costs it much). Client, server
// and broker share the machine's cores. pg_recvlogical is of PostgreSQL's client programs; it is looked for in PATH.
//
//	main.go        what is measured, in which order
//	scenario.go    transports, and what the log has of a row
//	server.go      server, broker, tables
//	lapse.go       what is asked of the lapse binary
//	drain.go       who drains the slot
//	debezium.go    Kafka Connect with Debezium's connector
//	gauge.go       when its first record came, and its last
//	topic.go       whether each row is in the topics once
//	latency.go     from COMMIT to the topic
//	passing.go     memory while many rows pass
//	report.go      ratios and tables
package main
