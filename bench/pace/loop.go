package main

import (
	"context"
	"time"

	"lapse/internal/backoff"
)

// loopRows is how many rows a statement of the loop deletes.
const loopRows = 200

// loop is what people write: a small DELETE, a pause, until somebody has had enough.
type loop struct {
	cancel  context.CancelFunc
	ended   chan error
	batches []time.Time // when they ended
}

// startLoop starts a loop that takes a part of the time.
func startLoop(ctx context.Context, s *server, part float64) (*loop, error) {
	conn, err := s.Connect(ctx, database)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &loop{cancel: cancel, ended: make(chan error, 1)}
	go func() {
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		for ctx.Err() == nil {
			began := time.Now()
			_, err := conn.Exec(context.WithoutCancel(ctx), `delete from shop.sessions where ctid = any (array(
				select ctid from shop.sessions where at < now() - interval '30 days' order by at, id limit $1))`, loopRows)
			if err != nil {
				l.ended <- err
				return
			}
			ended := time.Now()
			l.batches = append(l.batches, ended)
			_ = backoff.Sleep(ctx, time.Duration(float64(ended.Sub(began))*(1/part-1)))
		}
		l.ended <- nil
	}()
	return l, nil
}

// stop ends the loop, and says how many rows went a second between two instants.
func (l *loop) stop(got *sample) error {
	l.cancel()
	err := <-l.ended
	n := 0
	for _, at := range l.batches {
		if at.After(got.began) && at.Before(got.ended) {
			n++
		}
	}
	got.Batch, got.Deleted = loopRows, float64(n*loopRows)/got.ended.Sub(got.began).Seconds()
	return err
}
