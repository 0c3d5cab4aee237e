package evidence_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

// step is one published change of a drawn transaction, with what is true of it: the naive reader below never reads a row.
type step struct {
	kind string // batch, drop, result, ledger, other; delete, truncate, update
	of   *replication.Relation

	claim    schemas.Claim // a batch's
	signer   int           // of signers
	readable bool          // a batch or result whose columns all are
	named    bool          // a batch or result whose name, database, transaction and start are readable
	soft     bool
	crossed  bool // signed for the other of batch and drop
}

// drawn is a transaction and who reads it.
type drawn struct {
	tx    *replication.Tx
	steps []step
	ring  []int // signers whose keys the reader has
}

// signers are the keys that claims are signed with. No reader has the third, and who has none signs nothing.
var signers = []schemas.Key{
	evidencetest.TagKey, slices.Repeat([]byte{11}, schemas.MinKey), slices.Repeat([]byte{12}, schemas.MinKey), nil,
}

var (
	seldomTrue = append(make([]bool, 23), true) // integers would be drawn small
	few        = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}

	namesake = relation(16510, "public", "batch", "id*", "mac") // whose rows are no claims
	touched  = []*replication.Relation{target, child, stranger, namesake, batchRelation}
)

// draw draws mostly what is nearly right: each thing that may be wrong with a claim is wrong now and then.
func draw(t *rapid.T, ring []int) drawn {
	d := drawn{tx: exampleTx(), ring: ring}
	d.tx.History = schemas.History(rapid.IntRange(1, 2).Draw(t, "history"))
	d.tx.Timeline = schemas.Timeline(rapid.IntRange(1, 2).Draw(t, "timeline"))
	for i := range rapid.SampledFrom(few).Draw(t, "steps") {
		kinds := []string{"batch", "drop", "result", "ledger", "other", "delete", "delete", "delete", "truncate", "update", "update"}
		if i == 0 {
			kinds = append(kinds, "batch", "batch", "batch", "batch", "batch", "batch", "batch", "batch", "drop", "drop")
		}
		s := step{kind: rapid.SampledFrom(kinds).Draw(t, "kind"), of: rapid.SampledFrom(touched).Draw(t, "of")}
		if s.kind == "other" && s.of == batchRelation {
			s.of = target // an insert there is a batch
		}
		if s.kind == "batch" || s.kind == "drop" || s.kind == "result" {
			d.drawClaim(t, &s)
		}
		d.steps = append(d.steps, s)
	}
	return d
}

func (d *drawn) drawClaim(t *rapid.T, s *step) {
	seldom := func(label string) bool { return rapid.SampledFrom(seldomTrue).Draw(t, label) }
	c := exampleClaim()
	c.History, c.Timeline = d.tx.History, d.tx.Timeline
	c.Batch = uuid.MustParse(fmt.Sprintf("0198f1d0-0000-7000-8000-00000000000%d", rapid.SampledFrom(few[1:4]).Draw(t, "batch")))
	c.Target = rapid.SampledFrom(touched[:3]).Draw(t, "target").OID
	c.Cascades = rapid.SampledFrom([][]uint32{nil, {child.OID}, {child.OID, 16410}, {target.OID, stranger.OID}}).Draw(t, "cascades")
	slices.Sort(c.Cascades)
	for i, spoil := range []func(){
		func() { c.SystemIdentifier++ }, func() { c.DatabaseOID++ }, func() { c.History++ }, func() { c.Timeline++ },
		func() { c.XID++ }, func() { c.XID += 1 << 32 }, // another transaction; another epoch, which the WAL cannot tell apart
		func() { c.StartedAt = d.tx.CommitTime.Add(-24*time.Hour - time.Microsecond) },
		func() { c.StartedAt = d.tx.CommitTime.Add(24*time.Hour + time.Microsecond) },
		func() { c.StartedAt = d.tx.CommitTime.Add(-24 * time.Hour) },
	} {
		if seldom(fmt.Sprint("spoil ", i)) {
			spoil()
		}
	}
	s.claim, s.signer = c, rapid.SampledFrom([]int{0, 0, 0, 0, 1, 2, 3}).Draw(t, "signer")
	s.readable = !seldom("unreadable")
	s.named = s.readable || rapid.Bool().Draw(t, "named")
	s.crossed = seldom("crossed")
	s.soft = rapid.SampledFrom(few[:4]).Draw(t, "soft") == 3
}

