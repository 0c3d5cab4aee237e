package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// Client is a connection to a cluster: what a Publisher and all readers stand on. Safe for concurrent use. Close it.
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

// metadataAge bounds how long a client believes in a leader that answers nothing. Leaders that answer "not I" are
// replaced at once: see refresh.
const metadataAge = 5 * time.Second

// NewClient makes a client. It connects with the first request, and again whenever it must.
func NewClient(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if len(cfg.Brokers) == 0 {
		return nil, errors.New("kafka: no brokers: set kafka.brokers, or LAPSE_KAFKA_BROKERS to host:port,host:port")
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

// Close ends all connections; requests under way fail.
func (c *Client) Close() {
	c.stop()
	c.transport.CloseIdleConnections()
	c.conns.closeAll()
}

// refresh makes the next request ask for the cluster's metadata first. kafka-go offers no other way to say so: a new pool
// of connections begins with metadata, and the old one ends with its last request.
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

// retry calls try until it succeeds, or fails for good, or ctx ends. Each call gets a context of its own, with the time
// limit of one request.
func (c *Client) retry(ctx context.Context, what string, try func(context.Context) error) error {
	var last error
	for attempt := 1; ; attempt++ {
		err := c.once(ctx, try)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("kafka: %s: %w", what, ended(ctx, last))
		case gradeOf(err) != gradeRetry:
			return fmt.Errorf("kafka: %s: %w%s", what, own(err), advice(err))
		}
		if worthLogging(attempt) {
			c.log.Warn("kafka does not answer as it should; trying again",
				"what", what, "attempt", attempt, "error", err)
		}
		last = err
		c.refresh()
		c.pause(ctx, attempt)
	}
}

// ended words the end of ctx together with what had gone wrong until then. That is text only: it would have passed, so
// nobody outside may grade by it.
func ended(ctx context.Context, last error) error {
	if last == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w; before that: %s", context.Cause(ctx), last.Error())
}

func (c *Client) once(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timing.request)
	defer cancel()
	return try(ctx)
}

// pause waits before another attempt: twice as long each time, with some chance in it, so that partitions spread.
func (c *Client) pause(ctx context.Context, attempt int) {
	d := c.timing.backoffMin << min(attempt-1, 10)
	d = min(d, c.timing.backoffMax)
	d = d/2 + rand.N(d/2+1)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// worthLogging picks the 4th, 8th, 16th … attempt: a leader that has moved, or a broker that has just started, is usual
// and over by then.
func worthLogging(attempt int) bool { return attempt >= 4 && attempt&(attempt-1) == 0 }

// connections knows what is open. kafka-go leaves a request that was given up to its deadline, connection and goroutine
// with it; Close must not.
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
		_ = c.Conn.Close() // its owner learns of it from the next read or write
	}
}
