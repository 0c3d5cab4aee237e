package replication

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"pgregory.net/rapid"
)

// The decoder and pglogrepl's parser, which was written by others, must see the same in every stream. Both are brought to one
// text per message that is delivered: describe writes the decoder's, other the one that follows from pglogrepl's messages.

func describe(m *Message) string {
	switch m.Kind {
	case KindBegin:
		return fmt.Sprintf("begin %d at %d %d from %q", m.Tx.XID, m.Tx.CommitLSN, m.Tx.CommitTime.UnixMicro(), m.Tx.Origin)
	case KindCommit:
		return fmt.Sprintf("commit %d at %d to %d %d", m.Tx.XID, m.Tx.CommitLSN, m.Tx.EndLSN, m.Tx.CommitTime.UnixMicro())
	default:
		c, r := m.Change, m.Change.Relation
		text := fmt.Sprintf("%c %d of %d, %d %q.%q %c", c.Op, c.Ordinal, m.Tx.XID, r.OID, r.Schema, r.Name, r.ReplicaIdentity)
		for _, column := range r.Columns {
			text += fmt.Sprintf(" %q %d %d %v", column.Name, column.TypeOID, column.TypeMod, column.Key)
		}
		text += fmt.Sprintf(" old %s key %v new %s", describeRow(c.Old), c.OldIsKey, describeRow(c.New))
		return text + fmt.Sprintf(" cascade %v restart %v", c.Cascade, c.RestartIdentity)
	}
}

func describeRow(values []Value) string {
	if values == nil {
		return "none"
	}
	var text strings.Builder
	for _, v := range values {
		fmt.Fprintf(&text, "[%s %q]", v.Kind, v.Bytes)
	}
	return text.String()
}

// decodeStream reads messages with the decoder, up to the first that it refuses, and says how many it took. The messages are
// overwritten once read, as a stream's buffer is.
func decodeStream(messages []encoder) (delivered []string, taken int, err error) {
	d := testDecoder()
	take := func(next byte) {
		for m := d.pending(next); m != nil; m = d.pending(next) {
			delivered = append(delivered, describe(m))
		}
	}
	for _, original := range messages {
		data := slices.Clone(original)
		var next byte
		if len(data) > 0 {
			next = data[0]
		}
		take(next)
		m, err := d.decode(data)
		if err != nil {
			return delivered, taken, err
		}
		taken++
		if m != nil {
			delivered = append(delivered, describe(m))
		}
		take(0)
		for i := range data {
			data[i] = '?'
		}
	}
	return delivered, taken, nil
}

// other is what follows from pglogrepl's messages.
type other struct {
	parsed    []pglogrepl.Message
	delivered []string
	relations map[uint32]*pglogrepl.RelationMessage
	xid       uint32
	ordinal   int
}

func readByOther(messages []encoder) (delivered []string, err error) {
	defer func() {
		if p := recover(); p != nil { // it does, on what is cut short
			err = fmt.Errorf("panics: %v", p)
		}
	}()
	o := other{relations: map[uint32]*pglogrepl.RelationMessage{}}
	for _, data := range messages {
		m, err := pglogrepl.Parse(data)
		if err != nil {
			return nil, err
		}
		o.parsed = append(o.parsed, m)
	}
	for i := range o.parsed {
		if err := o.see(i); err != nil {
			return nil, err
		}
	}
	return o.delivered, nil
}

func (o *other) see(i int) error {
	switch m := o.parsed[i].(type) {
	case *pglogrepl.BeginMessage:
		o.xid, o.ordinal = m.Xid, 0
		// The begin is delivered with what follows it, and an origin that follows is a part of it.
		origin, next := "", i+1
		for ; next < len(o.parsed) && o.parsed[next].Type() == pglogrepl.MessageTypeOrigin; next++ {
			origin = o.parsed[next].(*pglogrepl.OriginMessage).Name
		}
		if next < len(o.parsed) {
			o.add("begin %d at %d %d from %q", m.Xid, m.FinalLSN, m.CommitTime.UnixMicro(), origin)
		}
	case *pglogrepl.CommitMessage:
		o.add("commit %d at %d to %d %d", o.xid, m.CommitLSN, m.TransactionEndLSN, m.CommitTime.UnixMicro())
	case *pglogrepl.RelationMessage:
		o.relations[m.RelationID] = m
	case *pglogrepl.OriginMessage, *pglogrepl.TypeMessage:
	case *pglogrepl.InsertMessage:
		o.change('I', m.RelationID, nil, 0, m.Tuple, 0)
	case *pglogrepl.UpdateMessage:
		o.change('U', m.RelationID, m.OldTuple, m.OldTupleType, m.NewTuple, 0)
	case *pglogrepl.DeleteMessage:
		o.change('D', m.RelationID, m.OldTuple, m.OldTupleType, nil, 0)
	case *pglogrepl.TruncateMessage:
		for _, oid := range m.RelationIDs {
			o.change('T', oid, nil, 0, nil, m.Option)
		}
	default:
		return fmt.Errorf("a %T, which was not asked for", m)
	}
	return nil
}

