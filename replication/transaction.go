package replication

import "time"

func (d *decoder) begin(c *cursor) error {
	if d.open() {
		return errInTransaction
	}
	commit, micros, xid := c.lsn(), int64(c.uint64()), c.uint32()
	if c.short {
		return errShort
	}
	d.tx = &Tx{XID: xid, CommitLSN: commit, CommitTime: instant(micros), History: d.history, Timeline: d.timelineOf(commit)}
	d.ordinal, d.begun = 0, true
	return nil
}

func (d *decoder) origin(c *cursor) error {
	if !d.begun {
		return errNoTransaction
	}
	c.lsn() // where the transaction ended at its origin
	d.tx.Origin = string(c.text())
	return nil
}

func (d *decoder) commit(c *cursor) (*Message, error) {
	if !d.open() {
		return nil, errNoTransaction
	}
	flags, commit, end, micros := c.byte(), c.lsn(), c.lsn(), int64(c.uint64())
	if c.short {
		return nil, errShort
	}
	if flags != 0 {
		return nil, errFlags
	}
	tx := d.tx
	if commit != tx.CommitLSN || !instant(micros).Equal(tx.CommitTime) || end <= commit {
		return nil, errCommit
	}
	tx.EndLSN = end
	d.tx = nil
	d.message = Message{Kind: KindCommit, Tx: tx}
	return &d.message, nil
}

// postgresEpoch is 2000-01-01 in Unix microseconds; PostgreSQL counts from there.
const postgresEpoch = 946_684_800_000_000

// The first and the last instant that JSON and Kafka can both have, in Unix microseconds.
const (
	earliest = 0
	latest   = 253_402_300_800_000_000 - 1 // before the year 10000
)

// instant is a commit's time: the nearest from 1970 to 9999. A session with a replication origin names any time, infinity too.
func instant(micros int64) time.Time {
	return time.UnixMicro(min(max(micros, earliest-postgresEpoch), latest-postgresEpoch) + postgresEpoch).UTC()
}
