package kafka

import (
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"
)

// What compaction leaves of a batch reaches further than its records; kafka-go does not tell how far.
func TestAReaderMovesOnThroughWhatHasNoRecordsForIt(t *testing.T) {
	t.Parallel()
	at := func(offsets ...int64) protocol.RecordReader {
		var records []protocol.Record
		for _, o := range offsets {
			records = append(records, protocol.Record{Offset: o, Time: time.UnixMilli(1), Value: protocol.NewBytes([]byte("v"))})
		}
		return protocol.NewRecordReader(records...)
	}
	for name, c := range map[string]struct {
		batch   protocol.RecordReader
		waiting int
		next    int64
	}{
		"all of a batch":                {&protocol.RecordBatch{BaseOffset: 10, Records: at(10, 11, 12)}, 3, 13},
		"a batch that begins before":    {&protocol.RecordBatch{BaseOffset: 8, Records: at(8, 9, 10)}, 1, 11},
		"a batch that ends after":       {&protocol.RecordBatch{BaseOffset: 18, Records: at(18, 19, 20)}, 2, 21},
		"an emptied batch":              {&protocol.RecordBatch{BaseOffset: 10, Records: at()}, 0, 11},
		"an emptied batch from before":  {&protocol.RecordBatch{BaseOffset: 7, Records: at()}, 0, 11},
		"an emptied batch further on":   {&protocol.RecordBatch{BaseOffset: 15, Records: at()}, 0, 15},
		"a batch whose end was emptied": {&protocol.RecordBatch{BaseOffset: 7, Records: at(7, 8)}, 0, 11},
		"a batch with gaps":             {&protocol.RecordBatch{BaseOffset: 7, Records: at(7, 12, 14)}, 2, 15},
		"a control batch":               {&protocol.ControlBatch{BaseOffset: 10, Records: at(10)}, 0, 11},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &Reader{topic: "topic", next: 10, to: 20}
			if err := r.take(&protocol.RecordStream{Records: []protocol.RecordReader{c.batch}}); err != nil {
				t.Fatal(err)
			}
			if len(r.waiting) != c.waiting || r.next != c.next {
				t.Errorf("%d records, next %d; want %d, next %d", len(r.waiting), r.next, c.waiting, c.next)
			}
			for _, rd := range r.waiting {
				if rd.Offset < 10 || rd.Offset >= 20 {
					t.Errorf("offset %d", rd.Offset)
				}
			}
		})
	}
}
