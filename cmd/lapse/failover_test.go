package main

import (
	"errors"
	"fmt"
	"testing"

	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// ofBoth is a connection string that finds the primary of two servers.
func ofBoth(role string, a, b *pgtest.DB) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d,127.0.0.1:%d/%s?sslmode=disable&target_session_attrs=read-write",
		role, a.Server.Port(), b.Server.Port(), a.Name)
}

// The primary is killed while serve deletes and others do, and its standby, which has a copy of the slot, is promoted. The same
// process goes on there by itself, and whatever is gone from the promoted server is in its topic once.
func TestServeGoesOnAtThePromotedStandby(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		ctx, cancel := patience(t)
		defer cancel()
		s := newShop(t, db, kafkatest.Broker(t), scaled(10_000), scaled(2_000), 100)
		standby := db.Standby(t)
		db.Exec(t, fmt.Sprintf(`alter system set synchronized_standby_slots = '%s_standby'`, db.Name), `select pg_reload_conf()`)
		s.m.write("lapse.yaml", fmt.Sprintf(`
database: { owner: %q, executor: %q, auditor: %q }
keys: keys
kafka: { brokers: %q }
topics: { system: %[5]s.system, user: %[5]s.user, log: %[5]s.log, partitions: 3 }
`, ofBoth("postgres", db, standby.DB), ofBoth("lapse_executor", db, standby.DB), ofBoth("lapse_auditor", db, standby.DB), s.broker.Addr(), s.name))
		d := s.m.serve()
		d.ready(200)
		standby.SyncSlot(t, "lapse_"+db.Name)
		conn := db.Connect(t)
		reached := func(query string, args ...any) {
			t.Helper()
			err := eventually(ctx, func() (passed bool, err error) {
				err = conn.QueryRow(ctx, query, args...).Scan(&passed)
				return passed, errors.Join(err, d.alive())
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		reached(`select coalesce(sum(deleted), 0) >= $1 from lapse.batch_result`, s.due/10)
		others := make(chan error, 1)
		go func() { others <- s.interfere(ctx) }()
		reached(`select count(*) <= $1 from public.sessions where id > $2`, 3*s.others-s.others/4, s.due)
		if err := db.Server.Kill(); err != nil {
			t.Fatal(err)
		}
		t.Logf("when the primary died the others had this error: %v", <-others)
		standby.Promote(t)
		s.db = standby.DB
		if err := s.interfere(ctx); err != nil { // with what is left
			t.Fatal(err)
		}
		s.settled(ctx, d)
		d.ready(200)
		d.stop()
		s.expect()
	})
}