func (o *other) add(format string, args ...any) {
	o.delivered = append(o.delivered, fmt.Sprintf(format, args...))
}

func (o *other) change(op byte, oid uint32, old *pglogrepl.TupleData, kind uint8, tuple *pglogrepl.TupleData, options uint8) {
	r := o.relations[oid]
	schema := r.Namespace
	if schema == "" {
		schema = "pg_catalog"
	}
	text := fmt.Sprintf("%c %d of %d, %d %q.%q %c", op, o.ordinal, o.xid, oid, schema, r.RelationName, r.ReplicaIdentity)
	for _, column := range r.Columns {
		text += fmt.Sprintf(" %q %d %d %v", column.Name, column.DataType, column.TypeModifier, column.Flags == 1)
	}
	text += fmt.Sprintf(" old %s key %v new %s", otherRow(r, old, kind == 'K'), kind == 'K', otherRow(r, tuple, false))
	o.add("%s cascade %v restart %v", text, options&pglogrepl.TruncateOptionCascade != 0, options&pglogrepl.TruncateOptionRestartIdentity != 0)
	o.ordinal++
}

func otherRow(r *pglogrepl.RelationMessage, tuple *pglogrepl.TupleData, key bool) string {
	if tuple == nil {
		return "none"
	}
	text := ""
	for i, column := range tuple.Columns {
		kind := map[uint8]ValueKind{'n': Null, 'u': Unchanged, 't': Text}[column.DataType]
		if kind == Null && key && r.Columns[i].Flags == 0 {
			kind = Unsent // a key's row has the byte of a NULL for every column outside it
		}
		text += fmt.Sprintf("[%s %q]", kind, column.Data)
	}
	return text
}

// failer is what a test, a fuzz target and a property have in common.
type failer interface{ Fatalf(string, ...any) }

// wantAgreement wants both to read all of the messages, and to see the same in them.
func wantAgreement(t failer, messages []encoder) {
	got, taken, err := decodeStream(messages)
	if err != nil {
		t.Fatalf("the decoder refused message %d of %d: %v", taken, len(messages), err)
	}
	want, err := readByOther(messages)
	if err != nil {
		t.Fatalf("the other one refused: %v", err)
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("of %d and %d delivered the first that differs is\n%s\nand the other one sees\n%s",
				len(got), len(want), append(got, "nothing")[min(i, len(got))], append(want, "nothing")[min(i, len(want))])
		}
	}
}

// wantAgreementOnWhatIsTaken is wantAgreement for messages that may be damaged: on those before the first that the decoder
// refuses.
func wantAgreementOnWhatIsTaken(t failer, messages []encoder) {
	_, taken, _ := decodeStream(messages)
	messages = messages[:taken]
	for _, m := range messages {
		if !otherCanRead(m) {
			return
		}
	}
	wantAgreement(t, messages)
}

// otherCanRead: pglogrepl counts time in nanoseconds, and so from 1678 to 2261 only, where we have none before 1970, and takes an insert into a table without
// columns, and a truncate of no table, for cut short.
func otherCanRead(m encoder) bool {
	var at int
	switch m[0] {
	case 'B':
		at = 1 + 8
	case 'C':
		at = 1 + 1 + 8 + 8
	case 'I':
		return len(m) > 1+7
	case 'T':
		return len(m) > 1+8
	default:
		return true
	}
	micros := int64(binary.BigEndian.Uint64(m[at:]))
	return micros >= -postgresEpoch && micros < math.MaxInt64/2000
}

func TestTheDecoderAgreesWithAnotherOneOnAnyStream(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { wantAgreement(t, drawStream(t)) })
}

