package audit_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"lapse/audit"
	"lapse/internal/pgtest"
)

func TestTheSlotsLagIsWhatTheServerSays(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	slot := db.Name + "_lag"
	config, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	database := audit.NewDatabase(config)
	t.Cleanup(database.Close)
	registry := prometheus.NewRegistry()
	if err := registry.Register(database.SlotLag(slot)); err != nil {
		t.Fatal(err)
	}
	read := func() map[string]float64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				name := family.GetName()
				if len(m.GetLabel()) == 1 {
					name = m.GetLabel()[0].GetValue()
				}
				values[name] = m.GetGauge().GetValue()
			}
		}
		return values
	}
	if got := read(); len(got) != 0 {
		t.Errorf("without a slot: %v, want nothing", got)
	}
	db.Exec(t, "select pg_create_logical_replication_slot('"+slot+"', 'pgoutput')", "create table t as select generate_series(1, 20000) n")
	behind := read()
	if behind["confirmed"] < 20000 || behind["restart"] < behind["confirmed"] {
		t.Errorf("20,000 rows behind: %v", behind)
	}
	if ratio, is := behind["lapse_slot_headroom_ratio"]; is {
		t.Errorf("the size is unlimited, and the headroom is %v", ratio)
	}
	db.Exec(t, "select pg_replication_slot_advance('"+slot+"', pg_current_wal_lsn())")
	if caughtUp := read(); caughtUp["confirmed"] >= behind["confirmed"] {
		t.Errorf("after the slot has caught up: %v, before: %v", caughtUp, behind)
	}
}
