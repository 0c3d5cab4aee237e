package evidence

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"lapse/schemas"
)

// Topic is a topic and the numbers of its partitions, which routing depends on.
type Topic struct {
	Name       string
	Partitions int32 // a row's events are in one of the first so many, by its key
	// Every is how many partitions get events that concern no single row: the most that any route of the log has had. 0 is as many as
	// Partitions. So such an event comes after a row's former events, in whichever partition they are.
	Every int32
}

// All is how many partitions the log's routes have used.
func (t Topic) All() int32 { return max(t.Partitions, t.Every) }

// Route is everything, apart from the WAL itself, that determines an event's topic, partition and bytes. It is a record in the log: the
// same WAL and routes give the same bytes.
//
// A log has one route after the other. Each is in force for the transactions that commit at or above its record's reach, up to the next
// one. One route applies to a whole transaction.
type Route struct {
	Version int // of the route in this log, from 1
	Source  Source
	System  Topic  // retention's own deletes
	User    Topic  // all other deletes, and unverified ones
	Log     Topic  // one partition
	Format  string // of events and markers, such as FormatSpanner
	HashKey string // fingerprint of the key that long key values are hashed with

	// PublicKey verifies the log's checkpoints, as C2SP's signed-note writes keys. Empty in routes of former versions, whose records have
	// no roots of rows.
	PublicKey string
	RowsKeys  []RowsKey // by month
}

// RowsKey is the key of a month. Transactions that commit in the month commit to their rows under it.
type RowsKey struct {
	Epoch       schemas.Epoch
	Fingerprint string // empty: the key was destroyed
}

// RowsKeysOf are the fingerprints of keys.
func RowsKeysOf(keys schemas.EpochKeys) (all []RowsKey) {
	for _, epoch := range keys.Epochs() {
		key := RowsKey{Epoch: epoch}
		if secret := keys[epoch]; secret != nil {
			key.Fingerprint = secret.Fingerprint()
		}
		all = append(all, key)
	}
	return all
}

// RowsKey is the key of a month; ok is false if the route names none, or if it was destroyed.
func (r *Route) RowsKey(epoch schemas.Epoch) (key RowsKey, ok bool) {
	at, is := r.rowsKeyAt(epoch)
	if is {
		key = r.RowsKeys[at]
	}
	return key, key.Fingerprint != ""
}

// Destroyed reports whether the key of a month was destroyed.
func (r *Route) Destroyed(epoch schemas.Epoch) bool {
	at, is := r.rowsKeyAt(epoch)
	return is && r.RowsKeys[at].Fingerprint == ""
}

func (r *Route) rowsKeyAt(epoch schemas.Epoch) (at int, is bool) {
	return slices.BinarySearchFunc(r.RowsKeys, epoch, func(k RowsKey, epoch schemas.Epoch) int { return strings.Compare(string(k.Epoch), string(epoch)) })
}

// OtherRowsKey is the first month that has another key than in former; ok is false if there is none.
func (r *Route) OtherRowsKey(former *Route) (epoch schemas.Epoch, ok bool) {
	for _, key := range r.RowsKeys {
		if before, is := former.RowsKey(key.Epoch); is && key.Fingerprint != "" && key.Fingerprint != before.Fingerprint {
			return key.Epoch, true
		}
	}
	return "", false
}

// keepRowsKeys adds the months of former that r does not know. A destroyed key stays destroyed, even if somebody has a copy.
func (r *Route) keepRowsKeys(former *Route) {
	for _, key := range former.RowsKeys {
		at, is := r.rowsKeyAt(key.Epoch)
		switch {
		case !is:
			r.RowsKeys = slices.Insert(r.RowsKeys, at, key)
		case key.Fingerprint == "":
			r.RowsKeys[at].Fingerprint = ""
		}
	}
}

// The parts of a route that have had only one value so far. They are written into the log for later auditors.
const (
	partitioner = "murmur2"
	eventValues = "keys"
)

// maxPartitions is more than a cluster allows for one topic. It bounds the memory.
const maxPartitions = 100_000

