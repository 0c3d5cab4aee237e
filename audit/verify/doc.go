// Package verify says of the topics' records whether each is there once and in order. It is what lapse events holds every
// record against, and what the auditor's own tests do.
//
// It reads nothing and knows no broker: its caller hands over what was read, each partition in its order. It does not
// know what should be there; that every deletion has its event the log says (package evidence), and the tests, which
// deleted.
//
//	order.go    events in their partitions, and which topic each cause is in
//	log.go      records of the log
//	account.go  the log's records against events and commitments; accounted.go compares one transaction, agree.go an event with itself
package verify
