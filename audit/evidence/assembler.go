package evidence

import (
	"math"
	"slices"

	"lapse/replication"
	"lapse/schemas"
)

// pairing decides which deletes are one event with the change after them: a move is a delete and an insert.
type pairing interface {
	// waits reports whether a delete must wait for the change after it.
	waits(change *replication.Change, f finding) bool
	// join tries to make one event of a waiting delete and the change after it. If it returns true, the change is no event of its own. If
	// it returns false, it has not changed the delete.
	join(waiting *Event, change *replication.Change) bool
}

// Assembler turns one transaction's changes into its events and, at the commit, its records of the log. The package comment has its states. At
// most two events are copies, a delete that waited and the one after it, so the memory grows only with the number of tables that lost rows. Not safe for concurrent use.
//
// After each Change and after Commit the caller takes events with Next until there are none.
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
	spare   [2]eventCopy // the second is for the event after the one in the first
	ready   [2]*Event    // complete events that were not taken yet
	taken   int
	certain int

	unsettled bool // no row that a user deletes can be judged: see userdue.go

	beat    *Heartbeat  // the last of the transaction; nil for none
	faulty  bool        // one of its heartbeats shows that the publications were wrong
	untold  []tableLine // lines about tables from a heartbeat that has no record
	outcome Conclusion
}

// Standing is what the records of a transaction depend on in the log before it.
type Standing struct {
	Last      LastBeat
	Tables    []CoveredTable // the rows of lapse.covered up to the last heartbeat's, in their order
	Unsettled bool           // what is due by these rows is not known: see userdue.go
	Origin    Reach          // of the log
	Replaced  []string       // topics that have lost records; the next heartbeat above Tail reports them
	// Tail is the position of the last event in any partition. The gap goes into every partition after it.
	Tail replication.Position
}

// Conclusion is the outcome of a transaction. The assembler owns it; it is valid until the next Begin.
type Conclusion struct {
	Account *Account
	Verdict Verdict // Unclaimed for a transaction without a record of its own
	// Partitions: the transaction's heartbeat found other partitions than the one before.
	Partitions bool
	// Markers go into every partition after the transaction's events, before its records go into the log.
	Markers []*Marker
	// Records are the transaction's records of the log, in order: the number of each is its Seq, and the last one is its end. Without records the
	// transaction leaves nothing in the log.
	Records []Content
}

// NewAssembler makes an assembler for the WAL of source. A claim verifies if any of keys verifies it.
func NewAssembler(source Source, keys []schemas.Key, standing Standing) *Assembler {
	a := &Assembler{
		classifier: newClassifier(source, keys), names: names{}, tables: newTables(standing.Tables), standing: standing, unsettled: standing.Unsettled,
	}
	a.pairs = &moves{a.names, a.tables}
	return a
}

// Begin starts a transaction, and drops everything about the one before.
func (a *Assembler) Begin(tx *replication.Tx) {
	a.classifier.Begin(tx)
	a.tx, a.changes, a.waiting, a.beat, a.faulty = tx, 0, nil, nil, false
	a.taken, a.certain = 0, 0
}

// Change accepts the transaction's next change. It only keeps a delete that waits.
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
		} else if known.due != nil && finding.Op == Delete && finding.Cause == User {
			a.judgeUsers(change, &known)
		}
	}
	switch {
	case finding.Op == Delete && a.pairs.waits(change, finding):
		a.waiting = a.copied()
		return
	case a.certain > 0: // the stream may read while the caller hands that one on
		a.ready[a.certain] = &a.copied().event
	default:
		a.ready[a.certain] = &a.event
	}
	a.certain++
}

// Next returns the next complete event, nil if there is none. It is valid until the next call of any method. Only the first after a Change may
// have bytes of the change: the stream may read before the caller takes the second.
func (a *Assembler) Next() *Event {
	if a.taken == a.certain {
		a.taken, a.certain = 0, 0
		return nil
	}
	a.taken++
	return a.ready[a.taken-1]
}

// Commit ends the transaction. The record of a heartbeat contains the server's ancestry.
func (a *Assembler) Commit(tx *replication.Tx, ancestry replication.Ancestry) *Conclusion {
	a.release()
	account := a.classifier.Account()
	account.splitMoves()
	catalog := account.catalog.contents(tx)
	changed := changesRules(catalog)
	if changed {
		account.unsettle()
	}
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
		a.conclude(tx, ancestry, catalog)
	} else {
		o.Records = append(o.Records, catalog...)
	}
	a.unsettled = a.unsettled || changed
	return o
}

// copied copies the present event, which outlives its change.
func (a *Assembler) copied() *eventCopy {
	into := &a.spare[0]
	if a.certain > 0 && a.ready[0] == &into.event {
		into = &a.spare[1]
	}
	into.copy(&a.event)
	return into
}

// release completes the waiting event.
func (a *Assembler) release() {
	if a.waiting == nil {
		return
	}
	a.ready[a.certain] = &a.waiting.event
	a.certain++
	a.waiting = nil
}

// listen handles a heartbeat. Each must name the one before it, in the same transaction or not.
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

// conclude adds the records of the transaction's last heartbeat: coverage, or the gaps that it shows. A gap is at the heartbeat's position or, if the
// transaction has events, after all its changes. A heartbeat below the end of the topics shows no gap of theirs: a later one does.
func (a *Assembler) conclude(tx *replication.Tx, ancestry replication.Ancestry, catalog []Content) {
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
	a.unsettled = a.faulty || a.unsettled && a.beat.settles() != Settled
	// The heartbeat's record comes first: if only some records are in the log, it shows which transaction they belong to.
	if a.faulty {
		m := gap(ReasonPublications, "", last.intact())
		o.Records = append(o.Records, &MarkerContent{Marker: m, Heartbeat: a.beat, Ancestry: ancestry})
	} else {
		o.Records = append(o.Records, &CoverageContent{At: tx.CommitTime, Heartbeat: a.beat, Ancestry: ancestry})
	}
	o.Records = append(o.Records, coverTables(a.untold, tx, last.intact(), ancestry)...)
	o.Records = append(o.Records, catalog...)
	a.untold, *last = nil, LastBeat{Beat: a.beat, Reach: EndOf(tx)}
	if tx.Position(math.MaxUint32).Compare(a.standing.Tail) < 0 {
		return
	}
	// Records that the WAL does not show come last: after those that an auditor that knew nothing about them may have left in the log.
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

// names remembers the written names of tables, and of their roots.
type names map[uint32]named

type named struct {
	relation   *replication.Relation
	name, root string // root: see tables.rootOf
	partition  bool
	movesBy    []string // see CoveredTable
	due        *schemas.Due
	where      bool
}

func (n names) of(relation *replication.Relation, published tables) named {
	known := n[relation.OID]
	if known.relation != relation {
		known = named{relation: relation, name: tableName(relation)}
		known.root, known.partition = published.rootOf(relation, known.name)
		table := published[relation.OID]
		known.movesBy, known.due, known.where = table.MovesBy, table.Due, table.Where
		n[relation.OID] = known
	}
	return known
}
