package evidence

import (
	"math"
	"slices"

	"lapse/replication"
	"lapse/schemas"
)

// pairing says which deletes are one event with the change after them: a move is a delete and an insert.
type pairing interface {
	// waits reports whether a delete waits for the change after it.
	waits(change *replication.Change, f finding) bool
	// join makes one event of a delete that waits and the change after it, and reports whether they are one. The change is
	// then no event of its own. Where it reports false it leaves the delete as it was.
	join(waiting *Event, change *replication.Change) bool
}

// Assembler makes of one transaction's changes its events and, at the commit, its records of the log. Its states are in
// the package comment. One delete at most waits, copied, so its memory does not grow with a transaction but by the
// tables that lost rows. Not safe for concurrent use.
//
// After each Change and after Commit the caller takes events with Next until there is none.
type Assembler struct {
	classifier *classifier
	names      names
	tables     tables
	standing   Standing
	pairs      pairing

	tx      *replication.Tx
	changes uint32       // how many the transaction has had
	event   Event        // of the change at hand; its keys are the stream's
	waiting *eventCopy   // a delete that waits for the change after it; nil for none
	spare   [2]eventCopy // one may be on its way while the other waits
	ready   [2]*Event    // certain, and not taken
	taken   int
	certain int

	beat    *Heartbeat  // the last of the transaction; nil for none
	faulty  bool        // one of them shows that something was published otherwise than it must be
	untold  []tableLine // of tables; of a heartbeat that has no record
	outcome Conclusion
}

// Standing is what the log says before a transaction, as far as its records depend on it.
type Standing struct {
	Last     LastBeat
	Tables   []CoveredTable // the rows of lapse.covered up to the last heartbeat's, in their order
	Origin   Reach          // of the log
	Replaced []string       // topics that have lost what was in them, which the next heartbeat above Tail says
	// Tail is the last position that any partition has an event of. The gap is in every one, after it.
	Tail replication.Position
}

// Conclusion is what a transaction came to. It is the assembler's own and valid until the next Begin.
type Conclusion struct {
	Account *Account
	Verdict Verdict // Unclaimed for a transaction without a record of its own
	// Partitions says that the transaction's heartbeat found other partitions than the one before.
	Partitions bool
	// Markers go into every partition after the transaction's events, before its records go into the log.
	Markers []*Marker
	// Records are the transaction's records of the log, in their order: the number of each is its Seq, and the last one is
	// its end. None: the transaction leaves nothing in the log.
	Records []Content
}

// NewAssembler makes an assembler for the WAL of source. A claim verifies if it does so under any of keys.
func NewAssembler(source Source, keys []schemas.Key, standing Standing) *Assembler {
	a := &Assembler{classifier: newClassifier(source, keys), names: names{}, tables: newTables(standing.Tables), standing: standing}
	a.pairs = &moves{a.names, a.tables}
	return a
}

// Begin starts a transaction. What was known of the one before is gone.
func (a *Assembler) Begin(tx *replication.Tx) {
	a.classifier.Begin(tx)
	a.tx, a.changes, a.waiting, a.beat, a.faulty = tx, 0, nil, nil, false
	a.taken, a.certain = 0, 0
}

// Change takes the transaction's next change. It keeps nothing of it but a delete that waits.
func (a *Assembler) Change(change *replication.Change) {
	joined := a.waiting != nil && a.pairs.join(&a.waiting.event, change)
	if joined {
		a.classifier.account.moved()
	}
	a.release()
	finding := a.classifier.Classify(change)
	a.changes = change.Ordinal + 1
	a.listen()
	if finding.Op == None || joined {
		return
	}
	if finding.Op == Drop {
		a.event.setDrop(a.tx, change.Ordinal, a.classifier.Account().Drop)
	} else {
		known := a.names.of(change.Relation, a.tables)
		a.event.set(a.tx, change, finding, a.classifier.Claim(), known.name)
		a.event.Root, a.event.Partition = known.root, known.partition
		if finding.Cause == System {
			a.classifier.tell(&a.event)
		}
	}
	if finding.Op == Delete && a.pairs.waits(change, finding) {
		a.wait()
		return
	}
	a.ready[a.certain] = &a.event
	a.certain++
}

// Next is the next event that is certain, nil if there is none. It is valid until the next call of any method.
func (a *Assembler) Next() *Event {
	if a.taken == a.certain {
		a.taken, a.certain = 0, 0
		return nil
	}
	a.taken++
	return a.ready[a.taken-1]
}

// Commit ends the transaction. The record of a heartbeat has the ancestry of the server.
func (a *Assembler) Commit(tx *replication.Tx, ancestry replication.Ancestry) *Conclusion {
	a.release()
	account := a.classifier.Account()
	account.splitMoves()
	a.outcome = Conclusion{
		Account: account, Verdict: Unclaimed, Markers: a.outcome.Markers[:0], Records: a.outcome.Records[:0],
	}
	o := &a.outcome
	if account.Recorded() {
		o.Verdict = reconcile(account)
		o.Records = append(o.Records, newTransactionContents(tx, account, o.Verdict)...)
		if account.Drop != nil {
			o.Records = append(o.Records, newDropContent(tx, account.Drop))
		}
	}
	if a.beat != nil {
		a.conclude(tx, ancestry)
	} else {
		o.Records = append(o.Records, account.catalog.contents(tx)...)
	}
	return o
}