// Validate returns why events cannot be routed like this.
func (r *Route) Validate() error {
	switch {
	case r.System.Name == "" || r.User.Name == "" || r.Log.Name == "":
		return errors.New("name a topic for each of system, user and log: topics: in lapse.yaml")
	case r.System.Name == r.User.Name || r.System.Name == r.Log.Name || r.User.Name == r.Log.Name:
		return errors.New("system, user and log must be three topics")
	case r.System.Partitions < 1 || r.User.Partitions < 1:
		return errors.New("a topic needs at least one partition")
	case r.System.All() > maxPartitions || r.User.All() > maxPartitions:
		return fmt.Errorf("a topic may have %d partitions at most", maxPartitions)
	case r.Log.Partitions != 1:
		return fmt.Errorf("topic %s is the log and must have one partition, not %d", r.Log.Name, r.Log.Partitions)
	case formats[r.Format] == nil:
		return fmt.Errorf("format %q is none of %s", r.Format, strings.Join(formatNames(), ", "))
	case r.HashKey == "":
		return errors.New("name the key that long key values are hashed with")
	default:
		return nil
	}
}

// Follow makes r the route that follows former in its log, or former itself if they are the same, and reports whether they differ. Events
// that concern no single row still go into every partition that former used.
func (r *Route) Follow(former *Route) (changed bool) {
	r.System.Every, r.User.Every = max(r.System.All(), former.System.All()), max(r.User.All(), former.User.All())
	r.keepRowsKeys(former)
	r.Version = former.Version
	if r.Fingerprint() == former.Fingerprint() {
		return false
	}
	r.Version++
	return true
}

// Fingerprint identifies the route's content. Every record of the log has it, so that the last one shows the route of the events before it.
func (r *Route) Fingerprint() string { return schemas.Fingerprint(r.appendRouting(nil)) }

// appendRouting writes the route's content, without its version and place.
func (r *Route) appendRouting(dst []byte) []byte {
	dst = appendSource(append(dst, '{'), &r.Source, TextFormOf(r.Source.Encoding))
	dst = appendText(append(dst, `,"slot":`...), r.Source.Slot, UTF8Text)
	dst = append(dst, `,"topics":{"system":`...)
	dst = appendTopic(dst, r.System)
	dst = appendTopic(append(dst, `,"user":`...), r.User)
	dst = appendTopic(append(dst, `,"log":`...), r.Log)
	dst = appendText(append(dst, `},"partitioner":`...), partitioner, UTF8Text)
	dst = appendText(append(dst, `,"format":`...), r.Format, UTF8Text)
	dst = appendText(append(dst, `,"values":`...), eventValues, UTF8Text)
	dst = appendText(append(dst, `,"hash_key":`...), r.HashKey, UTF8Text)
	if r.PublicKey != "" {
		dst = appendText(append(dst, `,"public_key":`...), r.PublicKey, UTF8Text)
		dst = appendRowsKeys(append(dst, `,"rows_keys":`...), r.RowsKeys)
	}
	return append(appendUint(append(dst, `,"event_schema":`...), EventSchema), '}')
}

func appendTopic(dst []byte, t Topic) []byte {
	dst = appendText(append(dst, `{"name":`...), t.Name, UTF8Text)
	dst = appendUint(append(dst, `,"partitions":`...), uint64(t.Partitions))
	if t.Every > t.Partitions {
		dst = appendUint(append(dst, `,"every":`...), uint64(t.Every))
	}
	return append(dst, '}')
}

func appendRowsKeys(dst []byte, keys []RowsKey) []byte {
	dst = append(dst, '[')
	for i, key := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendText(append(dst, `{"epoch":`...), string(key.Epoch), UTF8Text)
		if key.Fingerprint == "" {
			dst = append(dst, `,"destroyed":true}`...)
		} else {
			dst = append(appendText(append(dst, `,"fingerprint":`...), key.Fingerprint, UTF8Text), '}')
		}
	}
	return append(dst, ']')
}
