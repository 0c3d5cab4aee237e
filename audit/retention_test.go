package audit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"lapse/audit"
	"lapse/audit/history"
	lapsekafka "lapse/audit/kafka"
	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// settingsOf is what a topic is set to, the broker's defaults included.
func (r *rig) settingsOf(t *testing.T, topic string) map[string]string {
	t.Helper()
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(r.broker.Addr()), Transport: transport}
	answer, err := client.DescribeConfigs(t.Context(), &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}},
	})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, entry := range answer.Resources[0].ConfigEntries {
		found[entry.ConfigName] = entry.ConfigValue
	}
	return found
}

func TestTheLogIsMadeToBeKeptForEver(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		r.once(t)
		log := r.settingsOf(t, r.settings.Log)
		if log["cleanup.policy"] != "delete" || log["retention.ms"] != "-1" || log["retention.bytes"] != "-1" {
			t.Errorf("cleanup.policy=%s retention.ms=%s retention.bytes=%s",
				log["cleanup.policy"], log["retention.ms"], log["retention.bytes"])
		}
		if user := r.settingsOf(t, r.settings.User); user["retention.ms"] == "-1" {
			t.Error("how long events are kept is not for the audit to say")
		}
	})
}

// Brokers may stamp records with the time of their arrival by default: lapse events --since would go by that.
func TestTopicsAreMadeFitWhateverTheBrokersDefaultsAre(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		r := newRig(t, db, kafkatest.Solo(t, kafkaserver.Options{Settings: map[string]string{
			"log.message.timestamp.type": "LogAppendTime", "log.cleanup.policy": "compact",
		}}))
		r.once(t)
		for _, topic := range []string{r.settings.System, r.settings.User, r.settings.Log} {
			got := r.settingsOf(t, topic)
			if got["message.timestamp.type"] != "CreateTime" || got["cleanup.policy"] != "delete" {
				t.Errorf("%s has message.timestamp.type=%s, cleanup.policy=%s", topic, got["message.timestamp.type"], got["cleanup.policy"])
			}
		}
	})
}

func TestTopicsAreMadeToKeepEventsForAsLongAsAsked(t *testing.T) {
	for asked, want := range map[time.Duration]string{30 * 24 * time.Hour: "2592000000", -1: "-1"} {
		t.Run(want, func(t *testing.T) {
			onHeavy(t, func(t *testing.T, r *rig) {
				r.once(t, func(c *audit.Config) { c.Retention = asked })
				for topic, want := range map[string]string{r.settings.System: want, r.settings.User: want, r.settings.Log: "-1"} {
					if got := r.settingsOf(t, topic)["retention.ms"]; got != want {
						t.Errorf("%s has retention.ms=%s, want %s", topic, got, want)
					}
				}
			})
		})
	}
}

func TestALogThatIsNotKeptForEverIsRefused(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		if err := r.broker.CreateTopic(t.Context(), r.settings.Log, 1, nil); err != nil { // as a broker makes it by itself
			t.Fatal(err)
		}
		r.db.Exec(t, `insert into sessions values (1)`)
		r.db.Exec(t, `delete from sessions`)
		err := r.tryOnce(t)
		var refused *lapsekafka.RetentionError
		if !errors.As(err, &refused) || refused.Topic != r.settings.Log {
			t.Fatalf("got %v", err)
		}
		if at := r.confirmed(t, r.db.Connect(t)); at != r.settings.SlotStart {
			t.Errorf("the slot has moved from %s to %s", r.settings.SlotStart, at)
		}
		for _, topic := range []string{r.settings.User, r.settings.Log} {
			if n := len(r.read(t, topic)); n > 0 {
				t.Errorf("%d records are in %s", n, topic)
			}
		}
	})
}

func TestALostLogIsReportedWithTheWayToAnother(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := r.begun(t)
		wants := func(err error, reason error, fix string) {
			t.Helper()
			if !errors.Is(err, reason) || !strings.Contains(err.Error(), "lapse init --new-slot") || !strings.Contains(err.Error(), fix) {
				t.Errorf("%v", err)
			}
		}
		wants(r.tryOnce(t, func(c *audit.Config) {
			c.Log, c.System, c.User = c.Log+".new", c.System+".new", c.User+".new"
		}), history.ErrLogMissing, "name new topics in lapse.yaml")
		r.commit(t, w, 1, user)
		r.db.Exec(t, fmt.Sprintf(`select pg_replication_slot_advance('%s', pg_current_wal_lsn())`, r.settings.Slot))
		wants(r.tryOnce(t), history.ErrLogBehind, "the log goes on with a gap")
	})
}
