package expiry

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func days(n int32) *Interval { return &Interval{Days: n} }

// ageOf and ttlOf are kinds with their columns as the catalog has them. Each change makes another one.
func ageOf(changes ...func(*Age)) *Age {
	a := &Age{Moment{Column: "at", Number: 2, Type: Timestamp, Zone: "Europe/Berlin"}, Interval{Days: 30}}
	for _, change := range changes {
		change(a)
	}
	return a
}

func ttlOf(ifNone *Interval, changes ...func(*TTL)) *TTL {
	l := &TTL{Kind: ttlKind, Moment: Moment{Column: "at", Number: 2, Type: Timestamptz, Zone: ""}, TTLColumn: "ttl", TTLNumber: 3, TTLType: "integer", Default: ifNone}
	for _, change := range changes {
		change(l)
	}
	return l
}

func epochOf(changes ...func(*Epoch)) *Epoch {
	k := &Epoch{Kind: epochKind, Value: Value{"doc", 2, jsonType, "a.b", false}, Unit: seconds, After: Interval{Days: 30}}
	for _, change := range changes {
		change(k)
	}
	return k
}

func isoOf(changes ...func(*ISO8601)) *ISO8601 {
	k := &ISO8601{Kind: isoKind, Value: Value{"at", 2, "text", "", false}, After: Interval{Days: 30}}
	for _, change := range changes {
		change(k)
	}
	return k
}

func instantOf(changes ...func(*NumberOrText)) *NumberOrText {
	k := &NumberOrText{Kind: instantKind, Value: Value{"doc", 2, jsonType, "a.b", false}, After: Interval{Days: 30}}
	for _, change := range changes {
		change(k)
	}
	return k
}

func bucketOf(changes ...func(*Bucket)) *Bucket {
	k := &Bucket{Kind: bucketKind, Moment: Moment{Column: "at", Number: 2, Type: Timestamp, Zone: "Europe/Berlin"}, Span: Interval{Months: 1}, After: Interval{Days: 30}}
	for _, change := range changes {
		change(k)
	}
	return k
}

func TestMoreFallsDueUnlessItIsCertainThatNoMoreDoes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		former, next Kind
		more         bool
	}{
		"the same age":               {ageOf(), ageOf(), false},
		"a longer age":               {ageOf(), ageOf(func(a *Age) { a.After.Days++ }), false},
		"a shorter age":              {ageOf(), ageOf(func(a *Age) { a.After.Days-- }), true},
		"months for days":            {ageOf(), ageOf(func(a *Age) { a.After = Interval{Months: 2} }), true},
		"another zone":               {ageOf(), ageOf(func(a *Age) { a.Zone = "" }), true},
		"another column":             {ageOf(), ageOf(func(a *Age) { a.Column = "b" }), true},
		"a column made again":        {ageOf(), ageOf(func(a *Age) { a.Number++ }), true},
		"another type":               {ageOf(), ageOf(func(a *Age) { a.Type = Date }), true},
		"a ttl for an age":           {ageOf(), ttlOf(nil), true},
		"an age for a ttl":           {ttlOf(nil), ageOf(), true},
		"the same ttl":               {ttlOf(days(3)), ttlOf(days(3)), false},
		"a default where none was":   {ttlOf(nil), ttlOf(days(9999)), true},
		"no default where one was":   {ttlOf(days(3)), ttlOf(nil), false},
		"a longer default":           {ttlOf(days(3)), ttlOf(days(4)), false},
		"a shorter default":          {ttlOf(days(3)), ttlOf(days(2)), true},
		"another ttl column":         {ttlOf(nil), ttlOf(nil, func(l *TTL) { l.TTLColumn = "b" }), true},
		"a ttl column made again":    {ttlOf(nil), ttlOf(nil, func(l *TTL) { l.TTLNumber++ }), true},
		"a ttl column of a new type": {ttlOf(nil), ttlOf(nil, func(l *TTL) { l.TTLType = "bigint" }), true},
		"a ttl from another column":  {ttlOf(nil), ttlOf(nil, func(l *TTL) { l.Column = "b" }), true},
		"a ttl in another zone":      {ttlOf(nil), ttlOf(nil, func(l *TTL) { l.Zone = "Asia/Tokyo" }), true},
		"the same epoch":             {epochOf(), epochOf(), false},
		"a longer epoch":             {epochOf(), epochOf(func(k *Epoch) { k.After.Months++ }), false},
		"a shorter epoch":            {epochOf(), epochOf(func(k *Epoch) { k.After = Interval{} }), true},
		"another unit":               {epochOf(), epochOf(func(k *Epoch) { k.Unit = milliseconds }), true},
		"another path":               {epochOf(), epochOf(func(k *Epoch) { k.Path = "a" }), true},
		"a document made again":      {epochOf(), epochOf(func(k *Epoch) { k.Number++ }), true},
		"an epoch for an age":        {ageOf(), epochOf(), true},
		"the same text":              {isoOf(), isoOf(), false},
		"a longer text":              {isoOf(), isoOf(func(k *ISO8601) { k.After.Days++ }), false},
		"a shorter text":             {isoOf(), isoOf(func(k *ISO8601) { k.After.Days-- }), true},
		"another text":               {isoOf(), isoOf(func(k *ISO8601) { k.Column = "b" }), true},
		"a text made again":          {isoOf(), isoOf(func(k *ISO8601) { k.Number++ }), true},
		"the same instant":           {instantOf(), instantOf(), false},
		"a longer instant":           {instantOf(), instantOf(func(k *NumberOrText) { k.After.Days++ }), false},
		"a shorter instant":          {instantOf(), instantOf(func(k *NumberOrText) { k.After.Days-- }), true},
		"an instant in ms":           {instantOf(), instantOf(func(k *NumberOrText) { k.Unit = milliseconds }), true},
		"an instant elsewhere":       {instantOf(), instantOf(func(k *NumberOrText) { k.Path = "a" }), true},
		"an instant for an epoch":    {epochOf(), instantOf(), true},
		"the same bucket":            {bucketOf(), bucketOf(), false},
		"a longer bucket":            {bucketOf(), bucketOf(func(k *Bucket) { k.Span.Days++ }), false},
		"a shorter bucket":           {bucketOf(), bucketOf(func(k *Bucket) { k.Span = Interval{Days: 30} }), true},
		"a bucket kept longer":       {bucketOf(), bucketOf(func(k *Bucket) { k.After.Days++ }), false},
		"a bucket kept less":         {bucketOf(), bucketOf(func(k *Bucket) { k.After.Days-- }), true},
		"a bucket in another zone":   {bucketOf(), bucketOf(func(k *Bucket) { k.Zone = "" }), true},
		"a bucket for an age":        {ageOf(), bucketOf(), true},
	} {
		if got := c.next.MoreThan(c.former); got != c.more {
			t.Errorf("%s: more may fall due: %t", name, got)
		}
	}
	a := Condition{Kind: ageOf()}
	b := Condition{Kind: ageOf(), Where: "t.closed"}
	both := Condition{Kind: ageOf(), Where: "(t.closed AND t.paid)"}
	moved := Condition{Kind: ageOf(), Where: b.Where, Reads: []Column{{Name: "closed", Number: 3, Type: "boolean"}}}
	if a.MoreThan(a) || !a.MoreThan(b) || b.MoreThan(a) || b.MoreThan(b) || both.MoreThan(b) || !b.MoreThan(both) || !b.MoreThan(moved) {
		t.Error("a where selects no more than one whose parts it all has, about the same columns, and may select more than any other")
	}
}

