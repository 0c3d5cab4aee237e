package audit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"

	"lapse/audit"
	"lapse/audit/history"
	"lapse/internal/evidencetest"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/replication"
	"lapse/schemas"
)

// refused wants an auditor to refuse, and the slot to stay where it is.
func (r *rig) refused(t *testing.T, reason error, change ...func(*audit.Config)) {
	t.Helper()
	conn := r.db.Connect(t)
	before := r.confirmed(t, conn)
	r.ends(t, reason, change...)
	if after := r.confirmed(t, conn); after != before {
		t.Errorf("the slot has moved from %s to %s", before, after)
	}
}

// ends wants an auditor to refuse, which may have gone on for a while before it learned the reason.
func (r *rig) ends(t *testing.T, reason error, change ...func(*audit.Config)) {
	t.Helper()
	conn := r.db.Connect(t)
	doubted := 0
	err := r.tryOnce(t, append(change, func(c *audit.Config) {
		c.OnDoubt(func(context.Context) error { doubted++; return nil })
	})...)
	var refusal *history.RefusalError
	if !errors.Is(err, reason) || !errors.As(err, &refusal) {
		t.Fatalf("got %v, want %v", err, reason)
	}
	if refusal.Fix == "" {
		t.Errorf("%v does not say what to do", err)
	}
	if doubted != 1 {
		t.Errorf("the heartbeats were taken back %d times", doubted)
	}
	eventually(t, "the slot is free again", func() bool {
		var active bool
		err := conn.QueryRow(t.Context(), `select active from pg_replication_slots where slot_name = $1`, r.settings.Slot).Scan(&active)
		return err == nil && !active
	})
}

// begun runs an auditor over a few deletes, so that there is something to lose.
func (r *rig) begun(t *testing.T) *writer {
	t.Helper()
	w := &writer{conn: r.db.Connect(t)}
	r.commit(t, w, 3, user)
	r.commit(t, w, 3, system)
	r.once(t)
	return w
}

func TestASlotWithoutItsLogIsRefused(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		r.begun(t)
		r.refused(t, history.ErrLogMissing, func(c *audit.Config) { c.Log += ".other" })
		r.refused(t, history.ErrLogMissing, func(c *audit.Config) {
			c.Log, c.System, c.User = c.Log+".new", c.System+".new", c.User+".new"
		})
	})
}

func TestAnEmptyLogBesideTopicsThatAreNotIsRefused(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := r.begun(t)
		// A slot that was made again at the catalog's position, as if nothing had ever been read.
		if err := replication.DropSlot(t.Context(), w.conn, r.settings.Slot); err != nil {
			t.Fatal(err)
		}
		start, err := replication.CreateSlot(t.Context(), w.conn, r.settings.Slot)
		if err != nil {
			t.Fatal(err)
		}
		r.recordSlot(t, start)
		r.refused(t, history.ErrLogMissing, func(c *audit.Config) { c.Log += ".other" })
	})
}

func TestASlotWhoseBeginningIsNotKnownIsRefused(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		r.recordSlot(t, 0)
		r.refused(t, history.ErrLogMissing)
	})
}

func TestALogThatEndsBeforeTheSlotIsRefused(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := r.begun(t)
		r.commit(t, w, 3, user)
		r.db.Exec(t, fmt.Sprintf(`select pg_replication_slot_advance('%s', pg_current_wal_lsn())`, r.settings.Slot))
		r.refused(t, history.ErrLogBehind)
	})
}

func TestASlotThatWasMadeAnewIsRefused(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := r.begun(t)
		r.commit(t, w, 3, user)
		if err := replication.DropSlot(t.Context(), w.conn, r.settings.Slot); err != nil {
			t.Fatal(err)
		}
		if _, err := replication.CreateSlot(t.Context(), w.conn, r.settings.Slot); err != nil {
			t.Fatal(err)
		}
		r.refused(t, history.ErrLogBehind)
	})
}

func TestASlotThatIsMovedWhileTheStreamIsBrokenIsNoticed(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := r.begun(t)
		run := r.start(t)
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		// Between the end of the stream and its next beginning, somebody can move the slot.
		eventually(t, "the auditor gives up", func() bool {
			_, _ = w.conn.Exec(t.Context(), `select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = $1`, r.settings.Slot)
			_, _ = w.conn.Exec(t.Context(), beatNow)
			_, _ = w.conn.Exec(t.Context(), `select pg_replication_slot_advance($1, pg_current_wal_lsn())`, r.settings.Slot)
			select {
			case <-run.done:
				return true
			default:
				return false
			}
		})
		if !errors.Is(run.err, history.ErrLogBehind) {
			t.Errorf("got %v, want %v", run.err, history.ErrLogBehind)
		}
		run.err = nil
	})
}

