package replication

import (
	"slices"
	"testing"

	"github.com/jackc/pglogrepl"
	"pgregory.net/rapid"
)

// The decoder and pglogrepl's parser, which was written by others, must see the same in every message.
func TestTheDecoderAgreesWithAnotherOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		columns := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Column {
			return Column{
				Name:    rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "name"),
				TypeOID: rapid.Uint32().Draw(t, "type"), TypeMod: rapid.Int32().Draw(t, "mod"),
				Key: rapid.Bool().Draw(t, "key"),
			}
		}), 1, 6).Draw(t, "columns")
		row := func(label string) []any {
			var values []any
			for range columns {
				values = append(values, rapid.OneOf(
					rapid.Just[any](nil), rapid.Just[any]('u'),
					rapid.Map(rapid.String(), func(s string) any { return s }),
				).Draw(t, label))
			}
			return values
		}
		d := testDecoder()
		relation := relationMessage(1, "app", "a", columns...)
		if err := feed(d, []encoder{beginMessage(100, 7), relation}, func(*Message) {}); err != nil {
			t.Fatal(err)
		}
		kind := rapid.SampledFrom([]byte{'K', 'O'}).Draw(t, "kind")
		var data encoder
		switch rapid.IntRange(0, 3).Draw(t, "op") {
		case 0:
			data = insertMessage(1, row("new")...)
		case 1:
			data = deleteMessage(1, kind, row("old")...)
		case 2:
			data = message('U').u32(1).u8('N').row(row("new")...)
		case 3:
			data = message('U').u32(1).u8(kind).row(row("old")...).u8('N').row(row("new")...)
		}
		compareWithOther(t, d, data)
	})
}

func compareWithOther(t interface{ Fatalf(string, ...any) }, d *decoder, data []byte) {
	m, err := d.decode(data)
	if err != nil {
		t.Fatalf("refused: %v", err)
	}
	other, err := pglogrepl.Parse(data)
	if err != nil {
		t.Fatalf("the other one refused: %v", err)
	}
	switch o := other.(type) {
	case *pglogrepl.InsertMessage:
		compareRow(t, m.Change, m.Change.New, o.Tuple, false)
	case *pglogrepl.DeleteMessage:
		compareRow(t, m.Change, m.Change.Old, o.OldTuple, o.OldTupleType == 'K')
	case *pglogrepl.UpdateMessage:
		compareRow(t, m.Change, m.Change.Old, o.OldTuple, o.OldTupleType == 'K')
		compareRow(t, m.Change, m.Change.New, o.NewTuple, false)
	default:
		t.Fatalf("the other one saw a %T", other)
	}
}

func compareRow(t interface{ Fatalf(string, ...any) }, c *Change, got []Value, want *pglogrepl.TupleData, key bool) {
	if want == nil {
		if got != nil {
			t.Fatalf("got a row where there is none")
		}
		return
	}
	if len(got) != len(want.Columns) {
		t.Fatalf("got %d columns, want %d", len(got), len(want.Columns))
	}
	for i, w := range want.Columns {
		kind := map[uint8]ValueKind{'n': Null, 'u': Unchanged, 't': Text}[w.DataType]
		if kind == Null && key && !c.Relation.Columns[i].Key {
			kind = Unsent
		}
		if got[i].Kind != kind || string(got[i].Bytes) != string(w.Data) {
			t.Fatalf("column %d: got %v %q, want %v %q", i, got[i].Kind, got[i].Bytes, kind, w.Data)
		}
	}
}

// FuzzDecode feeds the decoder anything: whatever comes, it neither panics nor reads beyond the message, and what it
// accepts pglogrepl reads in the same way.
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
		d := testDecoder()
		prelude := []encoder{
			beginMessage(100, 7), relationMessage(1, "app", "a", idColumn, noteColumn), deleteMessage(1, 'K', "0", nil),
		}
		if err := feed(d, prelude, func(*Message) {}); err != nil {
			t.Fatal(err)
		}
		fenced := append(slices.Clone(data), "beyond the end"...)
		m, err := d.decode(fenced[:len(data):len(data)])
		if err != nil {
			return
		}
		for next := d.pending(0); next != nil; next = d.pending(0) {
			m = next
		}
		if m == nil || m.Change == nil || m.Change.Op == OpTruncate {
			return
		}
		for _, v := range slices.Concat(m.Change.Old, m.Change.New) {
			if len(v.Bytes) > len(data) {
				t.Fatal("a value is longer than its message")
			}
		}
		again := testDecoder()
		if err := feed(again, prelude, func(*Message) {}); err != nil {
			t.Fatal(err)
		}
		compareWithOther(t, again, data)
	})
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