func TestAnEntryRecallsTheColumnsOnRecord(t *testing.T) {
	t.Parallel()
	unresolved := ageOf(func(a *Age) { a.Number, a.Type, a.After = 0, "", Interval{Days: 31} })
	if got := unresolved.Recall(ageOf()); !reflect.DeepEqual(got, ageOf(func(a *Age) { a.After.Days = 31 })) {
		t.Errorf("an age recalls %+v", got)
	}
	bare := ttlOf(days(1), func(l *TTL) { l.Number, l.Type, l.TTLNumber, l.TTLType = 0, "", 0, "" })
	if got := bare.Recall(ttlOf(nil)); !reflect.DeepEqual(got, ttlOf(days(1))) {
		t.Errorf("a ttl recalls %+v", got)
	}
	found := epochOf(func(k *Epoch) { k.Number, k.Type = 0, "" })
	if got := found.Recall(epochOf(func(k *Epoch) { k.After = Interval{} })); !reflect.DeepEqual(got, epochOf()) {
		t.Errorf("an epoch recalls %+v", got)
	}
	bareText, bareInstant := isoOf(func(k *ISO8601) { k.Number, k.Type = 0, "" }), instantOf(func(k *NumberOrText) { k.Number, k.Type = 0, "" })
	bareBucket := bucketOf(func(k *Bucket) { k.Number, k.Type = 0, "" })
	for entry, former := range map[Kind]Kind{
		bareText:    isoOf(func(k *ISO8601) { k.After = Interval{} }),
		bareInstant: instantOf(func(k *NumberOrText) { k.After = Interval{} }),
		bareBucket:  bucketOf(func(k *Bucket) { k.After, k.Span = Interval{}, Interval{} }),
	} {
		var want Kind = isoOf()
		switch entry.(type) {
		case *NumberOrText:
			want = instantOf()
		case *Bucket:
			want = bucketOf()
		}
		if got := entry.Recall(former); !reflect.DeepEqual(got, want) {
			t.Errorf("%T recalls %+v", entry, got)
		}
	}
	for name, c := range map[string]struct{ entry, former Kind }{
		"another text":       {bareText, isoOf(func(k *ISO8601) { k.Column = "b" })},
		"a text for a date":  {bareText, ageOf()},
		"an instant's unit":  {bareInstant, instantOf(func(k *NumberOrText) { k.Unit = milliseconds })},
		"an instant's path":  {bareInstant, instantOf(func(k *NumberOrText) { k.Path = "b" })},
		"instant for epoch":  {bareInstant, epochOf()},
		"a bucket's zone":    {bareBucket, bucketOf(func(k *Bucket) { k.Zone = "" })},
		"a bucket for age":   {bareBucket, ageOf()},
		"another path":       {found, epochOf(func(k *Epoch) { k.Path = "b" })},
		"another unit":       {found, epochOf(func(k *Epoch) { k.Unit = milliseconds })},
		"an epoch for age":   {found, ageOf()},
		"another kind":       {unresolved, ttlOf(nil)},
		"an age for a ttl":   {bare, ageOf()},
		"another column":     {unresolved, ageOf(func(a *Age) { a.Column = "b" })},
		"another zone":       {unresolved, ageOf(func(a *Age) { a.Zone = "" })},
		"another ttl column": {bare, ttlOf(nil, func(l *TTL) { l.TTLColumn = "b" })},
	} {
		if got := c.entry.Recall(c.former); got != nil {
			t.Errorf("%s: recalls %+v", name, got)
		}
	}
}

