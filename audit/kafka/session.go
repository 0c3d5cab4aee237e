package kafka

import (
	"context"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// session identifies a publisher to the brokers: the producer that belongs to the transactional id, and the epoch, which
// grows with each publisher that is opened and with each renewal.
type session struct {
	producer int64
	epoch    int16
	granted  time.Time // when it was requested
}

// transactionTimeout is asked for and never used: nothing here is transactional. Brokers allow 15 minutes at most.
const transactionTimeout = time.Minute

// openSession takes the transactional id over: the coordinator always gives the next epoch.
func (c *Client) openSession(ctx context.Context, transactionalID string) (session, error) {
	return c.initProducer(ctx, "open a session", transactionalID, -1, -1)
}

// renewSession asks for the next epoch in the name of s. The coordinator refuses it if another publisher has taken over since. If an answer
// was lost and it asks twice, the coordinator gives the same answer twice.
//
// The coordinator forgets a transactional id seven days after the last such request, even while records are produced.
func (c *Client) renewSession(ctx context.Context, transactionalID string, s session) (session, error) {
	return c.initProducer(ctx, "renew the session", transactionalID, int(s.producer), int(s.epoch))
}

func (c *Client) initProducer(ctx context.Context, what, transactionalID string, producer, epoch int) (session, error) {
	var s session
	err := c.retry(ctx, fmt.Sprintf("%s for transactional id %q", what, transactionalID),
		func(ctx context.Context) error {
			asked := time.Now()
			resp, err := c.kafka.InitProducerID(ctx, &kafkago.InitProducerIDRequest{
				TransactionalID:      transactionalID,
				TransactionTimeoutMs: int(transactionTimeout.Milliseconds()),
				ProducerID:           producer,
				ProducerEpoch:        epoch,
			})
			if err != nil {
				return err
			}
			if resp.Error != nil {
				return resp.Error // 14, 15 and 16 from a coordinator that is still loading: retried
			}
			s = session{
				producer: int64(resp.Producer.ProducerID),
				epoch:    int16(resp.Producer.ProducerEpoch),
				granted:  asked,
			}
			return nil
		})
	return s, err
}

// elapsed is the time since t by whichever clock has advanced further: the monotonic clock stops while a machine sleeps, and the wall clock
// may be set back.
func elapsed(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}
