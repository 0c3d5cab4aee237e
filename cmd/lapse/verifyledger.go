package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/google/uuid"

	"lapse/audit/tree"
	"lapse/schemas"
)

// ledgerSums compares the batches of ledger and log in any order: it keeps a count and a sum for each minute of the time in the batches'
// names. 30 days have 43,200 minutes.
type ledgerSums struct {
	since   time.Time // the time of the first record read, or of the last gap or rewind: earlier, the two may differ
	minutes map[int64]*ledgerMinute
}

type ledgerMinute struct {
	log, ledger int
	doubted     bool
	sum         [16]byte // of the batches that only one of them has; zero if they have the same
}

// minuteOf returns the minute in which a batch began: the time in the name if the executor named it, otherwise the row's own time.
func minuteOf(batch uuid.UUID, says time.Time) int64 {
	if batch.Version() != 7 {
		return says.Unix() / 60
	}
	seconds, _ := batch.Time().UnixTime()
	return seconds / 60
}

func (l *ledgerSums) at(minute int64) *ledgerMinute {
	if l.minutes == nil {
		l.minutes = map[int64]*ledgerMinute{}
	}
	m := l.minutes[minute]
	if m == nil {
		m = &ledgerMinute{}
		l.minutes[minute] = m
	}
	return m
}

func (l *ledgerSums) add(batch uuid.UUID, says time.Time) *ledgerMinute {
	m := l.at(minuteOf(batch, says))
	hash := sha256.Sum256(batch[:])
	for i := range m.sum {
		m.sum[i] ^= hash[i]
	}
	return m
}

func (l *ledgerSums) log(batch uuid.UUID) { l.add(batch, time.Time{}).log++ }

// doubt records that the log itself says that ledger rows of about that time are false: they are not batches of the log.
func (l *ledgerSums) doubt(at time.Time) {
	for near := int64(-1); near <= 1; near++ {
		l.at(at.Unix()/60 + near).doubted = true
	}
}

// differs returns the first minute between from and to in which ledger and log have different batches, and the number of doubted minutes, in
// which they cannot be compared.
func (l *ledgerSums) differs(from, to time.Time) (at time.Time, m *ledgerMinute, doubted int) {
	for minute := from.Unix()/60 + 1; minute < to.Unix()/60; minute++ {
		switch m := l.minutes[minute]; {
		case m == nil || m.sum == [16]byte{}:
		case m.doubted:
			doubted++
		default:
			return time.Unix(minute*60, 0).UTC(), m, doubted
		}
	}
	return time.Time{}, nil, doubted
}

// openLedger connects to the database, if it can, and reads the slot's position: the log must already reach it.
func (o *logVerifier) openLedger(ctx context.Context) error {
	owner, settings, err := o.openOwner(ctx, "lapse verify")
	if err != nil {
		o.result.NotChecked = append(o.result.NotChecked, fmt.Sprintf("the log against the database, its ledger and its slot: %v", err))
		return nil
	}
	o.conn = owner.Conn
	var confirmed string
	err = o.conn.QueryRow(ctx, `
		select coalesce(s.confirmed_flush_lsn, '0/0')::text, coalesce(s.confirmed_flush_lsn = i.slot_start, false)
		  from lapse.installation i
		  left join pg_replication_slots s on s.slot_name = $1 and s.database = current_database()`, settings.Slot).Scan(&confirmed, &o.unread)
	if err == nil {
		o.confirmed, err = schemas.ParseLSN(confirmed)
	}
	if err != nil {
		return fmt.Errorf("ask for the slot's position: %w", err)
	}
	return nil
}

// compareLedger checks that the log reaches the slot's position, and that ledger and log have the same batches for the time that both cover.
func (o *logVerifier) compareLedger(ctx context.Context) error {
	if o.conn == nil || o.last == nil {
		return nil
	}
	var unread error
	switch {
	case o.last.LSN >= o.confirmed:
	case o.unread: // the next record is the gap, or the rewind
		unread = &tree.Fault{File: o.place, Leaf: -1, What: fmt.Sprintf("it ends at %s, and the slot was made again at %s and has not been read since: whether the log was cut "+
			"cannot be told before the auditor has written the gap: start it, and verify again", o.last.LSN, o.confirmed)}
	default:
		return &tree.Fault{File: o.place, Leaf: -1, What: fmt.Sprintf("it ends at %s, and the slot has been told that it has all up to %s: the log was cut", o.last.LSN, o.confirmed)}
	}
	var now, kept time.Time
	err := o.conn.QueryRow(ctx, `select now(), greatest(before, 'epoch') from lapse.pruning`).Scan(&now, &kept)
	if err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	rows, err := o.conn.Query(ctx, `select batch, started_at from lapse.batch where started_at >= $1`, kept)
	if err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var batch uuid.UUID
		var began time.Time
		if err := rows.Scan(&batch, &began); err != nil {
			return fmt.Errorf("read the ledger: %w", err)
		}
		o.ledger.add(batch, began).ledger++
		o.result.Batches++
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	if !o.last.Time.IsZero() && o.last.Time.Before(now) {
		now = o.last.Time
	}
	if since := o.ledger.since.Add(o.recent); kept.Before(since) {
		kept = since
	}
	at, m, doubted := o.ledger.differs(kept, now.Add(-o.recent))
	if doubted > 0 {
		o.result.NotChecked = append(o.result.NotChecked, fmt.Sprintf("the ledger of %s: the log itself says that some of its rows are false", counted(doubted, "minute")))
	}
	if m != nil {
		return &tree.Fault{File: "lapse.batch", Leaf: -1, What: fmt.Sprintf("of the minute of %s the ledger has %s, and the log %s: they are not the same", at.Format(time.RFC3339),
			counted(m.ledger, "batch"), counted(m.log, "batch"))}
	}
	return unread
}
