package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// lease is the right to work on one shard. It ends 30 seconds after the last batch of its holder (the deletion function
// moves that instant along in each batch's own transaction) or when it is given back.
//
// The term is what makes a lease safe: each claim makes the next one, and the deletion function refuses any but the
// last. A process that was stopped for an hour and goes on in the middle of a batch is refused, whatever it believes.
//
// Nobody waits with a lease in hand: a policy that pauses, for whatever reason, gives its shard back first. While the
// outcome of a commit is unknown that transaction itself has the shard's row locked, and nobody can claim it. A process
// that lost its connection with a lease in hand claims the shard again, as its own.
//
//	crash before the claim commits      the shard is free
//	crash with the lease in hand        the shard is free after 30 seconds; its cursor says where to go on
//	crash while it is given back        the same, or it is free at once
type lease struct {
	shard  int64
	term   int64
	run    uuid.UUID
	leaf   uint32 // the table or partition
	cutoff time.Time
}

const claimQuery = `
	update lapse.shard s
	   set holder = $2, term = s.term + 1, lease_until = clock_timestamp() + interval '30 seconds'
	 where s.id = (
	         select f.id
	           from lapse.shard f
	          where f.run = $1 and not f.done
	            and (f.lease_until is null or f.lease_until <= clock_timestamp() or f.holder = $2)
	          order by f.id
	          limit 1
	            for update skip locked)
	returning s.id, s.term, s.run, s.leaf, s.cutoff`

// claim takes a shard of run that nobody else holds. It returns nil when there is none. Durable when it returns.
func (s *session) claim(ctx context.Context, run uuid.UUID) (*lease, error) {
	var l lease
	err := s.conn.QueryRow(ctx, claimQuery, run, s.holder).Scan(&l.shard, &l.term, &l.run, &l.leaf, &l.cutoff)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("claim a shard of run %v: %w", run, err)
	}
	return &l, nil
}

// release gives the shard back, unless it is another's by now. It returns a position above all that was committed
// before.
func (s *session) release(ctx context.Context, l *lease) (position, error) {
	batch := &pgx.Batch{}
	batch.Queue(insertPosition)
	batch.Queue(`update lapse.shard set holder = null, lease_until = null where id = $1 and term = $2 and holder = $3`,
		l.shard, l.term, s.holder)
	var above position
	answers := s.conn.SendBatch(ctx, batch)
	err := answers.QueryRow().Scan(&above)
	if closed := answers.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return above, fmt.Errorf("release shard %d: %w", l.shard, err)
	}
	return above, nil
}

// unfinished says whether a shard of run is left, whoever holds it.
func (s *session) unfinished(ctx context.Context, run uuid.UUID) (left bool, err error) {
	err = s.conn.QueryRow(ctx, `select exists (select from lapse.shard where run = $1 and not done)`, run).Scan(&left)
	if err != nil {
		return false, fmt.Errorf("look what is left of run %v: %w", run, err)
	}
	return left, nil
}
