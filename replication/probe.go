package replication

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/schemas"
)

// probe connects to a server repeatedly, to see whether it still accepts connections.
type probe struct {
	stopping chan struct{} // closed when the server says that it is shutting down
	cancel   context.CancelFunc
	done     chan struct{}
}

// startProbe connects for the first time after a while, and calls found, if it is not nil, if the server is shutting down.
func startProbe(ctx context.Context, config *pgconn.Config, after time.Duration, found func()) *probe {
	ctx, cancel := context.WithCancel(ctx)
	p := &probe{stopping: make(chan struct{}), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		pause := time.NewTimer(after)
		defer pause.Stop()
		for {
			select {
			case <-pause.C:
			case <-ctx.Done():
				return
			}
			if isShuttingDown(ctx, config) {
				close(p.stopping)
				if found != nil {
					found()
				}
				return
			}
			pause.Reset(probeEvery)
		}
	}()
	return p
}

// found reports whether the server is shutting down. A nil probe has found nothing.
func (p *probe) found() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.stopping:
		return true
	default:
		return false
	}
}

// end ends the probing.
func (p *probe) end() {
	p.cancel()
	<-p.done
}

// isShuttingDown is true only if a server says so. A starting server says the same, but this one has a stream already.
func isShuttingDown(ctx context.Context, config *pgconn.Config) bool {
	ctx, cancel := context.WithTimeout(ctx, probeEvery)
	defer cancel()
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err == nil {
		_ = conn.Close(ctx)
		return false
	}
	return anyError(err, func(err error) bool {
		pg, ok := err.(*pgconn.PgError) //nolint:errorlint // anyError unwraps
		return ok && pg.Code == schemas.SQLStateCannotConnectNow
	})
}

// anyError checks every error in the tree: a connection string with several hosts gives one for each.
func anyError(err error, is func(error) bool) bool {
	if err == nil {
		return false
	}
	if is(err) {
		return true
	}
	switch e := err.(type) { //nolint:errorlint // this is the unwrapping
	case interface{ Unwrap() error }:
		return anyError(e.Unwrap(), is)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if anyError(inner, is) {
				return true
			}
		}
	}
	return false
}
