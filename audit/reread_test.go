package audit_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"testing"

	"lapse/audit/evidence"
	"lapse/audit/store"
	"lapse/audit/verify"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

// routed is a route of the log, and where its record is.
type routed struct {
	*evidence.Route
	reach evidence.Reach
}

// logRoutes are the routes of the log, in its order. Their versions must be consecutive.
func (r *rig) logRoutes(t *testing.T) (all []routed) {
	t.Helper()
	for _, record := range r.read(t, r.settings.Log) {
		if record.Header("lapse-op") != "route" {
			continue
		}
		parsed, err := evidence.ParseLogRecord(record.Value)
		if err != nil {
			t.Fatal(err)
		}
		route, err := parsed.Routing()
		if err != nil {
			t.Fatalf("%v: %s", err, record.Value)
		}
		if len(all) > 0 && route.Version != all[len(all)-1].Version+1 {
			t.Errorf("route %d follows route %d", route.Version, all[len(all)-1].Version)
		}
		all = append(all, routed{route, parsed.Reach})
	}
	return all
}

// inForce is the route of transactions that commit at a position.
func inForce(routes []routed, at evidence.Reach) (found int) {
	for i, route := range routes {
		if !at.Before(route.reach) {
			found = i
		}
	}
	return found
}

// reread reads the write-ahead log from a slot up to its current end, with the routes that the log has and with package evidence
// alone. It returns what must be in each partition.
func (r *rig) reread(t *testing.T, slot string) map[string][][]byte {
	t.Helper()
	routes := r.logRoutes(t)
	var routers []*evidence.Router
	for _, route := range routes {
		key := evidencetest.HashKey
		if route.HashKey != key.Fingerprint() {
			key = otherHashKey
		}
		routers = append(routers, evidence.NewRouter(route.Route, key))
	}
	until := walEnd(t, r.db.Connect(t))
	r.db.Exec(t, beatNow) // so that something comes after
	stream := r.openStream(t, slot)
	from := evidence.Reach{History: 1, Timeline: 1, LSN: stream.StartedAt()}
	assembler := evidence.NewAssembler(routes[0].Source, []schemas.Key{evidencetest.TagKey}, evidence.Standing{
		Last: evidence.LastBeat{Reach: from}, Origin: from,
	})
	all, current := map[string][][]byte{}, (*evidence.Router)(nil)
	put := func(rec *schemas.Record) {
		place := fmt.Sprintf("%s/%d", rec.Topic, rec.Partition)
		all[place] = append(all[place], asBytes(rec))
	}
	take := func() {
		for e := assembler.Next(); e != nil; e = assembler.Next() {
			event := current.Route(e)
			for _, partition := range event.Partitions {
				put(&schemas.Record{
					Topic: event.Topic, Partition: partition, Key: event.Key, Value: event.Value, Headers: event.Headers, Time: e.Tx.CommitTime,
				})
			}
		}
	}
	for {
		m, err := stream.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		switch m.Kind {
		case replication.KindBegin:
			if m.Tx.CommitLSN >= until {
				return all
			}
			current = routers[inForce(routes, evidence.Reach{History: m.Tx.History, Timeline: m.Tx.Timeline, LSN: m.Tx.CommitLSN})]
			assembler.Begin(m.Tx)
		case replication.KindChange:
			assembler.Change(m.Change)
			take()
		case replication.KindCommit:
			markers := assembler.Commit(m.Tx, nil).Markers
			take()
			for _, marker := range markers {
				for _, rec := range current.RouteMarker(marker) {
					put(&rec)
				}
			}
		}
	}
}

// openStream opens a slot whose last reader may just have gone.
func (r *rig) openStream(t *testing.T, slot string) (stream *replication.Stream) {
	t.Helper()
	eventually(t, "the slot is free", func() bool {
		var err error
		stream, err = replication.Open(t.Context(), replication.StreamConfig{ConnString: r.settings.URL, Slot: slot})
		if err != nil && !errors.Is(err, replication.ErrSlotActive) {
			t.Fatal(err)
		}
		return err == nil
	})
	t.Cleanup(func() { _ = stream.Close(t.Context()) })
	stream.SetHistory(1)
	return stream
}

// isAsReread wants the topics to have what reading the write-ahead log again gives, byte for byte.
func (r *rig) isAsReread(t *testing.T, slot string) {
	t.Helper()
	want, got, records := r.reread(t, slot), dump(t, r.settings), 0
	for place := range got {
		if !bytes.HasPrefix([]byte(place), []byte(r.settings.Log)) && len(want[place]) == 0 {
			t.Errorf("%s has %d records, and none when it is read again", place, len(got[place]))
		}
	}
	for place, lines := range want {
		records += len(lines)
		if slices.EqualFunc(lines, got[place], bytes.Equal) {
			continue
		}
		at := 0
		for at < min(len(lines), len(got[place])) && bytes.Equal(lines[at], got[place][at]) {
			at++
		}
		t.Errorf("%s has %d records, and %d when it is read again; from number %d on they differ:\n%.2000s\n%.2000s", place, len(got[place]), len(lines), at,
			slices.Concat(got[place][at:min(at+1, len(got[place]))]...), slices.Concat(lines[at:min(at+1, len(lines))]...))
	}
	routes := r.logRoutes(t)
	t.Logf("%d records by %d routes", records, len(routes))
	for _, record := range r.read(t, r.settings.Log) {
		l, err := evidence.ParseLogRecord(record.Value)
		if err != nil {
			t.Fatal(err)
		}
		tx, is := l.Content.(*evidence.TransactionContent)
		if !is {
			continue
		}
		at := evidence.Reach{History: l.History, Timeline: l.Timeline, LSN: tx.CommitLSN}
		if l.RouteVersion != routes[inForce(routes, at)].Version {
			t.Errorf("the record of a transaction that commits at %s is of route %d, and %d is in force there", at, l.RouteVersion, routes[inForce(routes, at)].Version)
		}
	}
}

