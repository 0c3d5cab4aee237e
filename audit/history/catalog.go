package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// Catalog is what the catalog says about the database's own past. It is read on the streaming connection.
type Catalog struct {
	Histories  []Row                   // ascending; empty in a database without the catalog
	heartbeats map[uuid.UUID]time.Time // when each existing heartbeat was written
	covered    []evidence.CoveredTable // the rows of lapse.covered, in their order
	sightings  []sighting              // of the published tables, one for each heartbeat, in order
	slotStart  schemas.LSN             // the slot's consistent point as init recorded it; zero for none
	slotMade   time.Time               // when init recorded it
}

// Row is a row of lapse.history.
type Row struct {
	Number schemas.History
	Nonce  uuid.UUID
	logEnd evidence.Reach // where the log ended when a person accepted the database; zero for the first history
	Fork   evidence.Reach // up to where log and database are the same; zero for the first history
	at     time.Time
}

// Newest is the history in force; zero if there is none.
func (c *Catalog) Newest() Row {
	if len(c.Histories) == 0 {
		return Row{}
	}
	return c.Histories[len(c.Histories)-1]
}

// NewestBeat returns when the newest heartbeat was written, by the server's clock; zero if there is none.
func (c *Catalog) NewestBeat() (newest time.Time) {
	for _, at := range c.heartbeats {
		if at.After(newest) {
			newest = at
		}
	}
	return newest
}

// ReadCatalog reads the catalog with the rights of the auditor's role.
func ReadCatalog(ctx context.Context, conn *pgx.Conn) (*Catalog, error) {
	c, err := queryCatalog(ctx, conn)
	if schemas.StateOf(err) == schemas.SQLStateInsufficientPrivilege {
		return nil, fmt.Errorf("%w: the login that audits lacks the rights of role lapse_auditor: grant it that role "+
			"(lapse init does as a superuser; lapse init --grants prints the lines)", err)
	}
	return c, err
}

func queryCatalog(ctx context.Context, conn *pgx.Conn) (*Catalog, error) {
	c := &Catalog{heartbeats: map[uuid.UUID]time.Time{}}
	var made *time.Time
	err := conn.QueryRow(ctx, `select i.slot_start::text, i.slot_made_at from lapse.installation i`).Scan(&c.slotStart, &made)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("read the installation: %w", err)
	}
	if made != nil {
		c.slotMade = made.UTC()
	}
	rows, err := conn.Query(ctx, `
		select h.number, h.nonce, coalesce(h.log_end, ''), coalesce(h.fork, ''), h.at from lapse.history h order by h.number`)
	if err != nil {
		return nil, fmt.Errorf("read the histories: %w", err)
	}
	c.Histories, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (h Row, err error) {
		var end, fork string
		var number int32
		if err = row.Scan(&number, &h.Nonce, &end, &fork, &h.at); err != nil {
			return h, err
		}
		h.Number, h.at = schemas.History(number), h.at.UTC()
		if end != "" {
			if h.logEnd, err = evidence.ParseReach(end); err == nil {
				h.Fork, err = evidence.ParseReach(fork)
			}
		}
		return h, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the histories: %w", err)
	}
	rows, err = conn.Query(ctx, `select h.nonce, h.at, coalesce(h.log_end, '0/0')::text, coalesce(h.covered, 0) from lapse.heartbeat h order by h.id`)
	if err != nil {
		return nil, fmt.Errorf("read the heartbeats: %w", err)
	}
	var nonce uuid.UUID
	var at time.Time
	var s sighting
	_, err = pgx.ForEachRow(rows, []any{&nonce, &at, &s.at, &s.covered}, func() error {
		c.heartbeats[nonce], c.sightings = at.UTC(), append(c.sightings, s)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the heartbeats: %w", err)
	}
	if c.covered, err = queryCovered(ctx, conn); err != nil {
		return nil, fmt.Errorf("read the tables that are published: %w", err)
	}
	return c, nil
}

func queryCovered(ctx context.Context, conn *pgx.Conn) ([]evidence.CoveredTable, error) {
	rows, err := conn.Query(ctx, `select c.number, c.relation, c.name, coalesce(c.root, ''), coalesce(c.moves_by, ''), coalesce(c.file, 0), coalesce(c.due::text, ''), coalesce(c.where_is, false), c.ended from lapse.covered c order by c.number`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c evidence.CoveredTable, err error) {
		var number int64
		var oid, file uint32
		var name, root, movesBy, due string
		var where, ended bool
		if err = row.Scan(&number, &oid, &name, &root, &movesBy, &file, &due, &where, &ended); err == nil {
			var ok bool
			if c, ok = evidence.NewCoveredTable(number, oid, name, root, movesBy, file, due, where, ended); !ok {
				c = evidence.CoveredTable{Number: number, Ended: true} // of no table
			}
		}
		return c, err
	})
}

// sighting is the position at which a heartbeat checked the published tables, and the last row of lapse.covered by then.
type sighting struct {
	at      schemas.LSN
	covered int64
}

// HistoryAt returns the history that a position belongs to: each history is in force above its fork.
func (c *Catalog) HistoryAt(at schemas.LSN) (number schemas.History) {
	for _, h := range c.Histories {
		if number == 0 || at > h.Fork.LSN {
			number = h.Number
		}
	}
	return number
}

// CoveredAt returns the tables that were published at a position, if no log says which heartbeat was the last one before it: those of the last
// heartbeat that checked at or below it. If two heartbeats overlap, the result may lack what the other one found.
func (c *Catalog) CoveredAt(at schemas.LSN) []evidence.CoveredTable {
	for _, s := range slices.Backward(c.sightings) {
		if s.at <= at {
			return c.coveredUpTo(&evidence.Heartbeat{Covered: s.covered})
		}
	}
	return nil
}

// coveredUpTo returns the tables that were published at a heartbeat. What later heartbeats found is still in the stream, and only there between the
// right transactions.
func (c *Catalog) coveredUpTo(beat *evidence.Heartbeat) []evidence.CoveredTable {
	if beat == nil {
		return nil
	}
	n, _ := slices.BinarySearchFunc(c.covered, beat.Covered+1, func(t evidence.CoveredTable, number int64) int { return cmp.Compare(t.Number, number) })
	return c.covered[:n]
}
