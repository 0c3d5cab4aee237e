package replication

import (
	"math"
	"time"
)

func (d *decoder) begin(c *cursor) error {
	if d.open() {
		return errInTransaction
	}
	commit, micros, xid := c.lsn(), int64(c.uint64()), c.uint32()
	if c.short {
		return errShort
	}
	at, err := instant(micros)
	if err != nil {
		return err
	}
	d.tx = &Tx{XID: xid, CommitLSN: commit, CommitTime: at, History: d.history, Timeline: d.timelineOf(commit)}
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
	at, err := instant(micros)
	if err != nil {
		return nil, err
	}
	tx := d.tx
	if commit != tx.CommitLSN || !at.Equal(tx.CommitTime) || end <= commit {
		return nil, errCommit
	}
	tx.EndLSN = end
	d.tx = nil
	d.message = Message{Kind: KindCommit, Tx: tx}
	return &d.message, nil
}

// postgresEpoch is 2000-01-01 in Unix microseconds; PostgreSQL counts from there.
const postgresEpoch = 946_684_800_000_000

func instant(micros int64) (time.Time, error) {
	if micros > math.MaxInt64-postgresEpoch {
		return time.Time{}, errTime
	}
	return time.UnixMicro(micros + postgresEpoch).UTC(), nil
}