func TestOfADamagedStreamTheDecoderTakesOnlyWhatAnotherOneReadsAlike(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		messages := drawStream(t)
		for range rapid.IntRange(1, 4).Draw(t, "damages") {
			i := rapid.IntRange(0, len(messages)-1).Draw(t, "message")
			m := slices.Clone(messages[i])
			at := rapid.IntRange(0, max(0, len(m)-1)).Draw(t, "at")
			switch kind := rapid.IntRange(0, 4).Draw(t, "kind"); {
			case kind == 0:
				messages = slices.Delete(slices.Clone(messages), i, i+1)
			case kind == 1:
				messages = slices.Insert(slices.Clone(messages), i, m)
			case kind == 2:
				messages[i] = m[:at]
			case len(m) > 0:
				m[at] = rapid.Byte().Draw(t, "byte")
				messages[i] = m
			}
			if len(messages) == 0 {
				return
			}
		}
		wantAgreementOnWhatIsTaken(t, messages)
	})
}

// FuzzDecode feeds the decoder anything in the middle of a transaction: whatever comes, it neither panics nor reads beyond
// the message, and what it accepts pglogrepl reads in the same way.
func FuzzDecode(f *testing.F) {
	for _, data := range []encoder{
		beginMessage(100, 7), commitMessage(100, 140), originMessage("x"), relationMessage(1, "s", "t", idColumn),
		insertMessage(1, "1", nil), deleteMessage(1, 'K', "1", nil), deleteMessage(1, 'O', "1", 'u'),
		message('U').u32(1).u8('K').row("1", nil).u8('N').row("2", "x"), truncateMessage(3, 1),
		message('Y').u32(1).text("s").text("t"),
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		prelude := []encoder{
			beginMessage(100, 7), relationMessage(1, "app", "a", idColumn, noteColumn), deleteMessage(1, 'K', "0", nil),
		}
		d := testDecoder()
		if err := feed(d, prelude, func(*Message) {}); err != nil {
			t.Fatal(err)
		}
		fenced := append(slices.Clone(data), "beyond the end"...)
		m, err := d.decode(fenced[:len(data):len(data)])
		if err != nil {
			return
		}
		if m != nil && m.Change != nil {
			for _, v := range slices.Concat(m.Change.Old, m.Change.New) {
				if len(v.Bytes) > len(data) {
					t.Fatal("a value is longer than its message")
				}
			}
		}
		wantAgreementOnWhatIsTaken(t, append(prelude, data))
	})
}

// FuzzStream feeds the decoder streams: what servers sent, damaged in any way.
func FuzzStream(f *testing.F) {
	for _, major := range recordedMajors {
		sent := recorded(f, major)
		first := slices.IndexFunc(sent, func(m encoder) bool { return m[0] == 'B' })
		for i, m := range sent { // a seed for each transaction, with all tables described before it
			if m[0] == 'C' {
				f.Add(joinMessages(append(described(sent[:i]), sent[first:i+1]...)))
				first = i + 1
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { wantAgreementOnWhatIsTaken(t, splitMessages(data)) })
}

// described are the messages that describe a table.
func described(messages []encoder) []encoder {
	return slices.DeleteFunc(slices.Clone(messages), func(m encoder) bool { return m[0] != 'R' })
}

// joinMessages writes messages one after the other, each with its length before it.
func joinMessages(messages []encoder) (data []byte) {
	for _, m := range messages {
		data = append(encoder(data).u16(len(m)), m...)
	}
	return data
}

func splitMessages(data []byte) (messages []encoder) {
	for len(data) >= 2 {
		length := min(int(binary.BigEndian.Uint16(data)), len(data)-2)
		messages = append(messages, encoder(data[2:2+length]))
		data = data[2+length:]
	}
	return messages
}

func BenchmarkDecodeADelete(b *testing.B) {
	d := testDecoder()
	columns := []Column{idColumn, noteColumn, noteColumn, noteColumn, noteColumn, noteColumn}
	if err := feed(d, []encoder{beginMessage(100, 7), relationMessage(1, "app", "a", columns...)}, func(*Message) {}); err != nil {
		b.Fatal(err)
	}
	data := deleteMessage(1, 'K', "1234567", nil, nil, nil, nil, nil)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if d.pending('D') != nil && d.ordinal > 0 {
			b.Fatal("something is pending")
		}
		if m, err := d.decode(data); err != nil || m == nil {
			b.Fatal(m, err)
		}
	}
}

func TestDecodingADeleteAllocatesNothing(t *testing.T) {
	d := testDecoder()
	err := feed(d, []encoder{beginMessage(100, 7), relationMessage(1, "app", "a", idColumn, noteColumn)}, func(*Message) {})
	if err != nil {
		t.Fatal(err)
	}
	data := deleteMessage(1, 'K', "1234567", nil)
	if n := testing.AllocsPerRun(1000, func() {
		d.pending('D')
		if _, err := d.decode(data); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per delete, want 0", n)
	}
}
