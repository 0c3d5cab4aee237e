package history

import (
	"lapse/audit/evidence"
	"lapse/audit/store"
	"lapse/replication"
	"lapse/schemas"
)

// positionOf reads an event's position from its headers.
func positionOf(rec *schemas.Record, source *evidence.Source) (replication.Position, error) {
	position, err := evidence.EventPosition(rec)
	if err != nil {
		return position, err
	}
	if !source.Of(rec) {
		return replication.Position{}, Refuse(ErrForeignTopic, "%s/%d: the last event is of database %q of system %q; this one is %d of %d",
			"nobody else may write there: name topics that this database has for itself (topics)", rec.Topic, rec.Partition,
			rec.Header(evidence.HeaderDatabase), rec.Header(evidence.HeaderSystem), source.DatabaseOID, source.SystemIdentifier)
	}
	return position, nil
}

// Positions returns the positions of the last events, by topic and partition.
func (p *Topics) Positions() map[string][]replication.Position {
	positions := map[string][]replication.Position{}
	for topic, tails := range p.tails {
		positions[topic] = make([]replication.Position, len(tails))
		for i := range tails {
			positions[topic][i] = tails[i].position
		}
	}
	return positions
}

// ForgetRecords frees the records that were only needed for comparison.
func (p *Topics) ForgetRecords() {
	for _, tails := range p.tails {
		for i := range tails {
			tails[i].record = schemas.Record{}
		}
	}
}

// LastOfAll returns the highest position of an event.
func (p *Topics) LastOfAll() (last replication.Position) {
	for _, tails := range p.tails {
		for i := range tails {
			if at := tails[i].position; last.Compare(at) < 0 {
				last = at
			}
		}
	}
	return last
}

// Fenced is a publisher that has taken the topics over. Last returns the newest of our records in a partition below its fence.
type Fenced interface {
	Last(topic string, partition int32) []store.Record
}

// ReadFenced reads the topics below the publisher's fences, where nothing changes any more.
func ReadFenced(p Fenced, checked *Topics) *Topics {
	found := &Topics{lastOffset: -1, tails: map[string][]tail{}}
	for _, topic := range checked.Events() {
		tails := make([]tail, topic.All())
		for partition := range topic.All() {
			tails[partition].offset = -1
			if last := p.Last(topic.Name, partition); len(last) > 0 {
				tails[partition].offset = last[len(last)-1].Offset
			}
		}
		found.tails[topic.Name] = tails
	}
	if last := p.Last(checked.route.Log.Name, 0); len(last) > 0 {
		found.lastOffset = last[len(last)-1].Offset
	}
	return found
}