func (s step) String() string {
	text := s.kind
	switch s.kind {
	case "batch", "drop", "result":
		text += fmt.Sprintf(" %s by %d (readable %v, named %v, soft %v)", s.claim.Batch, s.signer, s.readable, s.named, s.soft)
	case "ledger":
	default:
		text += " " + s.of.Name
	}
	return text
}

// change is the step as the stream delivers it.
func (s *step) change() *replication.Change {
	spoil := func(c *replication.Change, at int) *replication.Change {
		c.New[at] = row("no")[0]
		return c
	}
	switch s.kind {
	case "batch", "drop":
		var mac []byte
		if key := signers[s.signer]; key != nil {
			mac = s.claim.MAC(key)
			if (s.kind == "drop") != s.crossed {
				mac = s.claim.DropMAC(key)
			}
		}
		c := softly(batchRow(s.claim, mac), map[bool]string{true: "t", false: "f"}[s.soft])
		if s.kind == "drop" {
			c = droppedRow(s.claim, mac)
		}
		switch {
		case !s.named:
			return spoil(c, 0)
		case !s.readable:
			return spoil(c, 5) // the cutoff
		}
		return c
	case "result":
		c := resultRow(s.claim, 1)
		switch {
		case !s.named:
			return spoil(c, 0)
		case !s.readable:
			return spoil(c, 1)
		}
		return c
	case "ledger":
		return insert(beatRelation, row(1, ""))
	case "other":
		return insert(s.of, row(1, 1))
	case "delete":
		return del(s.of, 1)
	case "truncate":
		return truncate(s.of)
	default:
		return set(s.of, 1, 1)
	}
}

// What follows asks of each step what the whole transaction says, and keeps no state.

// is of this database and this transaction, as far as it says.
func (d *drawn) here(c *schemas.Claim) bool {
	return c.DatabaseOID == source.DatabaseOID && uint32(c.XID) == d.tx.XID &&
		!c.StartedAt.Before(d.tx.CommitTime.Add(-24*time.Hour)) && !c.StartedAt.After(d.tx.CommitTime.Add(24*time.Hour))
}

func (d *drawn) bySomeKey(s *step) bool {
	return s.readable && !s.crossed && s.claim.SystemIdentifier == source.SystemIdentifier && slices.Contains(d.ring, s.signer)
}

func (d *drawn) inForce(c *schemas.Claim) bool {
	return c.History == d.tx.History && c.Timeline == d.tx.Timeline
}

func (d *drawn) genuine(s *step) bool {
	return s.kind == "batch" && d.here(&s.claim) && d.bySomeKey(s) && d.inForce(&s.claim)
}

// dropsWhole says whether the transaction is a policy's drop.
func (d *drawn) dropsWhole() bool {
	s := &d.steps[0]
	return s.kind == "drop" && d.here(&s.claim) && d.bySomeKey(s) && d.inForce(&s.claim)
}

// signs says of a step that it wants to be a batch or a drop.
func signs(s step) bool { return s.kind == "batch" || s.kind == "drop" }

// foreign says of a batch that it is one of the functions', for all that can be seen, and not by our keys.
func (d *drawn) foreign(s *step) bool {
	return s.kind == "batch" && s.named && d.here(&s.claim) && !d.bySomeKey(s)
}

// covered is where the opening batch's word holds: after it, up to the next batch or result.
func (d *drawn) covered(i int) bool {
	if i == 0 || !d.genuine(&d.steps[0]) {
		return false
	}
	return !slices.ContainsFunc(d.steps[1:i], func(s step) bool { return signs(s) || s.kind == "result" })
}

// open is the last batch before a step, if no result lies between.
func (d *drawn) open(i int) *step {
	for j := i - 1; j >= 0; j-- {
		switch d.steps[j].kind {
		case "batch":
			return &d.steps[j]
		case "result", "drop":
			return nil
		}
	}
	return nil
}

func (d *drawn) cause(i int) (letter string) {
	s, claim := &d.steps[i], &d.steps[0].claim
	if i == 0 && d.dropsWhole() {
		return "S"
	}
	if s.kind == "update" {
		switch last := d.open(i); {
		case d.covered(i) && d.steps[0].soft && s.of.OID == claim.Target:
			return "s"
		case last != nil && d.foreign(last) && last.readable && last.soft && s.of.OID == last.claim.Target:
			return "x"
		}
		return ""
	}
	if s.kind != "delete" && s.kind != "truncate" {
		return ""
	}
	switch {
	case !slices.ContainsFunc(d.steps[:i], signs):
		letter = "u"
	case !d.covered(i) || d.steps[0].soft || s.kind == "truncate":
		letter = "x"
	case s.of.OID == claim.Target:
		return "s"
	case slices.Contains(claim.Cascades, s.of.OID):
		return "c"
	default:
		letter = "x"
	}
	if s.kind == "truncate" {
		letter = map[string]string{"u": "U", "x": "X"}[letter]
	}
	return letter
}

