package audit

import (
	"testing"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/store"
	"lapse/audit/tree"
	"lapse/schemas"
)

// keepingSink keeps what is appended.
type keepingSink struct {
	Sink
	records []schemas.Record
	full    bool
	end     int64
}

func (s *keepingSink) Append(r schemas.Record) (uint64, bool) {
	if s.full {
		return 0, false
	}
	s.records = append(s.records, r)
	return uint64(len(s.records)), true
}

func (s *keepingSink) End(string, int32) store.End { return store.End{Offset: s.end} }

// signing is a relay that has nothing but a log with a tree.
type signing struct {
	*relay
	t    *testing.T
	key  *tree.Key
	sink *keepingSink
	at   time.Time
}

func newSigning(t *testing.T) *signing {
	key, err := tree.NewKey(make(schemas.Key, schemas.MinKey), "app.example.com/lapse")
	if err != nil {
		t.Fatal(err)
	}
	s := &signing{t: t, key: key, sink: &keepingSink{}, at: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)}
	s.relay = &relay{
		route: &evidence.Route{Log: evidence.Topic{Name: "log", Partitions: 1}}, sink: s.sink, now: func() time.Time { return s.at },
		checkpoints: checkpoints{tree: tree.New(key)}, metrics: NewMetrics(),
	}
	return s
}

// leaf appends a record of the log, and returns its mark.
func (s *signing) leaf() uint64 {
	rec := schemas.Record{Topic: "log", Value: []byte(s.at.String())}
	leaf := s.checkpoints.place(&rec)
	mark, ok := s.sink.Append(rec)
	if !ok {
		s.t.Fatal("the sink is full")
	}
	s.placed(leaf, mark)
	return mark
}

// signs wants a checkpoint of so many leaves once that much is acknowledged; 0: none.
func (s *signing) signs(acked uint64, leaves int64, offset int64) {
	s.t.Helper()
	before := len(s.sink.records)
	if err := s.sign(acked); err != nil {
		s.t.Fatal(err)
	}
	appended := s.sink.records[before:]
	if leaves == 0 {
		if len(appended) > 0 {
			s.t.Errorf("with %d acknowledged there is a checkpoint", acked)
		}
		return
	}
	if len(appended) != 1 || !appended[0].IsFence() {
		s.t.Fatalf("with %d acknowledged it appends %d records", acked, len(appended))
	}
	resumed, from, ok := s.key.Resume(appended[0].Value)
	if !ok || resumed.Size() != leaves || from != offset {
		s.t.Errorf("the checkpoint resumes %v, of %d leaves from offset %d; want %d from %d", ok, resumed.Size(), from, leaves, offset)
	}
}

func TestACheckpointCoversWhatIsAcknowledgedAndComesEachTwentySeconds(t *testing.T) {
	s := newSigning(t)
	s.signs(0, 0, 0) // an empty log
	first := s.leaf()
	s.sink.end = 7
	s.signs(first-1, 0, 0)
	if s.metrics.unsigned.Load() != s.at.UnixMicro() {
		t.Error("no metric says since when a record has been without a checkpoint")
	}
	s.sink.end = 9
	later := s.leaf() // after the tree that is to be signed
	s.signs(first, 1, 7)
	s.signs(later, 0, 0)
	s.at = s.at.Add(checkpointEvery)
	s.sink.full = true
	s.signs(later, 0, 0)
	s.sink.full = false
	s.signs(later, 2, 9)
	if s.metrics.unsigned.Load() != 0 {
		t.Error("a metric says that a record is without a checkpoint")
	}
	s.at = s.at.Add(checkpointEvery)
	s.signs(later, 0, 0) // nothing has come
	last := s.leaf()
	s.signs(last, 3, 9)
	last = s.leaf()
	s.signs(last, 0, 0)
	s.checkpoints.wanted = true // a run ends
	s.signs(last, 4, 9)
	if !s.checkpoints.done() {
		t.Error("there is still something to be signed")
	}
}
