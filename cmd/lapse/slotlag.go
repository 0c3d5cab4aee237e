package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"lapse/replication"
	"lapse/schemas"
)

// slotLag measures how much log PostgreSQL keeps for the slot, each time the metrics are read: while the auditor is stuck,
// it is the server that knows. Where it cannot be asked, there is no value rather than an old one.
type slotLag struct {
	session *auditorSession
	slot    string
}

// slotLagPatience bounds what a scrape waits for the server.
const slotLagPatience = 2 * time.Second

var slotLagBytes = prometheus.NewDesc("lapse_slot_lag_bytes",
	"Log behind the end of the write-ahead log that the slot has not confirmed (of=confirmed) or that the server keeps because of it (of=restart).",
	[]string{"of"}, nil)

// Describe implements prometheus.Collector.
func (s slotLag) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- slotLagBytes }

// Collect implements prometheus.Collector.
func (s slotLag) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), slotLagPatience)
	defer cancel()
	var state replication.SlotState
	err := s.session.with(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		state, err = replication.ReadSlot(ctx, conn, s.slot)
		return err
	})
	if err != nil || !state.Exists {
		return
	}
	metrics <- prometheus.MustNewConstMetric(slotLagBytes, prometheus.GaugeValue, float64(state.Behind()), "confirmed")
	metrics <- prometheus.MustNewConstMetric(slotLagBytes, prometheus.GaugeValue, float64(state.Held()), "restart")
}

// probe is the end of the server's WAL. It is an error if the server process that serves the auditor's stream is a synchronous
// standby.
func (a *auditor) probe(ctx context.Context, pid uint32) (end schemas.LSN, err error) {
	name, err := replication.ApplicationName(a.config.Stream.ConnString)
	if err != nil {
		return 0, err
	}
	err = a.session.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if err := replication.CheckAsync(ctx, conn, pid, name); err != nil {
			return err
		}
		end, err = replication.End(ctx, conn)
		return err
	})
	return end, err
}
