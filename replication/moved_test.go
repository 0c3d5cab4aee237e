package replication

import "testing"

// An update that moves a row to another partition is a delete and the insert at once after it: that one is wanted, as the only one.
func TestALargeInsertIsWantedAtOnceBehindADeleteFromAnotherTable(t *testing.T) {
	t.Parallel()
	d := testDecoder()
	insert := insertMessage(1, "1", "n")
	for i, step := range []struct {
		before []encoder
		size   int64
		want   bool
	}{
		{[]encoder{
			beginMessage(100, 7), relationMessage(1, "app", "a", idColumn, noteColumn), relationMessage(2, "app", "b", idColumn, noteColumn),
		}, largeMessage + 1, false},
		{[]encoder{deleteMessage(2, 'K', "1", nil)}, maxBuffered, true},
		{nil, maxBuffered + 1, false},
		{[]encoder{relationMessage(1, "app", "a", idColumn, noteColumn)}, largeMessage + 1, true}, // no change
		{[]encoder{insertMessage(1, "1", "n")}, largeMessage + 1, false},
		{[]encoder{deleteMessage(1, 'K', "1", nil)}, largeMessage + 1, false},
		{[]encoder{deleteMessage(2, 'K', "1", nil), message('U').u32(2).u8('N').u16(2).u8('n').u8('n')}, largeMessage + 1, false},
		{[]encoder{deleteMessage(2, 'K', "1", nil), truncateMessage(0, 2)}, largeMessage + 1, false},
		{[]encoder{deleteMessage(2, 'K', "1", nil), commitMessage(100, 108), beginMessage(200, 8)}, largeMessage + 1, false},
	} {
		if err := feed(d, step.before, func(*Message) {}); err != nil {
			t.Fatal(err)
		}
		if got := d.wants(insert[:changeHead], step.size); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
}
