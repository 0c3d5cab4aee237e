// Package verify checks whether each record of the topics is there once and in order. lapse events uses it for every record, and so do the
// auditor's own tests.
//
// It reads nothing and knows no broker: its caller hands over what was read, each partition in its order. It does not know what should be
// there: the log says that every deletion has its event (package evidence), and the tests know what they deleted.
//
//	order.go    events in their partitions, and which topic each cause is in
//	log.go      records of the log
//	account.go  the log's records against events and commitments; accounted.go compares one transaction, agree.go an event with itself
package verify
