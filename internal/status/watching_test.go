package status

import (
	"strings"
	"testing"
	"time"

	"lapse/internal/fixture"
	"lapse/internal/pgtest"
)

// An auditor that reads the slot of a server that was started after the last heartbeat writes none for two minutes, and status counts them down.
func TestTheWatchingOfAnAuditorIsCountedDown(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := db.Connect(t)
		var start, now time.Time
		fixture.Must(t, conn.QueryRow(t.Context(), `select pg_postmaster_start_time(), now()`).Scan(&start, &now))
		reader := int32(conn.PgConn().PID()) // #nosec G115 -- of a process
		before, err := readWatching(t.Context(), conn, reader, start.Add(-time.Hour))
		fixture.Must(t, err)
		if before < 0 || before > watching.Seconds() {
			t.Errorf("it watches for %v s", before)
		}
		later, err := readWatching(t.Context(), conn, reader, start.Add(-time.Hour))
		fixture.Must(t, err)
		if later > before || later == before && before > 0 {
			t.Errorf("it watches for %v s, and later for %v s", before, later)
		}
		if after, err := readWatching(t.Context(), conn, reader, now); err != nil || after != 0 {
			t.Errorf("after a heartbeat of this server it watches for %v s, %v", after, err)
		}
		if hidden, err := readWatching(t.Context(), conn, 0, start.Add(-time.Hour)); err != nil || hidden > before {
			t.Errorf("by the server's start it watches for %v s, by the session's for %v s, %v", hidden, before, err)
		}
	})
	waits := Audit{Required: true, Slot: "s", Exists: true, Revoked: true}
	if text := waits.Text(time.Time{}); !strings.Contains(text, "slot s: the auditor waits for a person") || !(&Status{Audit: waits}).NeedsPerson() {
		t.Error(text)
	}
	room := int64(100)
	nearly := Audit{Required: true, Slot: "s", Exists: true, Active: true, Held: 299, Headroom: &room}
	if strings.Contains(nearly.Text(time.Time{}), "nothing is deleted") || nearly.NeedsPerson() {
		t.Error("more than a quarter is left, and it needs a person")
	}
	if nearly.Held++; !strings.Contains(nearly.Text(time.Time{}), "100 B until it is lost, so nothing is deleted: raise max_slot_wal_keep_size") || !nearly.NeedsPerson() {
		t.Error(nearly.Text(time.Time{}))
	}
	beat := time.Date(2026, 5, 2, 12, 0, 0, 0, time.UTC)
	a := Audit{Required: true, Slot: "s", Exists: true, Active: true, LastBeat: &beat, Watching: 80}
	if text := a.Text(beat.Add(time.Hour)); !strings.HasSuffix(text, "last beat 1h ago; the server was started since: the auditor looks for 2 minutes "+
		"whether another one writes the log, and nothing is deleted: 1m to go at most") {
		t.Error(text)
	}
}
