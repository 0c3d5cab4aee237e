package audit_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/verify"
	"lapse/internal/evidencetest"
	"lapse/internal/kafkatest"
	"lapse/schemas"
)

// verifyAccount wants every transaction's record to have the events that it counts, and the commitments of its root, whatever has died.
func (r *rig) verifyAccount(t *testing.T) {
	t.Helper()
	a := &verify.Account{System: r.settings.System, Keys: evidencetest.RowsKeys(time.Now()), Lost: map[string]evidence.Reach{}}
	stream := func(topic string, partition int32, all []kafkatest.Record) *verify.Stream {
		at := 0
		return &verify.Stream{
			Name: fmt.Sprintf("%s/%d", topic, partition), Topic: topic, Line: func() int { return at },
			Next: func() (*schemas.Record, error) {
				if at == len(all) {
					return nil, io.EOF
				}
				at++
				return asRead(topic, all[at-1]), nil
			},
		}
	}
	for _, topic := range []string{r.settings.System, r.settings.User, r.settings.Proofs} {
		by := map[int32][]kafkatest.Record{}
		for _, record := range r.readAll(t, topic) {
			by[record.Partition] = append(by[record.Partition], record)
		}
		for partition, all := range by {
			slices.SortFunc(all, func(a, b kafkatest.Record) int { return cmp.Compare(a.Offset, b.Offset) })
			if s := stream(topic, partition, all); topic == r.settings.Proofs {
				a.Proofs = s
			} else {
				a.Events = append(a.Events, s)
			}
		}
	}
	log := r.readAll(t, r.settings.Log)
	leaf := int64(0)
	each := func(take func(record *evidence.LogRecord) error) error {
		for i := range log {
			read := asRead(r.settings.Log, log[i])
			if read.IsFence() || read.Header(schemas.HeaderOp) == "" {
				continue
			}
			record, err := evidence.ParseLogRecord(read.Value)
			if err != nil {
				continue // somebody else's
			}
			if err := take(record); err != nil {
				return err
			}
		}
		return nil
	}
	err := each(func(record *evidence.LogRecord) error {
		if c, is := record.Content.(*evidence.MarkerContent); is && c.Marker.Reason == evidence.ReasonTopic {
			a.Lost[c.Marker.Topic] = c.Marker.To
		}
		return nil
	})
	if err == nil {
		err = each(func(record *evidence.LogRecord) error { leaf++; return a.Record(leaf-1, record) })
	}
	if err = errors.Join(err, a.End()); err != nil {
		var d *verify.Discrepancy
		if errors.As(err, &d) {
			t.Errorf("%s, line %d, leaf %d: %s", d.Name, d.Line, d.Leaf, d.What)
		} else {
			t.Error(err)
		}
	}
}
