package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"lapse/internal/backoff"
)

// Client is a connection to a cluster. Publishers and readers use it. Safe for concurrent use. Close it.
type Client struct {
	kafka     *kafkago.Client
	transport *kafkago.Transport
	log       *slog.Logger
	timing    *timing
	conns     connections
	stop      context.CancelFunc

	mu        sync.Mutex
	refreshed time.Time
}

// metadataAge is how long a client keeps asking a leader that does not answer. After an answer "not the leader" it asks for the new one at once: see
// refresh.
const metadataAge = 5 * time.Second

// NewClient makes a client. It connects with the first request, and again whenever it must.
func NewClient(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if len(cfg.Brokers) == 0 {
		return nil, errors.New("connect to Kafka: no brokers: set kafka.brokers, or LAPSE_KAFKA_BROKERS to host:port,host:port")
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Client{log: cfg.Logger, timing: cfg.timing, stop: stop}
	c.transport = &kafkago.Transport{
		Dial:        c.conns.dialer(cfg.Dial),
		MetadataTTL: metadataAge,
		ClientID:    "lapse",
		TLS:         cfg.TLS,
		SASL:        cfg.SASL,
		Context:     ctx,
	}
	for _, t := range cfg.Topics {
		c.transport.MetadataTopics = append(c.transport.MetadataTopics, t.Name)
	}
	c.kafka = &kafkago.Client{
		Addr:      kafkago.TCP(cfg.Brokers...),
		Timeout:   cfg.timing.request,
		Transport: c.transport,
	}
	return c, nil
}

// Close ends all connections. Requests under way fail.
func (c *Client) Close() {
	c.stop()
	c.transport.CloseIdleConnections()
	c.conns.closeAll()
}

// refresh makes the next request ask for the cluster's metadata first. kafka-go offers no call for that: but a new pool of
// connections begins with metadata, and the old pool ends with its last request.
func (c *Client) refresh() {
	const pause = 250 * time.Millisecond // all partitions notice a lost leader at the same time
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.refreshed) < pause {
		return
	}
	c.refreshed = time.Now()
	c.transport.CloseIdleConnections()
}

// retry calls try until it succeeds, fails with a permanent error, or ctx ends. Each call gets its own context with the time limit of one
// request. what begins the error's text: the operation and its object.
func (c *Client) retry(ctx context.Context, what string, try func(context.Context) error) error {
	pauses := c.timing.backoff()
	var last error
	for attempt := 1; ; attempt++ {
		err := c.once(ctx, try)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w", what, contextEnded(ctx, last))
		case gradeOf(err) != gradeRetry:
			return fmt.Errorf("%s: %w", what, withAdvice(err))
		}
		if worthLogging(attempt) {
			c.log.Warn("kafka does not answer as it should; trying again",
				"what", what, "attempt", attempt, "error", withAdvice(err))
		}
		last = err
		c.refresh()
		_ = pauses.Wait(ctx) // the next attempt fails if ctx has ended
	}
}

// contextEnded is the error for a ctx that has ended. It names the last failure before that as text only: that failure
// might have passed, so no caller may grade the error by it.
func contextEnded(ctx context.Context, last error) error {
	if last == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w; before that: %s", context.Cause(ctx), withAdvice(last).Error())
}

func (c *Client) once(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timing.request)
	defer cancel()
	return try(ctx)
}

// backoff returns the pauses between the attempts of one request.
func (t *timing) backoff() backoff.Backoff {
	return backoff.Backoff{Min: t.backoffMin, Max: t.backoffMax}
}

// worthLogging picks the 4th, 8th, 16th … attempt. Fewer attempts usually suffice until a moved leader is found or a broker has started.
func worthLogging(attempt int) bool { return attempt >= 4 && attempt&(attempt-1) == 0 }

// connections are the open ones. kafka-go leaves an abandoned request running until its deadline, with its connection and
// goroutine. Close must not.
type connections struct {
	mu     sync.Mutex
	open   map[*connection]struct{}
	closed bool
}

type connection struct {
	net.Conn
	all *connections
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

func (cs *connections) dialer(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &connection{Conn: conn, all: cs}
		cs.mu.Lock()
		defer cs.mu.Unlock()
		if cs.closed {
			return nil, errors.Join(net.ErrClosed, conn.Close())
		}
		if cs.open == nil {
			cs.open = make(map[*connection]struct{})
		}
		cs.open[c] = struct{}{}
		return c, nil
	}
}

func (c *connection) Close() error {
	c.all.mu.Lock()
	delete(c.all.open, c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

func (cs *connections) closeAll() {
	cs.mu.Lock()
	cs.closed = true
	open := cs.open
	cs.open = nil
	cs.mu.Unlock()
	for c := range open {
		_ = c.Conn.Close() // the next read or write of its owner fails
	}
}
