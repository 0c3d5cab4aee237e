// Package evidence is the pure part of the audit: it makes of a transaction's changes events and records of the log, and
// reads both. It imports no Kafka, starts no goroutine, and reads no clock: the same write-ahead log, read with the same
// keys by the same route, gives the same bytes, whoever reads it.
package evidence
