package audit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"lapse/audit/evidence"
	"lapse/replication"
	"lapse/schemas"
)

// Database is the auditor's connection for SQL, because the streaming connection can run none. It connects on first use, and again after a failure.
// Safe for concurrent use.
type Database struct {
	config *pgx.ConnConfig
	// Declared is what lapse.yaml declares; nothing is said of it if it is nil. The first heartbeat has it. Set it before that.
	Declared *evidence.Declared

	mu     sync.Mutex
	conn   *pgx.Conn
	stated atomic.Bool // Declared is in a heartbeat
}

const (
	databaseTimeout = 10 * time.Second
	slotLagPatience = 2 * time.Second // of a scrape
)

// NewDatabase returns a Database that is not connected yet.
func NewDatabase(config *pgx.ConnConfig) *Database { return &Database{config: config} }

// Beat writes a heartbeat, and fails if its server or history differs from the stream's. It also advances the slot of a database in which nothing
// else is written.
func (d *Database) Beat(ctx context.Context, nonce uuid.UUID, place Server) error {
	var declared *string
	if d.Declared != nil && !d.stated.Load() {
		text := d.Declared.Text()
		declared = &text
	}
	err := d.exec(ctx, `select lapse.beat($1, $2, $3, $4, $5)`, nonce, int32(place.History), int32(place.Timeline), place.ServerStart, declared)
	if err == nil && declared != nil {
		d.stated.Store(true)
	}
	return err
}

// Doubt revokes the existing heartbeats.
func (d *Database) Doubt(ctx context.Context) error { return d.exec(ctx, `select lapse.doubt()`) }

func (d *Database) exec(ctx context.Context, sql string, args ...any) error {
	return d.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, args...)
		return err
	})
}

// Alarm stops every deletion in the database until a person runs `lapse resume --all`. If deletion is stopped already it does nothing. The stop is on
// this server's disk when Alarm returns, even with synchronous_commit off, because the audit continues and does not repeat it. Alarm waits
// for no standby.
func (d *Database) Alarm(ctx context.Context, reason string) error {
	return d.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `set local synchronous_commit = local`); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `select lapse.alarm($1)`, reason)
			return err
		})
	})
}

// end returns the end of the log: everything committed before the call is below it.
func (d *Database) end(ctx context.Context) (end schemas.LSN, err error) {
	err = d.with(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		end, err = replication.End(ctx, conn)
		return err
	})
	return end, err
}

// probe is end. It returns an error if the server process that serves the stream, opened with this connection string, is a synchronous standby.
func (d *Database) probe(ctx context.Context, pid uint32, stream string) (end schemas.LSN, err error) {
	application, err := replication.ApplicationName(stream)
	if err != nil {
		return 0, err
	}
	err = d.with(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if err := replication.CheckAsync(ctx, conn, pid, application); err != nil {
			return err
		}
		end, err = replication.End(ctx, conn)
		return err
	})
	return end, err
}

func (d *Database) with(ctx context.Context, work func(context.Context, *pgx.Conn) error) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	if d.conn == nil || d.conn.IsClosed() {
		if d.conn, err = pgx.ConnectConfig(ctx, d.config); err != nil {
			d.conn = nil
			return fmt.Errorf("connect: %w", err)
		}
	}
	return work(ctx, d.conn)
}

// Close ends the connection.
func (d *Database) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = d.conn.Close(ctx)
		d.conn = nil
	}
}

// SlotLag measures, each time the metrics are read, how much log PostgreSQL keeps for a slot, and how much more it may: the server knows that even
// if the auditor is stuck. If the server does not answer, there is no value instead of an old one.
func (d *Database) SlotLag(slot string) prometheus.Collector { return slotLag{d, slot} }

type slotLag struct {
	database *Database
	slot     string
}

var slotLagBytes = prometheus.NewDesc("lapse_slot_lag_bytes",
	"Bytes of the write-ahead log that the slot has not confirmed (of=confirmed) or that the server keeps because of it (of=restart).",
	[]string{"of"}, nil)

var slotHeadroom = prometheus.NewDesc("lapse_slot_headroom_ratio",
	"Share of max_slot_wal_keep_size that is left before PostgreSQL gives the slot up: 1 if nothing is kept, 0 if it is lost or about to be. "+
		"No value where the size is unlimited.", nil, nil)

// Describe implements prometheus.Collector.
func (s slotLag) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- slotLagBytes
	descriptions <- slotHeadroom
}

// Collect implements prometheus.Collector.
func (s slotLag) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), slotLagPatience)
	defer cancel()
	var state replication.SlotState
	err := s.database.with(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		state, err = replication.ReadSlot(ctx, conn, s.slot)
		return err
	})
	if err != nil || !state.Exists {
		return
	}
	if left, limited := headroomOf(&state); limited {
		metrics <- prometheus.MustNewConstMetric(slotHeadroom, prometheus.GaugeValue, left)
	}
	metrics <- prometheus.MustNewConstMetric(slotLagBytes, prometheus.GaugeValue, float64(state.Behind()), "confirmed")
	metrics <- prometheus.MustNewConstMetric(slotLagBytes, prometheus.GaugeValue, float64(state.Held()), "restart")
}

// headroomOf returns the share that is left of what the server may keep for a slot. limited is false if it may keep everything.
func headroomOf(s *replication.SlotState) (left float64, limited bool) {
	if s.Lost() {
		return 0, true
	}
	if s.SafeWALSize == nil {
		return 0, false
	}
	left = max(float64(*s.SafeWALSize), 0)
	return left / max(left+float64(s.Held()), 1), true
}
