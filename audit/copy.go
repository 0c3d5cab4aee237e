package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/history"
	"lapse/replication"
	"lapse/schemas"
)

// Copied is what Copy came to.
type Copied struct {
	Events  int         // that were written
	From    schemas.LSN // the slot's position
	Reached schemas.LSN // everything that was committed up to here is written
}

// Copy writes events into a file, in the order of the write-ahead log, from a temporary copy of the slot: the slot, the topics and
// the database stay as they are, whether or not an auditor runs. Each line is the value that the event's records have, byte for
// byte; what goes to every partition is written once. There is no log beside it, so that what only the log knows is not there:
// rewinds, and a gap from before the slot's position.
//
// It ends when everything up to Config.Until is written, or ctx ends, which is no error. What it has written is durable then, and the
// temporary slot moves on behind it. Any other end is an error. What is in the file already is not written again.
func (a *Auditor) Copy(ctx context.Context, to *EventFile) (copied Copied, err error) {
	a.config.Stream.Copy = true
	opened, err := a.openStream(ctx)
	if err != nil {
		return copied, err
	}
	s := opened.stream
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = s.Close(closing) // the slot is gone with it
	}()
	if opened.catalog.Newest().Number == 0 {
		return copied, errors.New("this database has no history on record: run lapse init")
	}
	c := newCopier(a, opened, to)
	copied.From = s.StartedAt()
	if err := to.begin(c.route, c.reach(copied.From)); err != nil {
		return copied, err
	}
	var until schemas.LSN
	if a.config.Until != nil {
		if until, err = a.config.Until(ctx); err != nil {
			return copied, fmt.Errorf("ask for the present end of the WAL: %w", err)
		}
	}
	err = c.run(ctx, until)
	settled := c.settle()
	if settled == nil {
		settled = to.reached(c.reach(c.settled))
	}
	if err == nil {
		err = settled
	}
	copied.Events, copied.Reached = c.events, c.settled
	return copied, err
}

// copier carries transactions from the stream to the file. Its methods belong to one goroutine.
type copier struct {
	stream    *replication.Stream
	histories []history.Row
	route     *evidence.Route
	assembler *evidence.Assembler
	router    *evidence.Router
	to        *EventFile
	events    int
	upTo      schemas.LSN // everything below is in the file's buffer
	settled   schemas.LSN // and here on disk
}

func newCopier(a *Auditor, o *openedStream, to *EventFile) *copier {
	c := &copier{stream: o.stream, histories: o.catalog.Histories, route: a.route(o.stream.Identity()), to: to, upTo: o.stream.StartedAt(), settled: o.stream.StartedAt()}
	c.router = evidence.NewRouter(c.route, a.config.HashKey)
	from := c.reach(c.upTo)
	c.assembler = evidence.NewAssembler(c.route.Source, a.config.Keys, evidence.Standing{
		Last: evidence.LastBeat{Reach: from}, Origin: from, Tables: o.catalog.CoveredAt(c.upTo),
	})
	return c
}

// reach is a position with history and timeline.
func (c *copier) reach(at schemas.LSN) evidence.Reach {
	id := c.stream.Identity()
	return evidence.Reach{History: c.historyAt(at), Timeline: id.TimelineOf(at), LSN: at}
}

// historyAt is the history that a position belongs to: each is in force above its fork.
func (c *copier) historyAt(at schemas.LSN) (number schemas.History) {
	for _, h := range c.histories {
		if number == 0 || at > h.Fork.LSN {
			number = h.Number
		}
	}
	return number
}

// settleEvery is how long a line may wait to be on disk, and for whoever reads it.
const settleEvery = 200 * time.Millisecond

func (c *copier) run(ctx context.Context, until schemas.LSN) error {
	timer := time.AfterFunc(settleEvery, c.stream.Wake)
	defer timer.Stop()
	for {
		if until != 0 && c.upTo >= until {
			return nil
		}
		m, err := c.stream.Next(ctx)
		switch {
		case err == nil:
			err = c.handle(m)
		case errors.Is(err, replication.ErrWoken):
			if err = c.settle(); err == nil && until != 0 {
				c.stream.Ask()
			}
			timer.Reset(settleEvery)
		case ctx.Err() != nil:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *copier) handle(m *replication.Message) error {
	switch m.Kind {
	case replication.KindBegin:
		m.Tx.History = c.historyAt(m.Tx.CommitLSN)
		c.assembler.Begin(m.Tx)
		return nil
	case replication.KindChange:
		c.assembler.Change(m.Change)
		return c.write()
	case replication.KindCommit:
		return c.commit(m.Tx)
	default:
		if !m.Open {
			c.upTo = max(c.upTo, m.WALEnd)
		}
		if !m.Stopping {
			return nil
		}
		if err := c.settle(); err != nil {
			return err
		}
		return c.stream.CheckStop(0)
	}
}

func (c *copier) commit(tx *replication.Tx) error {
	outcome := c.assembler.Commit(tx, nil)
	if err := c.write(); err != nil {
		return err
	}
	for _, marker := range outcome.Markers {
		if err := c.put(marker.At, c.router.MarkerValue(marker)); err != nil {
			return err
		}
	}
	c.upTo = max(c.upTo, tx.EndLSN)
	return nil
}

// write writes the events that are certain.
func (c *copier) write() error {
	for e := c.assembler.Next(); e != nil; e = c.assembler.Next() {
		if err := c.put(e.Tx.Position(e.Ordinal), c.router.Route(e).Value); err != nil {
			return err
		}
	}
	return nil
}

func (c *copier) put(at replication.Position, value []byte) error {
	if c.to.has(at) {
		return nil
	}
	c.events++
	return c.to.write(value)
}

// settle makes durable what was written, and then lets the temporary slot move on.
func (c *copier) settle() error {
	upTo := c.upTo // within a transaction, where the one before ends
	if err := c.to.sync(); err != nil {
		return err
	}
	c.settled = upTo
	c.stream.Confirm(upTo)
	return nil
}
