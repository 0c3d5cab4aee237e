package audit

import (
	"testing"

	"lapse/replication"
)

// slowSink has made durable what acked says, and nothing else.
type slowSink struct {
	Sink
	acked uint64
}

func (s *slowSink) Acked() uint64 { return s.acked }

// A run that ends at the current end has the fence after a gap in the log: the next start would tell the same loss again.
func TestARunIsNotFinishedBeforeItsLastFenceIsThere(t *testing.T) {
	sink := &slowSink{acked: 4}
	r := &relay{sink: sink, stream: &replication.Stream{}, lastMark: 5}
	if r.finished(0) {
		t.Error("finished while a fence is on its way")
	}
	sink.acked = 5
	if !r.finished(0) {
		t.Error("not finished with all there")
	}
}