// own is the first batch that has a result after it, of those that are the functions' and not by our keys. A result speaks of
// the last one before it. A drop needs no result.
func (d *drawn) own() string {
	for j := range d.steps {
		if s := &d.steps[j]; s.kind == "drop" && s.named && d.here(&s.claim) && !d.bySomeKey(s) {
			return s.claim.Batch.String()
		}
		if d.steps[j].kind != "result" || !d.steps[j].named {
			continue
		}
		for i := j - 1; i >= 0; i-- {
			if s := &d.steps[i]; d.foreign(s) {
				if s.claim.Batch == d.steps[j].claim.Batch {
					return s.claim.Batch.String()
				}
				break
			}
		}
	}
	return ""
}

// account is what the transaction is summed up as.
func (d *drawn) account() string {
	counts, claim, result, tallies := map[string]int{}, "", "", map[string]int{}
	for i := range d.steps {
		s := &d.steps[i]
		counts[s.kind]++
		if letter := d.cause(i); letter != "" {
			of := s.of.OID
			if s.kind == "drop" {
				of = s.claim.Target
			}
			tallies[fmt.Sprint(of, " ", letter)]++
		}
		if s.kind == "result" && d.covered(i) && s.readable {
			result = s.claim.Batch.String()
		}
	}
	if len(d.steps) > 0 && (d.genuine(&d.steps[0]) || d.dropsWhole()) {
		claim = fmt.Sprintf("%+v", d.steps[0].claim)
	}
	return fmt.Sprintln(counts["batch"], counts["drop"], counts["result"], counts["ledger"] > 0, claim, result, d.own(), tallies)
}

func accountText(a *evidence.Account) string {
	var claim, result, own string
	if a.Claim != nil {
		claim = fmt.Sprintf("%+v", *a.Claim)
	}
	if a.Result != nil {
		result = a.Result.Batch.String()
	}
	if a.OwnUnverified != nil {
		own = a.OwnUnverified.String()
	}
	tallies := map[string]int{}
	for _, t := range a.Tallies {
		tallies[fmt.Sprint(t.OID, " ", letterOf(evidence.Finding{Op: t.Op, Cause: t.Cause, Cascade: t.Cascade}))] += int(t.Events)
	}
	return fmt.Sprintln(a.Batches, a.Drops, a.Results, a.Awaited, claim, result, own, tallies)
}

// One classifier reads several transactions, and sees in each what a classifier sees that reads the whole of it at once.
func TestAnyTransactionIsSeenAsBySomebodyWhoLooksAtTheWholeOfIt(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	property := func(t *rapid.T) {
		ring := rapid.SampledFrom([][]int{{0}, {0}, {0, 1}, {1, 0}, {}}).Draw(t, "ring")
		keys := make([]schemas.Key, len(ring))
		for i, signer := range ring {
			keys[i] = signers[signer]
		}
		c := evidence.NewClassifier(source, keys)
		for range rapid.SampledFrom(few[1:4]).Draw(t, "transactions") {
			d := draw(t, ring)
			c.Begin(d.tx)
			for i := range d.steps {
				change := d.steps[i].change()
				change.Ordinal = uint32(i)
				got, want := letterOf(c.Classify(change)), d.cause(i)
				if got != want {
					t.Fatalf("step %d is %q, want %q, in %v", i, got, want, d.steps)
				}
				seen[want]++
			}
			if got, want := accountText(c.Account()), d.account(); got != want {
				t.Fatalf("got  %swant %sin %v", got, want, d.steps)
			}
			if d.own() != "" {
				seen["own"]++
			}
		}
	}
	for range 40 {
		rapid.Check(t, property)
	}
	for _, letter := range []string{"s", "c", "u", "x", "U", "X", "S", "own"} {
		if seen[letter] == 0 {
			t.Errorf("%q was never drawn: %v", letter, slices.Sorted(maps.Keys(seen)))
		}
	}
}
