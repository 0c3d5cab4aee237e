// Command fetch brings the PostgreSQL and Kafka releases that the tests run on into .servers/ (make servers), or with -debezium the
// Debezium and Kafka Connect that make bench-slot has beside lapse (make debezium).
//
// Each server is unpacked beside its place, stamped, and moved there in one step, so an interrupted fetch leaves either
// a complete server or none, and the next one goes on with what is missing. What Maven has downloaded before is in its
// own cache. LAPSE_PG=15,18 narrows the PostgreSQL versions. The exit code is 1 if anything wanted is missing at the end.
package main
