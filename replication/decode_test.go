package replication

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"lapse/schemas"
)

var (
	idColumn   = Column{Name: "id", TypeOID: 20, TypeMod: -1, Key: true}
	noteColumn = Column{Name: "note", TypeOID: 25, TypeMod: -1}
)

func testDecoder() *decoder {
	return newDecoder(func(schemas.LSN) schemas.Timeline { return 1 })
}

// feed decodes messages and calls see for each that is delivered.
func feed(d *decoder, messages []encoder, see func(*Message)) error {
	for _, data := range messages {
		var next byte
		if len(data) > 0 {
			next = data[0]
		}
		for m := d.pending(next); m != nil; m = d.pending(next) {
			see(m)
		}
		m, err := d.decode(data)
		if err != nil {
			return err
		}
		if m != nil {
			see(m)
		}
	}
	for m := d.pending(0); m != nil; m = d.pending(0) {
		see(m)
	}
	return nil
}

func TestATransactionIsDecodedInOrder(t *testing.T) {
	t.Parallel()
	type seen struct {
		kind    Kind
		op      Op
		ordinal uint32
		table   string
		open    bool
		end     schemas.LSN
		origin  string
	}
	var got []seen
	err := feed(testDecoder(), []encoder{
		beginMessage(100, 7), originMessage("elsewhere"),
		relationMessage(1, "app", "a", idColumn, noteColumn),
		relationMessage(2, "", "b", idColumn),
		deleteMessage(1, 'K', "42", nil),
		truncateMessage(3, 2, 1),
		deleteMessage(2, 'K', "43"),
		insertMessage(2, "44"),
		commitMessage(100, 140),
	}, func(m *Message) {
		s := seen{kind: m.Kind, open: m.Open, end: m.Tx.EndLSN, origin: m.Tx.Origin}
		if m.Change != nil {
			s.op, s.ordinal = m.Change.Op, m.Change.Ordinal
			s.table = m.Change.Relation.Schema + "." + m.Change.Relation.Name
		}
		got = append(got, s)
	})
	if err != nil {
		t.Fatal(err)
	}
	const from = "elsewhere"
	want := []seen{
		{kind: KindBegin, open: true, origin: from},
		{kind: KindChange, op: OpDelete, ordinal: 0, table: "app.a", open: true, origin: from},
		{kind: KindChange, op: OpTruncate, ordinal: 1, table: "pg_catalog.b", open: true, origin: from},
		{kind: KindChange, op: OpTruncate, ordinal: 2, table: "app.a", open: true, origin: from},
		{kind: KindChange, op: OpDelete, ordinal: 3, table: "pg_catalog.b", open: true, origin: from},
		{kind: KindChange, op: OpInsert, ordinal: 4, table: "pg_catalog.b", open: true, origin: from},
		{kind: KindCommit, end: 140, origin: from},
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

func TestAColumnOutsideTheKeyIsUnsentAndNotNull(t *testing.T) {
	t.Parallel()
	var changes int
	err := feed(testDecoder(), []encoder{
		beginMessage(100, 7), relationMessage(1, "app", "a", idColumn, noteColumn),
		deleteMessage(1, 'K', "42", nil),
		deleteMessage(1, 'O', "42", nil),
		message('U').u32(1).u8('N').row("42", 'u'),
		message('U').u32(1).u8('K').row("42", nil).u8('N').row("43", ""),
	}, func(m *Message) {
		c := m.Change
		if c == nil {
			return
		}
		changes++
		switch c.Ordinal {
		case 0:
			wantValues(t, c.Old, Text, Unsent)
			if !c.OldIsKey || string(c.Old[0].Bytes) != "42" || c.New != nil {
				t.Errorf("first delete: %+v", c)
			}
		case 1:
			wantValues(t, c.Old, Text, Null)
			if c.OldIsKey {
				t.Error("a whole old row is called a key")
			}
		case 2:
			wantValues(t, c.New, Text, Unchanged)
			if c.Old != nil {
				t.Error("an update that left the key alone has an old row")
			}
		case 3:
			wantValues(t, c.Old, Text, Unsent)
			wantValues(t, c.New, Text, Text)
			if string(c.New[0].Bytes) != "43" || len(c.New[1].Bytes) != 0 {
				t.Errorf("second update: %+v", c)
			}
		}
	})
	if err != nil || changes != 4 {
		t.Fatalf("%d changes, %v", changes, err)
	}
}

// PostgreSQL has such tables, and sends their rows.
func TestARowOfATableWithoutColumnsIsAChange(t *testing.T) {
	t.Parallel()
	var changes []Op
	err := feed(testDecoder(), []encoder{
		beginMessage(100, 7), relationMessage(1, "app", "a"), insertMessage(1), deleteMessage(1, 'O'), truncateMessage(0), commitMessage(100, 140),
	}, func(m *Message) {
		if m.Change != nil {
			changes = append(changes, m.Change.Op)
		}
	})
	if err != nil || !slices.Equal(changes, []Op{OpInsert, OpDelete}) {
		t.Fatalf("changes %v, %v; want an insert and a delete", changes, err)
	}
}

func TestOfALargeChangeOnlyWhatIsEvidenceOrAKeyIsWanted(t *testing.T) {
	t.Parallel()
	d := testDecoder()
	err := feed(d, []encoder{
		beginMessage(100, 7), relationMessage(1, "app", "a", idColumn, noteColumn), relationMessage(2, "lapse", "batch", idColumn),
	}, func(*Message) {})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		head encoder
		size int64
		want bool
	}{
		"an insert":                   {insertMessage(1, "1", "n"), largeMessage + 1, false},
		"an update":                   {message('U').u32(1).u8('K'), largeMessage + 1, true},
		"an update longer than any":   {message('U').u32(1).u8('N'), maxBuffered + 1, false},
		"an update of what is not":    {message('U').u32(9).u8('N'), largeMessage + 1, false},
		"a table never described":     {insertMessage(9), largeMessage + 1, false},
		"a whole row deleted":         {deleteMessage(1, 'O', "1", "n"), largeMessage + 1, false},
		"a whole row of the ledger":   {deleteMessage(2, 'O', "1"), largeMessage + 1, false},
		"a key":                       {deleteMessage(1, 'K', "1", nil), largeMessage + 1, true},
		"a key longer than any":       {deleteMessage(1, 'K', "1", nil), maxBuffered + 1, false},
		"evidence":                    {insertMessage(2, "1"), maxBuffered, true},
		"evidence longer than any":    {insertMessage(2, "1"), maxBuffered + 1, false},
		"a truncate of a million":     {truncateMessage(0, 1), maxBuffered, true},
		"what cannot be understood":   {message('Q').u32(1).u8(0), largeMessage + 1, true},
		"a description of a relation": {relationMessage(1, "app", "a"), largeMessage + 1, true},
	} {
		if got := d.wants(c.head[:changeHead], c.size); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestAChangeReadByItsHeadHasItsPlaceAndNoValues(t *testing.T) {
	t.Parallel()
	d := testDecoder()
	err := feed(d, []encoder{
		beginMessage(100, 7), relationMessage(1, "app", "a", idColumn, noteColumn), deleteMessage(1, 'K', "1", nil),
	}, func(*Message) {})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		head     encoder
		old, new bool
	}{
		{deleteMessage(1, 'O'), true, false},
		{message('U').u32(1).u8('K'), true, true},
		{message('U').u32(1).u8('N'), false, true},
		{insertMessage(1), false, true},
	} {
		m, err := d.decodeHead(c.head[:changeHead])
		if err != nil {
			t.Fatal(err)
		}
		unsent := func(there bool) (kinds []ValueKind) {
			if there {
				kinds = []ValueKind{Unsent, Unsent}
			}
			return kinds
		}
		wantValues(t, m.Change.Old, unsent(c.old)...)
		wantValues(t, m.Change.New, unsent(c.new)...)
		if m.Change.Ordinal != uint32(i+1) || m.Kind != KindChange || !m.Open {
			t.Errorf("change %d: %+v", i, m.Change)
		}
	}
	for _, c := range []struct {
		head encoder
		want error
	}{
		{deleteMessage(1, 'N'), errTupleKind},
		{message('I').u32(1).u8('K'), errTupleKind},
		{insertMessage(2), errNoRelation},
		{message('I').u32(1), errShort},
	} {
		if _, err := d.decodeHead(c.head[:min(changeHead, len(c.head))]); !errors.Is(err, c.want) {
			t.Errorf("got %v, want %v", err, c.want)
		}
	}
}

func wantValues(t *testing.T, got []Value, want ...ValueKind) {
	t.Helper()
	var kinds []ValueKind
	for _, v := range got {
		kinds = append(kinds, v.Kind)
	}
	if !slices.Equal(kinds, want) {
		t.Errorf("got %v, want %v", kinds, want)
	}
}

func TestARenamedTableIsAnotherRelationAndTheFormerStays(t *testing.T) {
	t.Parallel()
	var names []string
	var kept []*Relation
	err := feed(testDecoder(), []encoder{
		beginMessage(100, 7),
		relationMessage(1, "app", "before", idColumn), deleteMessage(1, 'K', "1"),
		relationMessage(1, "app", "after", idColumn, noteColumn), deleteMessage(1, 'K', "2", nil),
	}, func(m *Message) {
		if m.Change != nil {
			kept = append(kept, m.Change.Relation)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range kept {
		names = append(names, r.Name)
	}
	if !slices.Equal(names, []string{"before", "after"}) {
		t.Fatalf("got %v", names)
	}
}

func TestWhatCannotBeDecodedIsRefused(t *testing.T) {
	t.Parallel()
	open := []encoder{beginMessage(100, 7), relationMessage(1, "app", "a", idColumn, noteColumn)}
	for name, c := range map[string]struct {
		messages []encoder
		want     error
	}{
		"nothing":                        {[]encoder{{}}, errShort},
		"an unknown type":                {append(open, message('Q')), errUnknownType},
		"an emitted message":             {append(open, message('M')), errUnknownType},
		"a stream start":                 {append(open, message('S')), errUnknownType},
		"a change outside a transaction": {[]encoder{open[1], deleteMessage(1, 'K', "1", nil)}, errNoTransaction},
		"a truncate outside":             {[]encoder{open[1], truncateMessage(0, 1)}, errNoTransaction},
		"a commit outside":               {[]encoder{commitMessage(1, 2)}, errNoTransaction},
		"a late origin":                  {append(open, deleteMessage(1, 'K', "1", nil), originMessage("x")), errNoTransaction},
		"a begin inside":                 {append(open, beginMessage(200, 8)), errInTransaction},
		"another commit":                 {append(open, commitMessage(101, 140)), errCommit},
		"a commit that ends at itself":   {append(open, commitMessage(100, 100)), errCommit},
		"commit flags":                   {append(open, message('C').u8(1).u64(100).u64(140).u64(micros(noon))), errFlags},
		"an undescribed table":           {append(open, deleteMessage(2, 'K', "1")), errNoRelation},
		"an undescribed truncated table": {append(open, truncateMessage(0, 1, 2)), errNoRelation},
		"a column too few":               {append(open, deleteMessage(1, 'K', "1")), errColumnCount},
		"a column too many":              {append(open, deleteMessage(1, 'K', "1", nil, nil)), errColumnCount},
		"a binary column":                {append(open, deleteMessage(1, 'K', 'b', nil)), errColumnKind},
		"a delete with a new row":        {append(open, deleteMessage(1, 'N', "1", nil)), errTupleKind},
		"an insert with an old row":      {append(open, message('I').u32(1).u8('K').row("1", nil)), errTupleKind},
		"something after":                {append(open, deleteMessage(1, 'K', "1", nil).u8(0)), errTrailing},
		"a value beyond the end":         {append(open, message('D').u32(1).u8('K').u16(2).u8('t').u32(9)), errShort},
		"a value of 4 GB":                {append(open, message('D').u32(1).u8('K').u16(2).u8('t').u32(1<<32-1)), errShort},
		"4 billion truncated tables":     {append(open, message('T').u32(1<<32-1).u8(0).u32(1)), errShort},
		"truncate flags":                 {append(open, truncateMessage(4, 1)), errFlags},
		"too many columns": {
			[]encoder{message('R').u32(1).text("s").text("t").u8('d').u16(1601)}, errColumns,
		},
		"column flags": {
			[]encoder{message('R').u32(1).text("s").text("t").u8('d').u16(1).u8(2).text("c").u32(1).u32(1)}, errFlags,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := feed(testDecoder(), slices.Clone(c.messages), func(*Message) {})
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestAMessageThatIsCutShortIsAnErrorAtEveryLength(t *testing.T) {
	t.Parallel()
	before := []encoder{beginMessage(100, 7), relationMessage(1, "app", "a", idColumn, noteColumn)}
	for _, whole := range []encoder{
		beginMessage(100, 7), commitMessage(100, 140), originMessage("far away"),
		relationMessage(3, "app", "b", idColumn, noteColumn), message('Y').u32(1).text("app").text("mood"),
		insertMessage(1, "1", "note"), deleteMessage(1, 'K', "1", nil), deleteMessage(1, 'O', "1", "note"),
		message('U').u32(1).u8('O').row("1", "old").u8('N').row("1", "new"), truncateMessage(1, 1, 1),
	} {
		for length := range whole {
			messages := append(slices.Clone(before), whole[:length])
			if whole[0] == 'B' || whole[0] == 'O' {
				messages = append(messages[:0], before[0], whole[:length])
			}
			if whole[0] == 'B' {
				messages = messages[1:]
			}
			if err := feed(testDecoder(), messages, func(*Message) {}); !errors.Is(err, errShort) {
				t.Errorf("%q cut to %d of %d bytes: %v", whole[0], length, len(whole), err)
			}
		}
	}
}

func TestAnErrorNeverSaysWhatWasInTheRow(t *testing.T) {
	t.Parallel()
	const secret = "jane@example.org"
	s := &Stream{wire: &wire{Conn: closedConn(t)}, decoder: testDecoder()}
	if err := feed(s.decoder, []encoder{
		beginMessage(100, 7), relationMessage(1, "app", "a", idColumn, noteColumn),
	}, func(*Message) {}); err != nil {
		t.Fatal(err)
	}
	body := append(message('w').u64(0x42).u64(0).u64(0), deleteMessage(1, 'K', secret, 'x')...)
	_, err := s.handle(frame{kind: 'd', body: body})
	var decode *decodeError
	if !errors.As(err, &decode) || decode.Type != 'D' || decode.LSN != 0x42 {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(err.Error(), secret) {
		t.Fatalf("the error tells the row: %v", err)
	}
	if GradeOf(err) != Stop {
		t.Error("something that cannot be read would be tried again")
	}
}