// A version on record has been written by this program or an earlier one: what it says is told by these texts.
func TestWhatAKindStoresIsReadBack(t *testing.T) {
	t.Parallel()
	for text, kind := range map[string]Kind{
		`{"column":"at","number":2,"type":"timestamp without time zone","zone":"Europe/Berlin","after":"30 days"}`:                                                      ageOf(),
		`{"kind":"ttl","column":"at","number":2,"type":"timestamp with time zone","ttl_column":"ttl","ttl_number":3,"ttl_type":"integer"}`:                              ttlOf(nil),
		`{"kind":"ttl","column":"at","number":2,"type":"timestamp with time zone","ttl_column":"ttl","ttl_number":3,"ttl_type":"integer","ttl_default":"1 mon 2 days"}`: ttlOf(&Interval{Months: 1, Days: 2}),
		`{"kind":"epoch","column":"doc","number":2,"type":"jsonb","path":"a.b","epoch":"s","after":"30 days"}`:                                                          epochOf(),
		`{"kind":"iso8601","column":"at","number":2,"type":"text","after":"30 days"}`:                                                                                   isoOf(),
		`{"kind":"instant","column":"doc","number":2,"type":"jsonb","path":"a.b","epoch":"ms","after":"30 days"}`:                                                       instantOf(func(k *NumberOrText) { k.Unit = milliseconds }),
		`{"kind":"instant","column":"doc","number":2,"type":"jsonb","path":"a.b","after":"30 days"}`:                                                                    instantOf(),
		`{"kind":"bucket","column":"at","number":2,"type":"timestamp without time zone","zone":"Europe/Berlin","span":"1 mon","after":"30 days"}`:                       bucketOf(),
	} {
		written, err := json.Marshal(Record{kind})
		if err != nil || string(written) != text {
			t.Errorf("got %s (%v), want %s", written, err, text)
		}
		var read Record
		if err := json.Unmarshal([]byte(text), &read); err != nil || !reflect.DeepEqual(read.Kind, kind) {
			t.Errorf("%s is read as %+v (%v)", text, read.Kind, err)
		}
	}
	for text, want := range map[string]string{
		`{"kind":"horoscope","column":"at"}`:           `a row is due by "horoscope", which this version does not know`,
		`{"column":"at","after":"1 day","path":"$.x"}`: `unknown field "path"`,
		`{"column":"at","after":"30days"}`:             "is not a duration as PostgreSQL writes it",
		`{"column":"at","after":"1 mons"}`:             "is not a duration as PostgreSQL writes it",
		`{"column":"at","after":"9999999999 days"}`:    "is not a duration as PostgreSQL writes it",
	} {
		var read Record
		if err := json.Unmarshal([]byte(text), &read); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// joining is a kind with a further relation and no bound.
type joining struct{ *Age }

func (joining) Bound(string) Bound { return Bound{} }
func (joining) Joins() []Join {
	return []Join{{Relation: "shop.r", Alias: "r", On: "r.id = t.id", Columns: []Column{{Name: "id"}}}}
}

func TestAConditionIsDueAndWhere(t *testing.T) {
	t.Parallel()
	due := ageOf().Due("$1", "$2")
	c := Condition{Kind: ageOf(), Where: "t.closed or t.void"}
	if got, want := c.Exact("$1", "$2"), due+" and (t.closed or t.void)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := (Condition{Kind: ageOf()}).Exact("$1", "$2"); got != due {
		t.Errorf("got %s, want %s", got, due)
	}
	if got, want := c.Narrow("$1", "$2"), `t."at" <= $2 and t."at" >= '4713-01-01 BC'`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	other := Condition{Kind: joining{ageOf()}}
	using, on := other.Using()
	locked, joined := other.UsingLocked("$7")
	got := []string{other.Narrow("$1", "$2"), other.From("only x"), other.Lock(), using, on, locked, joined, c.From("only x"), c.Lock()}
	if want := []string{
		"", "only x as t\n  join shop.r as r on r.id = t.id", "for update of t, r skip locked", "shop.r as r", "r.id = t.id and ",
		`(select r."id" from shop.r as r where r.ctid = any ($7) for update) as r`, "r.id = t.id", "only x as t", "for update skip locked",
	}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
