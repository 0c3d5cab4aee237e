// Package servers says which PostgreSQL and Kafka releases the tests and the demonstration run on, which Debezium the benchmark has
// beside them, and where their files are.
//
// The files are in .servers/ beside go.mod, or where $LAPSE_SERVERS points:
//
//	.servers/pg/18/bin/postgres     one folder per PostgreSQL major version
//	.servers/kafka/libs/*.jar       one flat class path
//	.servers/debezium/              Kafka Connect's jars in connect/, the connector's in plugins/postgres/
//	.servers/pg/18/COMPLETE         the stamp, written last: what is there and how many files
//
// It promises that a folder it calls complete was unpacked to the end and is the pinned release: the stamp names both,
// and the files are counted again. A folder without its stamp does not count as present, whatever is in it.
//
// It refuses to fetch anything: that is the program in fetch/ (make servers, make debezium). It starts nothing either: see pgserver and
// kafkaserver.
package servers