func TestTopicsOfAnotherDatabaseAreRefused(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		r := newRig(t, db, kafkatest.Broker(t))
		r.begun(t)
		other := newRig(t, pgtest.New(t, db.Major), kafkatest.Broker(t))
		theirs := func(c *audit.Config) { c.System, c.User, c.Log = r.settings.System, r.settings.User, r.settings.Log }
		other.refused(t, history.ErrForeignTopic, theirs)
		other.refused(t, history.ErrForeignTopic, func(c *audit.Config) { theirs(c); c.Log = other.settings.Log })
		r.once(t) // and the rightful owner goes on
	})
}

// echo writes a record that nobody of Lapse would write into a partition 0.
func (r *rig) echo(t *testing.T, topic, value string, headers ...kafka.Header) {
	t.Helper()
	transport := &kafka.Transport{} // of its own: the default one has seen the cluster before the topic was there
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(r.settings.Broker), Transport: transport}
	resp, err := client.Produce(t.Context(), &kafka.ProduceRequest{
		Topic: topic, RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte(value)), Headers: headers}),
	})
	if err = errors.Join(err, resp.Error); err != nil {
		t.Fatal(err)
	}
}

func TestForeignRecordsAreSteppedOver(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := r.begun(t)
		for range 3 {
			r.echo(t, r.settings.User, "hello")
			r.echo(t, r.settings.System, `{"event_id":"?"}`)
			r.echo(t, r.settings.Log, `{"kind":"coverage"}`)
			r.commit(t, w, 3, user)
			r.commit(t, w, 3, system)
			metrics := audit.NewMetrics()
			r.once(t, func(c *audit.Config) { c.Metrics = metrics })
			if n := gather(t, metrics)[fmt.Sprintf("lapse_foreign_records_total{topic=%q}", r.settings.User)]; n < 1 {
				t.Errorf("%v foreign records were counted in the user topic", n)
			}
		}
		events, seen := map[string]int{}, map[string]bool{}
		for _, topic := range []string{r.settings.User, r.settings.System} {
			for _, record := range r.read(t, topic) {
				if record.Header("lapse-op") == "delete" && !seen[string(record.Value)] {
					seen[string(record.Value)] = true
					events[record.Header("lapse-cause")]++
				}
			}
		}
		if events["user"] != 36 || events["system"] != 36 {
			t.Errorf("events %v, want 36 of each: three sessions, with two notes each, in each of four rounds", events)
		}
	})
}

func TestOtherTopicsThanTheLogsAreRefused(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		r.begun(t)
		r.refused(t, history.ErrRouteChanged, func(c *audit.Config) { c.User += ".other" })
		r.refused(t, history.ErrRouteChanged, func(c *audit.Config) {
			c.System, c.User, c.Partitions = c.System+".more", c.User+".more", 5
		})
		r.once(t)
	})
}

func TestADatabaseThatIsRenamedKeepsItsNameInTheLog(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		r := newRig(t, db, kafkatest.Broker(t))
		w := r.begun(t)
		_ = w.conn.Close(t.Context())
		was := db.Name
		admin := *db
		admin.URL = db.Server.URL("postgres", "postgres")
		admin.Exec(t, fmt.Sprintf(`select pg_terminate_backend(pid) from pg_stat_activity where datname = '%s'`, was),
			fmt.Sprintf(`alter database %s rename to renamed`, was))
		db.Name, db.URL = "renamed", db.Server.URL("postgres", "renamed")
		r.settings.URL = db.URL
		w.conn = db.Connect(t)
		r.commit(t, w, 3, user)
		r.once(t)
		for _, record := range r.read(t, r.settings.User) {
			if got := field(t, record.Value, "lapse", "database"); got != was {
				t.Fatalf("an event is of database %v, want %s", got, was)
			}
		}
	})
}

func field(t *testing.T, value []byte, path ...string) any {
	t.Helper()
	found := evidencetest.ParseJSON(t, value)
	for _, name := range path {
		object, ok := found.(map[string]any)
		if !ok {
			t.Fatalf("%s is looked for in %v, which is no object", name, found)
		}
		found = object[name]
	}
	return found
}

func TestAnAuditorWithoutAUsableKeyIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys []schemas.Key
		says string
	}{
		"none":        {nil, "no tag key"},
		"a short one": {[]schemas.Key{evidencetest.TagKey, evidencetest.TagKey[:5]}, schemas.ErrKeyTooShort.Error()},
	} {
		config := settings{System: "a", User: "b", Log: "c"}.config()
		config.Keys = c.keys
		if _, err := audit.New(config); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
}

func TestAnAuditorThatIsNotRunningIsNotReady(t *testing.T) {
	t.Parallel()
	a, err := audit.New(settings{System: "a", User: "b", Log: "c"}.config())
	if err != nil {
		t.Fatal(err)
	}
	if why := a.Ready(); why == nil || why.Error() != "not started" {
		t.Errorf("before Run it says %v", why)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Run(ctx); err != nil {
		t.Errorf("a cancelled Run ends with %v", err)
	}
	if why := a.Ready(); why == nil || why.Error() != "stopped" {
		t.Errorf("after Run it says %v", why)
	}
}
