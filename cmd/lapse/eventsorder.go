package main

import (
	"fmt"
	"io"

	"lapse/audit/verify"
)

// order holds the records that were read against the promise of the topics, and names the first of those that break it.
type order struct {
	verify.Order
	err   io.Writer
	shown int
}

// shownBreaks is how many are named.
const shownBreaks = 20

// newOrder names breaks on err; nil: they are only counted. system is the system topic; empty: no cause is held against its topic.
func newOrder(err io.Writer, system string) *order {
	o := &order{Order: verify.Order{System: system}, err: err}
	o.Broken = func(what string) {
		if o.shown++; o.shown <= shownBreaks && err != nil {
			_, _ = fmt.Fprintln(err, what) // the exit code says it too
		}
	}
	return o
}

// verdict is errNeedsPerson if the promise was broken.
func (o *order) verdict() error {
	breaks := o.Breaks()
	if breaks == 0 {
		return nil
	}
	if o.err != nil {
		_, _ = fmt.Fprintf(o.err, "the order that the topics promise is broken in %s: another program has written to them, or the brokers "+
			"have lost records; find out who may write (ACL: WRITE), and trust the log rather than these events\n", counted(uint64(breaks), "place"))
	}
	return errNeedsPerson
}
