package main

import (
	"context"
	"errors"

	"lapse/audit/evidence"
	"lapse/audit/store"
	"lapse/internal/config"
	"lapse/schemas"
)

// maxLogRead is the largest number of records to read backward from the log's end in search of a heartbeat. There is one a minute.
const maxLogRead = 100_000

// readLogSide reads the log's end position and its last heartbeat.
func (a *app) readLogSide(ctx context.Context, s *config.Settings) (*logSide, error) {
	client, err := a.newClient(s)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, brokerPatience)
	defer cancel()
	c := &consumer{app: a, settings: s}
	l := &logSide{Topic: s.Topics.Log}
	known, err := client.Known(ctx, l.Topic)
	if err != nil || !known {
		return l, c.silence(err)
	}
	read := 0
	err = client.Backward(ctx, l.Topic, 0, -1, func(rec *schemas.Record, _ int64) (bool, error) {
		read++
		if r, err := evidence.ParseLogRecord(rec.Value); err == nil && !rec.IsFence() {
			l.add(r)
		}
		return l.Heartbeat == nil && read < maxLogRead, nil
	})
	var missing *store.MissingError
	if errors.As(err, &missing) {
		return l, nil
	}
	return l, c.silence(err)
}

// add takes a record. Newer records come first.
func (l *logSide) add(r *evidence.LogRecord) {
	if l.Reaches == "" {
		l.Reaches = r.Reach.String()
	}
	if l.Heartbeat == nil && r.Heartbeat != nil {
		at := r.Heartbeat.At
		l.Heartbeat = &at
	}
}
