package audit_test

import (
	"testing"
	"time"

	"lapse/audit/tree"
	"lapse/internal/kafkatest"
)

// Each time that records are appended a fence says where the events end. So the fences count how often that was.
func TestRecordsOfUsersTravelTogether(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		const transactions = 60
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		running := r.start(t)
		r.catchUp(t, w.conn)
		before := r.endsFences(t)
		begun := time.Now()
		r.deletes(t, w, want, transactions)
		r.catchUp(t, w.conn)
		most := 4 + int(time.Since(begun)/time.Second)
		if fences := r.endsFences(t) - before; fences > most {
			t.Errorf("the records of %d transactions were appended %d times in %s, want at most %d", transactions, fences, time.Since(begun), most)
		}
		running.end(t)
		r.verify(t, want)
	})
}

func (r *rig) endsFences(t *testing.T) (n int) {
	t.Helper()
	for _, record := range kafkatest.ReadAllOn(t, r.broker, r.settings.Log) {
		if _, checkpoint := tree.NoteIn(record.Value); record.Header("lapse-op") == "fence" && !checkpoint {
			n++
		}
	}
	return n
}
