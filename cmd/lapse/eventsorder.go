package main

import (
	"fmt"
	"io"

	"lapse/audit/verify"
)

// order checks the order that the topics promise, and names the first records that break it.
type order struct {
	verify.Order
	err   io.Writer
	shown int
}

// shownBreaks is the largest number of breaks that are named.
const shownBreaks = 20

// newOrder names breaks on err; if err is nil it only counts them. system is the system topic; if it is empty, causes are not checked.
func newOrder(err io.Writer, system string) *order {
	o := &order{Order: verify.Order{System: system}, err: err}
	o.Broken = func(what string) {
		if o.shown++; o.shown <= shownBreaks && err != nil {
			_, _ = fmt.Fprintln(err, what) // the exit code reports it too
		}
	}
	return o
}

// verdict returns errNeedsPerson if there were breaks.
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
