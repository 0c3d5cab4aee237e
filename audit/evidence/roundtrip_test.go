package evidence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"lapse/replication"
	"lapse/schemas"
)

// drawn makes contents of records at random.
type drawn struct{ *rand.Rand }

// text has what JSON escapes, what is not UTF-8, and what stands for it.
func (d drawn) text() string {
	parts := []string{"a", `"`, `\`, "\n", "\x00", "é", "\xe9", "\xff\xfe", "\uef81", "\U0001F600", "public.t", "<&>", "\u2028"}
	var b []byte
	for range 1 + d.IntN(6) {
		b = append(b, parts[d.IntN(len(parts))]...)
	}
	return string(b)
}

func (d drawn) maybe(text string) string {
	if d.IntN(2) == 0 {
		return ""
	}
	return text
}

func (d drawn) time() time.Time {
	return time.UnixMicro(d.Int64N(200_000_000_000_000_000) - 60_000_000_000_000_000).UTC() // from the year 68 to 6405
}

func (d drawn) id() (id uuid.UUID) {
	for i := range id {
		id[i] = byte(d.Uint32())
	}
	return id
}

func (d drawn) reach() Reach {
	return Reach{History: schemas.History(1 + d.IntN(9)), Timeline: schemas.Timeline(1 + d.IntN(9)), LSN: schemas.LSN(d.Uint64())}
}

func (d drawn) ancestry() (left replication.Ancestry) {
	for range d.IntN(3) {
		left = append(left, replication.Switch{Timeline: schemas.Timeline(1 + d.IntN(9)), At: schemas.LSN(d.Uint64())})
	}
	return left
}

func (d drawn) heartbeat() *Heartbeat {
	h := &Heartbeat{
		Nonce: d.id(), At: d.time(), History: schemas.History(d.Uint32()), Timeline: schemas.Timeline(d.Uint32()), ServerStart: d.time(),
		Fault: d.maybe(d.text()), Faults: d.Int64(),
	}
	if d.IntN(2) == 0 {
		h.Former, h.LookedAt, h.Covered = d.id(), schemas.LSN(1+d.Uint64N(1<<60)), 1+d.Int64N(1<<50)
		h.Unsettled = d.IntN(2) == 0
		h.Declared = Declared{true, d.maybe(d.text()), d.maybe(d.text())}
	}
	return h
}

func (d drawn) claim() *schemas.Claim {
	c := &schemas.Claim{
		Policy: schemas.PolicyName(d.text()), PolicyVersion: schemas.PolicyVersion(d.Int32()), Run: d.id(), Batch: d.id(), Cutoff: d.time(),
		HoldVersion: schemas.HoldVersion(d.Int64()), Target: d.Uint32(),
	}
	for i := range c.Functions {
		c.Functions[i] = byte(d.Uint32())
	}
	return c
}

func (d drawn) tx() *replication.Tx {
	return &replication.Tx{CommitLSN: schemas.LSN(d.Uint64()), CommitTime: d.time(), XID: d.Uint32(), Origin: d.maybe(d.text())}
}

// account has more lines than a record names, now and then.
func (d drawn) account() *Account {
	a := &Account{Batches: d.IntN(2)}
	lines := func() int { return []int{0, 1, 3, maxLines, maxLines + 1 + d.IntN(40)}[d.IntN(5)] }
	for range lines() {
		t := Tally{
			OID: d.Uint32(), Table: d.text(), Op: []Op{Delete, Truncate, SoftDelete, Drop, Move}[d.IntN(5)],
			Cause: []Cause{System, User, Unverified}[d.IntN(3)], Cascade: d.IntN(2) == 0, Events: d.Uint64N(1 << 50),
		}
		if d.IntN(2) == 0 {
			t.Due, t.NotDue = d.Uint64N(9), d.Uint64N(9)
			t.Judged = t.Due + t.NotDue + d.Uint64N(9)
			for range t.Due {
				t.Late[d.IntN(len(t.Late))]++
			}
		}
		a.Tallies = append(a.Tallies, t)
	}
	if d.IntN(3) > 0 {
		a.Claim = d.claim()
	}
	if a.Claim != nil && d.IntN(3) > 0 {
		a.Result = &Result{Batch: a.Claim.Batch, Picked: d.Int64(), Deleted: d.Int64()}
		for range lines() {
			a.Result.ByRelation = append(a.Result.ByRelation, RelationCount{OID: d.Uint32(), Rows: d.Int64()})
		}
	}
	return a
}

func (d drawn) tables() *tablesContent {
	c := &tablesContent{At: d.time(), Until: d.reach(), Ancestry: d.ancestry()}
	changes := []string{tableBegins, tableEnds, tableRenamed, tableMoves, tableDue, tableRewritten, tableRestated}
	for range 1 + d.IntN(4) {
		row := CoveredTable{OID: d.Uint32(), Table: d.text(), Root: d.maybe(d.text())}
		for range d.IntN(3) {
			row.MovesBy = append(row.MovesBy, d.text())
		}
		if d.IntN(3) == 0 {
			row.Due, row.Where = &schemas.Due{Column: d.text(), As: schemas.DueDate}, d.IntN(2) == 0
			for range d.IntN(3) {
				row.Due.After = append(row.Due.After, schemas.Period{Months: 1, Days: d.Int32(), Microseconds: d.Int64()})
			}
		}
		c.Lines = append(c.Lines, tableLine{row: row, change: changes[d.IntN(len(changes))], former: d.maybe(d.text())})
	}
	return c
}

func (d drawn) marker(op Op) Content {
	m := &Marker{
		Op: op, Reason: []Reason{ReasonSlot, ReasonPublications, ReasonTopic, ReasonAccepted, ReasonTimeline}[d.IntN(5)], Time: d.time(),
		From: d.reach(), To: d.reach(), Topic: d.maybe("shop.user"),
	}
	c := &MarkerContent{Marker: m, Ancestry: d.ancestry()}
	if d.IntN(2) == 0 {
		c.Heartbeat = d.heartbeat()
	}
	return c
}

// policy has all members, or few.
func (d drawn) policy() *PolicyContent {
	draw := func() *PolicyRow {
		r := &PolicyRow{ID: d.Int64(), Version: int64(d.Int32()), At: d.time()}
		if d.IntN(2) == 0 {
			r.Policy, r.State, r.HeldVersion, r.Table, r.TableOID = d.text(), schemas.State(d.text()), d.Int64(), d.text(), d.Int64()
			r.Soft, r.Halted, r.Alarm, r.By, r.Reason, r.Definition = d.IntN(2) == 0, d.IntN(2) == 0, d.IntN(2) == 0, d.text(), d.text(), "hmac-sha256:00"
		}
		if d.IntN(2) == 0 {
			r.Terms = &PolicyTerms{Expire: ExpireTerms{Column: d.maybe(d.text()), After: d.maybe("1 day"), Kind: d.maybe(d.text())}, Where: d.IntN(2) == 0, Owner: d.maybe(d.text()), Action: d.maybe("soft")}
			for range d.IntN(3) {
				r.Terms.Floors = append(r.Terms.Floors, FloorTerms{Of: d.text(), Least: d.maybe("1 day")})
			}
		}
		return r
	}
	c := &PolicyContent{Committed: committed(d.tx()), ByHand: d.IntN(2) == 0, Others: d.Uint64N(2)}
	c.Row, c.Op = policyGate, rowUpdated
	if d.IntN(3) > 0 {
		c.Is = draw()
	}
	if d.IntN(3) > 0 {
		c.Was = draw()
	}
	return c
}

func (d drawn) hold() *HoldContent {
	c := &HoldContent{Committed: committed(d.tx())}
	c.Row, c.Op = holdState, rowDeleted
	c.Was = &HoldRow{Hold: int64(d.Int32()), At: d.time(), By: d.text()}
	if d.IntN(2) == 0 {
		c.Is = &HoldRow{
			Hold: d.Int64(), Matter: d.text(), Table: d.text(), TableOID: d.Int64(), Keys: d.Int64(), Digest: "ab", State: d.text(), Until: d.time(),
			Position: schemas.LSN(d.Uint64()), Attached: d.IntN(2) == 0, Ended: d.IntN(2) == 0, At: d.time(), By: d.text(), Reason: d.text(),
		}
	}
	return c
}

func (d drawn) quarantine() *QuarantineContent {
	c := &QuarantineContent{Committed: committed(d.tx()), Op: rowInserted, PolicyID: int64(d.Int32()), Policy: d.maybe(d.text()), Table: d.maybe(d.text()), TableOID: int64(d.Uint32())}
	if d.IntN(2) == 0 {
		c.Entered, c.Left, c.Rows, c.At, c.By = d.Int64(), d.Int64(), d.Int64(), d.time(), d.text()
	}
	return c
}

func (d drawn) snapshot() *SnapshotContent {
	s := &SnapshotContent{Committed: committed(d.tx()), Snapshot: d.id(), Step: "counted", PolicyID: int64(d.Int32()), Policy: d.text(), Version: 3, At: d.time(), By: d.text()}
	if d.IntN(2) == 0 {
		s.Seen, s.Cutoff, s.NotCounted = "744:750:745", d.time(), d.text()
	}
	if d.IntN(2) == 0 {
		s.Counted = &DueCounts{Due: d.Int64(), Held: d.Int64N(2)}
		if d.IntN(2) == 0 {
			over := d.Int64()
			s.Counted.OldestOver = &over
		}
	}
	return s
}

// contents are one of each type that is written.
func (d drawn) contents(route *Route) []Content {
	coverage := &CoverageContent{At: d.time(), Ancestry: d.ancestry()}
	if d.IntN(2) == 0 {
		coverage.Heartbeat = d.heartbeat()
	}
	drop := &PartitionDrop{
		Claim: d.claim(), Relation: &replication.Relation{OID: d.Uint32(), Schema: d.text(), Name: d.text()}, Root: d.text(), Rows: d.Int64(),
	}
	if d.IntN(2) == 0 {
		drop.Oldest, drop.Newest = d.time(), d.time()
	}
	origin := &OriginContent{Slot: "lapse", Consistent: schemas.LSN(d.Uint64())}
	for range 1 + d.IntN(2) {
		origin.Keys = append(origin.Keys, d.id().String())
	}
	if d.IntN(2) == 0 {
		origin.HashKey, origin.PublicKey, origin.RowsKeys = "hash", route.PublicKey+"log", []RowsKey{{"2026-11", "one"}, {"2026-12", "two"}}
	}
	transaction := newTransactionContents(d.tx(), d.account(), []Verdict{Match, Mismatch, Unclaimed}[d.IntN(3)])[0].(*TransactionContent)
	if d.IntN(2) == 0 {
		transaction.Rows = &RowsRoot{Epoch: "2026-11", Count: d.Uint64(), First: d.Uint32(), Root: []byte(d.text())}
	}
	return []Content{
		origin, &RouteContent{Route: route}, &RouteContent{Route: route, Rotation: "lapse log key\nof …\n"}, transaction,
		newDropContent(d.tx(), drop), d.policy(), d.hold(), d.quarantine(), d.snapshot(), coverage, d.tables(), d.marker(Gap), d.marker(Rewind),
	}
}

// What is read of a record is all that was written: written again it is the same bytes.
func TestEveryRecordThatIsReadAndWrittenAgainIsTheSameBytes(t *testing.T) {
	t.Parallel()
	seen := map[Kind]bool{}
	for seed := range uint64(400) {
		d := drawn{rand.New(rand.NewPCG(seed, 22))}
		route := &Route{
			Version: 1 + d.IntN(3), Source: Source{SystemIdentifier: d.Uint64(), DatabaseOID: d.Uint32(), Database: d.text(), Encoding: "UTF8", Slot: "lapse"},
			System: Topic{Name: "s", Partitions: 3, Every: int32(d.IntN(6))}, User: Topic{Name: "u", Partitions: 2}, Log: Topic{Name: "l", Partitions: 1},
			Format: FormatSpanner, HashKey: "key",
		}
		if d.IntN(2) == 0 {
			route.PublicKey, route.RowsKeys = "log+key", []RowsKey{{Epoch: "2026-10"}, {"2026-11", "one"}}
		}
		if d.IntN(2) == 0 {
			route.Source.Encoding = "SQL_ASCII"
		}
		nonce, beat := d.id(), &Heartbeat{Nonce: d.id()}
		for _, c := range d.contents(route) {
			at, more := LogPosition{Reach: d.reach(), Seq: d.Uint32()}, d.IntN(2) == 0
			entry := NewLogWriter(route, nil, nonce, beat).Write(c, at, more)
			if !json.Valid(entry.Value) {
				t.Fatalf("seed %d: a %T is no JSON: %s", seed, c, entry.Value)
			}
			r, err := ParseLogRecord(entry.Value)
			if err != nil {
				t.Fatalf("seed %d: read a %T: %v\n%s", seed, c, err, entry.Value)
			}
			if got, want := fmt.Sprintf("%T %s", r.Content, r.Content.Kind()), fmt.Sprintf("%T %s", c, entry.Kind); got != want || r.Kind != entry.Kind {
				t.Fatalf("seed %d: a %s is read as %s", seed, want, got)
			}
			again := NewLogWriter(route, nil, r.Nonce, &Heartbeat{Nonce: beat.Nonce}).Write(r.Content, r.LogPosition, r.More)
			if !bytes.Equal(again.Value, entry.Value) {
				t.Fatalf("seed %d: a %T that is read and written again is\n%.3000s\nand was\n%.3000s", seed, c, again.Value, entry.Value)
			}
			seen[r.Kind] = true
		}
	}
	for _, kind := range []Kind{KindOrigin, KindRoute, KindTransaction, KindCoverage, KindGap, KindRewind, KindDrop, KindPolicy, KindHold, KindQuarantine, KindSnapshot} {
		if !seen[kind] {
			t.Errorf("no record of kind %s was written", kind)
		}
	}
}

// A reader passes over what it does not know: kinds, members, causes of a later version.
func TestARecordOfALaterVersionIsReadAsFarAsItIsKnown(t *testing.T) {
	t.Parallel()
	d := drawn{rand.New(rand.NewPCG(1, 22))}
	route := &Route{Version: 1, Source: Source{SystemIdentifier: 7, DatabaseOID: 5, Database: "shop", Encoding: "UTF8"}, Format: FormatSpanner}
	beat := d.heartbeat()
	value := NewLogWriter(route, nil, d.id(), nil).Write(&CoverageContent{At: d.time(), Heartbeat: beat, Ancestry: replication.Ancestry{{Timeline: 1, At: 9}}}, LogPosition{}, false).Value
	r, err := ParseLogRecord(bytes.Replace(value, []byte(`"kind":"coverage"`), []byte(`"kind":"checkpoint","root":[1]`), 1))
	if err != nil || r.Kind != "checkpoint" || r.Heartbeat == nil || r.Heartbeat.Nonce != beat.Nonce || !slices.Equal(r.Ancestry, replication.Ancestry{{Timeline: 1, At: 9}}) {
		t.Errorf("a kind of a later version is read as %+v (%v)", r, err)
	}
	account := &Account{Tallies: []Tally{{OID: 1, Table: "public.t", Op: Delete, Cause: User, Events: 3}}}
	value = NewLogWriter(route, nil, d.id(), nil).Write(newTransactionContents(&replication.Tx{CommitTime: d.time()}, account, Unclaimed)[0], LogPosition{}, false).Value
	for _, change := range [][2]string{
		{`"cause":"user"`, `"cause":"moon"`},
		{`"op":"delete"`, `"op":"vanish"`},
		{`"events":3`, `"events":3,"why":{}`},
		{`,"commit_lsn":"0/0"`, ``},
	} {
		changed := bytes.Replace(value, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(changed, value) {
			t.Fatalf("there is no %s in %s", change[0], value)
		}
		r, err := ParseLogRecord(changed)
		if err != nil {
			t.Errorf("with %s for %s: %v", change[1], change[0], err)
			continue
		}
		total := uint64(0)
		for _, n := range r.Content.(*TransactionContent).Events() {
			total += n
		}
		if total != 3 {
			t.Errorf("with %s for %s it has %d events", change[1], change[0], total)
		}
	}
}
