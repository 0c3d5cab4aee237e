package audit_test

import (
	"path/filepath"
	"strings"
	"testing"

	"lapse/audit/folder"
	"lapse/audit/kafka"
	"lapse/audit/store"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// testSink says where the tests' topics are: LAPSE_TEST_SINK=dir has every rig keep them in a folder. What does something to a broker
// makes no sense with it.
const testSink = "LAPSE_TEST_SINK"

// newFolder is where a rig keeps its topics.
func newFolder(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "sink")
}

// newFolderRig is newRig without a broker.
func newFolderRig(t *testing.T, db *pgtest.DB) *rig {
	t.Helper()
	r := newRigAt(t, db, "")
	r.settings.Folder = newFolder(t)
	return r
}

// inFolder runs a test on the newest PostgreSQL with the topics in a folder.
func inFolder(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) { test(t, newFolderRig(t, db)) })
}

// client reads the topics, wherever they are.
func (r *rig) client(t *testing.T) store.Client {
	t.Helper()
	if r.settings.Folder != "" {
		return folder.NewClient(r.settings.Folder)
	}
	client, err := kafka.NewClient(kafka.Config{Brokers: strings.Split(r.settings.Broker, ",")})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// readAll reads a topic with its fences, by partition and offset.
func (r *rig) readAll(t *testing.T, topic string) (records []kafkatest.Record) {
	t.Helper()
	if r.settings.Folder == "" {
		return kafkatest.ReadAllOn(t, r.broker, topic)
	}
	client := folder.NewClient(r.settings.Folder)
	bounds, err := client.Offsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	for partition, b := range bounds {
		err := store.Each(t.Context(), client.Reader(topic, int32(partition), b.First, b.End), func(rec *schemas.Record, offset int64) error {
			record := kafkatest.Record{Partition: int32(partition), Offset: offset, Key: rec.Key, Value: rec.Value, Time: rec.Time}
			for _, h := range rec.Headers {
				record.Headers = append(record.Headers, kafkatest.Header{Name: h.Key, Value: h.Value})
			}
			records = append(records, record)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return records
}

func TestEveryDeletionIsInAFolderUnderItsCause(t *testing.T) {
	inFolder(t, everyCause)
}