// wait copies the event at hand, which waits for the next change.
func (a *Assembler) wait() {
	a.waiting = &a.spare[0]
	if a.certain > 0 && a.ready[0] == &a.spare[0].event {
		a.waiting = &a.spare[1]
	}
	a.waiting.copy(&a.event)
}

// release makes the event that waits certain.
func (a *Assembler) release() {
	if a.waiting == nil {
		return
	}
	a.ready[a.certain] = &a.waiting.event
	a.certain++
	a.waiting = nil
}

// listen takes note of a heartbeat. Each must name the one before it, whether or not both are of one transaction.
func (a *Assembler) listen() {
	h := a.classifier.Account().Heartbeat
	if h == nil || h == a.beat {
		return
	}
	former := a.beat
	if former == nil {
		former = a.standing.Last.Beat
	}
	a.faulty = a.faulty || h.faulty(former)
	a.beat = h
}

// conclude adds the records of the transaction's last heartbeat: coverage, or the gaps that it shows. A gap is placed where
// the heartbeat is, or after all changes of a transaction that has events. A heartbeat below what is in the topics
// shows no gap of theirs: a later one does.
func (a *Assembler) conclude(tx *replication.Tx, ancestry replication.Ancestry) {
	o, last := &a.outcome, &a.standing.Last
	if len(o.Account.Covered) > 0 {
		lines := a.tables.take(o.Account.Covered)
		o.Partitions = slices.ContainsFunc(lines, func(l tableLine) bool { return l.row.Root != "" })
		a.untold = append(a.untold, lines...)
		clear(a.names)
	}
	gap := func(reason Reason, topic string, from Reach) *Marker {
		at := uint32(len(o.Markers))
		if o.Account.Recorded() {
			at += a.changes
		}
		m := &Marker{Op: Gap, Reason: reason, Topic: topic, Time: tx.CommitTime, From: from, To: EndOf(tx), At: tx.Position(at)}
		o.Markers = append(o.Markers, m)
		return m
	}
	// The record that has the heartbeat comes first: where only some are in the log, it shows which transaction they are of.
	if a.faulty {
		m := gap(ReasonPublications, "", last.intact())
		o.Records = append(o.Records, &MarkerContent{Marker: m, Heartbeat: a.beat, Ancestry: ancestry})
	} else {
		o.Records = append(o.Records, &CoverageContent{At: tx.CommitTime, Heartbeat: a.beat, Ancestry: ancestry})
	}
	o.Records = append(o.Records, coverTables(a.untold, tx, last.intact(), ancestry)...)
	o.Records = append(o.Records, o.Account.catalog.contents(tx)...)
	a.untold, *last = nil, LastBeat{Beat: a.beat, Reach: EndOf(tx)}
	if tx.Position(math.MaxUint32).Compare(a.standing.Tail) < 0 {
		return
	}
	// Last come those that the WAL does not show: what an auditor that knew nothing of them has left in the log comes before them.
	for _, topic := range a.standing.Replaced {
		o.Records = append(o.Records, &MarkerContent{Marker: gap(ReasonTopic, topic, a.standing.Origin), Ancestry: ancestry})
	}
	a.standing.Replaced = nil
}

// eventCopy is an event with a copy of its keys and values.
type eventCopy struct {
	event Event
	text  []byte
}

func (h *eventCopy) copy(e *Event) {
	keys, values := h.event.Keys[:0], h.event.Values[:0]
	h.event, h.text = *e, h.text[:0]
	for _, columns := range [][]Key{e.Keys, e.Values} {
		for i := range columns {
			h.text = append(h.text, columns[i].Value...)
		}
	}
	rest := h.text
	take := func(into, columns []Key) []Key {
		for _, column := range columns {
			n := len(column.Value)
			column.Value, rest = rest[:n:n], rest[n:]
			into = append(into, column)
		}
		return into
	}
	h.event.Keys = take(keys, e.Keys)
	h.event.Values = take(values, e.Values)
}

// names keeps the written names of tables, and of their roots.
type names map[uint32]named

type named struct {
	relation   *replication.Relation
	name, root string // root: see tables.rootOf
	partition  bool
	movesBy    []string // see CoveredTable
}

func (n names) of(relation *replication.Relation, published tables) named {
	known := n[relation.OID]
	if known.relation != relation {
		known = named{relation: relation, name: tableName(relation)}
		known.root, known.partition = published.rootOf(relation, known.name)
		known.movesBy = published[relation.OID].MovesBy
		n[relation.OID] = known
	}
	return known
}
