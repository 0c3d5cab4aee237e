package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"

	"lapse/bench/internal/measure"
	"lapse/internal/backoff"
)

// latency is how long after the answer to COMMIT an event is read from the topic, in milliseconds.
type latency struct {
	Rate    int      `json:"deletes_per_second"`
	Did     float64  `json:"deletes_per_second_measured"`
	Events  int      `json:"events"`
	P50     float64  `json:"p50"`
	P99     float64  `json:"p99"`
	P999    float64  `json:"p999"`
	Most    float64  `json:"most"`
	Slowest []moment `json:"slowest"` // the slowest first
}

// deleters is how many connections delete, and perSecond how many transactions they have at most: a higher rate has more rows in each.
const (
	deleters  = 4
	perSecond = 1000
	// leadIn is at the same rate and does not count: until all of the topic's readers have connected, they are what is late; and the
	// broker's code is compiled for the rate.
	leadIn = 5 * time.Second
)

// latencies measures all rates, b.runs times, with one `lapse audit` beside them.
func (b *bench) latencies(ctx context.Context, p *place) (all []latency, err error) {
	process, err := p.lapse.Start(ctx, p.audit(), "audit")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, process.Stop(0)) }()
	for range b.runs {
		for _, rate := range b.rates {
			got, err := p.latency(ctx, rate, b.lasts)
			if err != nil {
				return all, fmt.Errorf("at %d deletes a second: %w", rate, err)
			}
			b.Say("  %d deletes/s: p50 %.1f ms, p99 %.1f ms, p99.9 %.1f ms, most %.1f ms, %d events; slowest: %v",
				rate, got.P50, got.P99, got.P999, got.Most, got.Events, got.Slowest)
			all = append(all, got)
		}
	}
	return all, nil
}

// latency deletes at a rate, and reads the events.
func (p *place) latency(ctx context.Context, rate int, lasts time.Duration) (got latency, err error) {
	each := max(1, rate/perSecond) // rows of a transaction
	leading := int(leadIn.Seconds()) * rate / each
	transactions := leading + int(lasts.Seconds())*rate/each
	first, err := p.fill(ctx, transactions*each, false)
	if err != nil {
		return got, err
	}
	reader, err := p.follow(ctx, first, each, transactions)
	if err != nil {
		return got, err
	}
	committed, took, err := p.deleteAtRate(ctx, first, each, transactions, rate)
	if err != nil {
		return got, errors.Join(err, reader.stop())
	}
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	select {
	case <-reader.done:
	case <-limited.Done():
		return got, errors.Join(fmt.Errorf("%d of %d events came", reader.count(), transactions*each), reader.stop())
	}
	if err := reader.stop(); err != nil {
		return got, err
	}
	var waited []time.Duration
	committed = committed[leading:]
	for n, at := range reader.readAt[leading*each:] {
		waited = append(waited, at.Sub(committed[n/each]))
	}
	slowest := slowestOf(waited, committed, each)
	if err := p.nameCheckpoints(slowest, committed[0]); err != nil {
		return got, err
	}
	slices.Sort(waited)
	return latency{
		Rate: rate, Did: float64(len(reader.readAt)) / took.Seconds(), Events: len(waited), Slowest: slowest,
		P50: measure.Milliseconds(waited, 0.5), P99: measure.Milliseconds(waited, 0.99), P999: measure.Milliseconds(waited, 0.999),
		Most: measure.Milliseconds(waited, 1),
	}, nil
}

// deleteAtRate deletes the rows, each so many in one transaction, and says when each was answered.
func (p *place) deleteAtRate(ctx context.Context, first, each, transactions, rate int) (committed []time.Time, took time.Duration, err error) {
	committed = make([]time.Time, transactions)
	pause := time.Duration(each) * time.Second / time.Duration(rate)
	errs := make([]error, deleters)
	began := time.Now()
	var all sync.WaitGroup
	for i := range deleters {
		all.Go(func() {
			conn, err := pgx.Connect(ctx, p.server.SocketURL("postgres", database))
			if err != nil {
				errs[i] = err
				return
			}
			defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
			for n := i; n < transactions; n += deleters {
				if err := backoff.Sleep(ctx, time.Until(began.Add(time.Duration(n)*pause))); err != nil {
					errs[i] = err
					return
				}
				low := first + n*each
				if _, err := conn.Exec(ctx, "delete from shop.sessions where id >= $1 and id < $2", low, low+each); err != nil {
					errs[i] = err
					return
				}
				committed[n] = time.Now()
			}
		})
	}
	all.Wait()
	return committed, time.Since(began), errors.Join(errs...)
}

// following reads the topic of the users' deletes from where it ended.
type following struct {
	readers []*kafka.Reader
	cancel  context.CancelFunc
	all     sync.WaitGroup
	done    chan struct{}

	mu     sync.Mutex
	readAt []time.Time // of each row
	got    int
	err    error
}

// follow begins to read the events of the rows from first on.
func (p *place) follow(ctx context.Context, first, each, transactions int) (*following, error) {
	found, err := p.ends(ctx, userTopic)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &following{cancel: cancel, done: make(chan struct{}), readAt: make([]time.Time, transactions*each)}
	for partition, end := range found[userTopic] {
		r := kafka.NewReader(kafka.ReaderConfig{
			Brokers: []string{p.broker.Addr()}, Topic: userTopic, Partition: partition, MinBytes: 1, MaxBytes: 10 << 20, MaxWait: 100 * time.Millisecond,
		})
		f.readers = append(f.readers, r)
		if err := r.SetOffset(end); err != nil {
			return nil, errors.Join(err, f.stop())
		}
		f.all.Go(func() { f.read(ctx, r, first) })
	}
	return f, nil
}

func (f *following) read(ctx context.Context, r *kafka.Reader, first int) {
	for {
		m, err := r.ReadMessage(ctx)
		now := time.Now()
		if err != nil {
			if ctx.Err() == nil {
				f.fail(err)
			}
			return
		}
		digits := bytes.TrimFunc(m.Key, func(c rune) bool { return c < '0' || c > '9' })
		id, err := strconv.Atoi(string(digits))
		if err != nil || id < first || id >= first+len(f.readAt) {
			continue // a record of the publisher's own, or of another row
		}
		f.mu.Lock()
		if f.readAt[id-first].IsZero() {
			f.readAt[id-first] = now
			if f.got++; f.got == len(f.readAt) {
				close(f.done)
			}
		}
		f.mu.Unlock()
	}
}

func (f *following) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = errors.Join(f.err, err)
}

func (f *following) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.got
}

func (f *following) stop() error {
	f.cancel()
	f.all.Wait()
	for _, r := range f.readers {
		_ = r.Close() // it only read
	}
	return f.err
}