// copySlot makes another slot that is where this one is.
func (r *rig) copySlot(t *testing.T) (name string) {
	t.Helper()
	name = r.settings.Slot + "_again"
	r.db.Exec(t, fmt.Sprintf(`select pg_copy_logical_replication_slot('%s', '%s')`, r.settings.Slot, name))
	return name
}

// moveBack has the slot be where another one is, as after a crash of the server that had forgotten what was confirmed.
func (r *rig) moveBack(t *testing.T, to string) {
	t.Helper()
	conn := r.db.Connect(t)
	eventually(t, "the slot is dropped", func() bool {
		err := replication.DropSlot(t.Context(), conn, r.settings.Slot)
		if err != nil && !errors.Is(err, replication.ErrSlotActive) {
			t.Fatal(err)
		}
		return err == nil
	})
	r.db.Exec(t, fmt.Sprintf(`select pg_copy_logical_replication_slot('%s', '%s')`, to, r.settings.Slot))
}

// otherHashes are the hashes of numbers up to ids under otherHashKey, each with that under evidencetest.HashKey.
func otherHashes(ids int64) map[string]string {
	hashes := map[string]string{}
	for id := range ids + 1 {
		hashes[evidence.HashOf(otherHashKey, fmt.Sprint(id))] = hashOf(id)
	}
	return hashes
}

// verifyRouted is verify for topics of several routes: each row's event is there once, in order, under its cause, and what one
// transaction deleted is in one format. Nothing is wanted of rows of the table named. ids is the highest of those that may be hashed.
func (r *rig) verifyRouted(t *testing.T, want *expected, ids int64) {
	t.Helper()
	hashes := otherHashes(ids)
	client := r.client(t)
	defer client.Close()
	got, byTransaction, formats := map[string]string{}, map[string]int{}, map[string]string{}
	everywhere := map[string]map[replication.Position]bool{"truncate": {}, "drop": {}}
	order := verify.Order{System: r.settings.System, Broken: func(what string) { t.Error(what) }}
	each := func(topic string, partition int32) func(*schemas.Record, int64) error {
		return func(rec *schemas.Record, offset int64) error {
			order.Next(topic, partition, rec, offset)
			if rec.IsFence() {
				return nil
			}
			value, err := evidence.ParseEventValue(rec.Value)
			at, ok := evidence.EventPosition(rec)
			if err != nil || ok != nil || value.Position != at {
				t.Fatalf("an event that cannot be read (%v, %v): %.300s", err, ok, rec.Value)
			}
			lsn := at.Commit.String()
			if former := formats[lsn]; former != "" && former != value.Format {
				t.Errorf("transaction %s is in formats %s and %s", lsn, former, value.Format)
			}
			formats[lsn] = value.Format
			if positions := everywhere[rec.Header("lapse-op")]; positions != nil {
				if !positions[at] {
					byTransaction[lsn]++
				}
				positions[at] = true
				return nil
			}
			byTransaction[lsn]++
			row := rowKey(rec.Header("lapse-table"), textOfKey(rec.Key, hashes))
			if _, twice := got[row]; twice {
				t.Errorf("%s is there twice", row)
			}
			if got[row] = rec.Header("lapse-cause"); rec.Header("lapse-op") == "move" {
				got[row] += ", moved"
			}
			if rec.Header("lapse-table") != "public.named" && got[row] != want.causes[row] {
				t.Errorf("%s is %s, want %s", row, got[row], want.causes[row])
			}
			return nil
		}
	}
	for _, topic := range []string{r.settings.System, r.settings.User} {
		offsets, err := client.Offsets(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		for p, o := range offsets {
			if err := store.Each(t.Context(), client.Reader(topic, int32(p), o.First, o.End), each(topic, int32(p))); err != nil {
				t.Fatal(err)
			}
		}
	}
	for row := range want.causes {
		if got[row] == "" {
			t.Errorf("%s is missing", row)
		}
	}
	if len(everywhere["truncate"]) != want.truncates || len(everywhere["drop"]) != want.drops {
		t.Errorf("%d of %d truncates, %d of %d drops", len(everywhere["truncate"]), want.truncates, len(everywhere["drop"]), want.drops)
	}
	r.verifyLog(t, want, byTransaction)
}

var (
	numbers = regexp.MustCompile(`":(-?[0-9]+)([,}])`)
	hashed  = regexp.MustCompile(`hmac-sha256:[0-9a-f]+`)
)

// textOfKey is a record's key as the formats have it that know no numbers, with other hashes for some.
func textOfKey(key []byte, hashes map[string]string) string {
	return hashed.ReplaceAllStringFunc(numbers.ReplaceAllString(string(key), `":"$1"$2`), func(hash string) string {
		return cmp.Or(hashes[hash], hash)
	})
}
