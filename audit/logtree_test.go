package audit_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"lapse/audit"
	"lapse/audit/history"
	"lapse/audit/tree"
	"lapse/internal/evidencetest"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// logTree is what the log's topic has of its tree.
type logTree struct {
	leaves, checkpoints int
	signed              int64 // leaves that the newest checkpoint covers
}

// verifyTree wants the log's records to be the leaves of one tree, in the order of the topic, along one chain, and all checkpoints to be
// of that tree: the product's own export, and its own verification, say so.
func (r *rig) verifyTree(t *testing.T) (found logTree) {
	t.Helper()
	return r.verifyTreeOf(t, r.readAll(t, r.settings.Log))
}

// verifyTreeOf is verifyTree for records that were read.
func (r *rig) verifyTreeOf(t *testing.T, records []kafkatest.Record) (found logTree) {
	t.Helper()
	var notes [][]byte
	for i := range records {
		if note, ok := tree.NoteIn(records[i].Value); ok && records[i].Header("lapse-op") == "fence" {
			notes = append(notes, note)
			if records[i].Header("lapse-process") == "" {
				t.Errorf("the checkpoint at offset %d does not name its process", records[i].Offset)
			}
		}
	}
	if found.checkpoints = len(notes); found.checkpoints == 0 {
		t.Errorf("a log of %d records has no checkpoint", len(records))
		return found
	}
	newest, err := tree.Peek(notes[len(notes)-1])
	if err != nil {
		t.Fatal(err)
	}
	found.signed = newest.Size
	key, err := tree.NewKey(evidencetest.LogKey, newest.Origin)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	export, err := tree.NewExport(dir, notes[len(notes)-1])
	if err != nil {
		t.Fatal(err)
	}
	chain := tree.New(key)
	for i := range records {
		record := asRead(r.settings.Log, records[i])
		switch index, placed := tree.IndexOf(record); {
		case record.IsFence():
			if note, ok := tree.NoteIn(record.Value); ok && !bytes.Equal(note, notes[len(notes)-1]) {
				if err := export.Former(note); err != nil {
					t.Fatal(err)
				}
			}
		case !placed && record.Header("lapse-op") == "":
		case !chain.Follows(record):
			t.Errorf("the record at offset %d is no leaf after %d others: its index is %d", records[i].Offset, chain.Size(), index)
		default:
			if err := export.Add(record.Value); err != nil {
				t.Fatal(err)
			}
		}
	}
	found.leaves = int(chain.Size())
	if err := export.Close(); err != nil {
		t.Error(err)
		return found
	}
	if _, err := (&tree.Folder{Files: os.DirFS(dir), Verifier: key.Verifier()}).Verify(t.Context()); err != nil {
		t.Error(err)
	}
	return found
}

// deletes has a user delete rows, a transaction each.
func (r *rig) deletes(t *testing.T, w *writer, want *expected, transactions int) {
	t.Helper()
	for range transactions {
		ids, err := w.rows(t.Context(), 2)
		if err == nil {
			err = w.commit(t.Context(), want, user(ids))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// wantSigned wants a checkpoint over the whole log, which has so many leaves at least, and returns how many it has.
func (r *rig) wantSigned(t *testing.T, least int) int {
	t.Helper()
	found := r.verifyTree(t)
	if found.signed != int64(found.leaves) || found.leaves < least {
		t.Errorf("of %d leaves %d are signed; there should be %d", found.leaves, found.signed, least)
	}
	return found.leaves
}

// Whatever ends a run in order, its whole log is signed then; and each start goes on in the same tree.
func TestTheWholeLogIsSignedWhenARunEnds(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		leaves := 2
		for range 3 {
			r.deletes(t, w, want, 5)
			r.once(t)
			leaves = r.wantSigned(t, leaves+5)
		}
		running := r.start(t)
		r.deletes(t, w, want, 5)
		r.catchUp(t, w.conn)
		running.end(t)
		r.wantSigned(t, leaves+5)
		r.verify(t, want)
	})
}

// It signs each twenty seconds.
func TestARunningAuditorSignsTheLogThoughNobodyWrites(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		r.start(t)
		r.deletes(t, w, want, 1)
		r.catchUp(t, w.conn)
		began := time.Now()
		for found := r.verifyTree(t); found.signed != int64(found.leaves); found = r.verifyTree(t) {
			if time.Since(began) > time.Minute {
				t.Fatalf("after a minute %d of %d leaves are signed", found.signed, found.leaves)
			}
			pauseFor(t.Context(), 500*time.Millisecond)
		}
		r.verify(t, want)
	})
}

// appendToLog writes a record into the log as somebody does who may write there.
func (r *rig) appendToLog(t *testing.T, value []byte, headers []kafkatest.Header) {
	t.Helper()
	var all []kafka.Header
	for _, h := range headers {
		all = append(all, kafka.Header{Key: h.Name, Value: h.Value})
	}
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(r.settings.Broker), Transport: transport}
	resp, err := client.Produce(t.Context(), &kafka.ProduceRequest{
		Topic: r.settings.Log, RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes(value), Headers: all}),
	})
	if err == nil {
		err = resp.Error
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Somebody copies records of the log, and its checkpoints, after its end: none of them is signed, and the tree goes on where it was.
func TestWhatSomebodyPutsBehindTheLogIsNeverSigned(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		r.deletes(t, w, want, 5)
		r.once(t)
		r.deletes(t, w, want, 5)
		r.once(t)
		leaves := r.wantSigned(t, 12)
		for _, record := range r.readAll(t, r.settings.Log) {
			headers := record.Headers
			if _, is := tree.NoteIn(record.Value); !is && len(headers) > 0 && record.Header("lapse-op") == "fence" {
				continue // of the ends, which are another test's
			}
			r.appendToLog(t, record.Value, headers)
		}
		r.deletes(t, w, want, 5)
		r.once(t)
		var first []kafkatest.Record // without the copies
		seen := map[string]bool{}
		for _, record := range r.readAll(t, r.settings.Log) {
			if key := record.Header(tree.HeaderLeaf); key == "" || !seen[key] {
				seen[key] = true
				first = append(first, record)
			}
		}
		found := r.verifyTreeOf(t, first)
		if found.signed != int64(found.leaves) || found.leaves < leaves+5 {
			t.Errorf("of %d leaves %d are signed; there were %d", found.leaves, found.signed, leaves)
		}
	})
}

// A start that cannot go on along the chain says so, and publishes nothing.
func TestAnotherLogKeyOrNameIsRefused(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		r.begun(t)
		r.refused(t, history.ErrForeignLog, func(c *audit.Config) { c.LogKey = make(schemas.Key, schemas.MinKey) })
		r.refused(t, history.ErrForeignLog, func(c *audit.Config) { c.LogName = "app.example.com/lapse" })
		r.once(t)
		r.wantSigned(t, 3)
	})
}

var nextLogKey = schemas.Key(bytes.Repeat([]byte{9}, schemas.MinKey))

// rotatedKey is a configuration with the key that follows, and the one that the log is under beside it.
func rotatedKey(c *audit.Config) {
	c.LogKey, c.FormerLogKeys = nextLogKey, []schemas.Key{evidencetest.LogKey}
}

// verifyRotated wants the log to verify by each of its public keys alone, and says how many records hand it over.
func (r *rig) verifyRotated(t *testing.T) (handovers int) {
	t.Helper()
	records := r.readAll(t, r.settings.Log)
	for i := range records {
		if bytes.Contains(records[i].Value, []byte(`"rotation":"lapse log key\n`)) {
			handovers++
		}
	}
	var name string
	for i := range records {
		if signed, ok := tree.NoteIn(records[i].Value); ok {
			of, err := tree.Peek(signed)
			if err != nil {
				t.Fatal(err)
			}
			name = of.Origin
		}
	}
	for _, secret := range []schemas.Key{evidencetest.LogKey, nextLogKey} {
		public, err := tree.NewKey(secret, name)
		if err != nil {
			t.Fatal(err)
		}
		s := &tree.Stream{Place: r.settings.Log, Verifier: public.Verifier()}
		if _, err := s.Begin(nil); err != nil {
			t.Fatal(err)
		}
		for i := range records {
			record := asRead(r.settings.Log, records[i])
			if _, err := s.Record(record, int64(i), !record.IsFence()); err != nil {
				t.Fatal(err)
			}
		}
		found, err := s.End()
		if err != nil || found.Newest.Size != found.Records || found.Foreign != 0 {
			t.Errorf("by the public key %s: %+v, %v", public.Public(), found, err)
		}
	}
	return handovers
}

// Whichever record or answer the auditor dies before, the log is handed over once.
func TestALogIsHandedOverOnceWhereverTheAuditorDies(t *testing.T) {
	t.Parallel()
	for _, before := range []string{theRoute, afterRoute} {
		t.Run("before "+before, func(t *testing.T) {
			t.Parallel()
			pgtest.On(t, pgtest.Heavy(t, 18), func(t *testing.T, db *pgtest.DB) {
				r := newRig(t, db, kafkatest.Broker(t))
				r.routes = 2
				w := r.begun(t)
				r.settings.Chosen.NextLogKey = true
				r.dies(t, before)
				r.commit(t, w, 3, user)
				r.once(t, rotatedKey)
				if n := r.verifyRotated(t); n != 1 {
					t.Errorf("%d records hand the log over", n)
				}
			})
		})
	}
}

// The log goes on under another key from a record on that both have signed. Without the former key nothing goes on, until it is there.
func TestALogGoesOnUnderAnotherKey(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		r.routes = 2
		w := r.begun(t)
		r.refused(t, history.ErrForeignLog, func(c *audit.Config) { c.LogKey = nextLogKey })
		r.commit(t, w, 3, user)
		for range 2 {
			r.once(t, rotatedKey)
			r.commit(t, w, 3, system)
		}
		r.refused(t, history.ErrForeignLog) // the former one is none any more
		r.once(t, func(c *audit.Config) { c.LogKey = nextLogKey })
		if n := r.verifyRotated(t); n != 1 {
			t.Errorf("%d records hand the log over", n)
		}
	})
}

// The auditor that hands the log over dies when that is all it has written. Another one that stands by has the former key alone, or one that
// was made apart from the next: with either, the record is the end of a log that it knows, and nothing may follow it.
func TestWhoHasNotTheNextKeyDoesNotGoOnAfterTheHandover(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		r.routes = 2
		w := r.begun(t)
		r.settings.Chosen.NextLogKey = true
		r.dies(t, afterRoute)
		r.settings.Chosen.NextLogKey = false
		if log := r.readLog(t); log[len(log)-1].Kind != "route" {
			t.Fatalf("the log ends with a record of kind %s", log[len(log)-1].Kind)
		}
		r.refused(t, history.ErrForeignLog)
		r.refused(t, history.ErrForeignLog, func(c *audit.Config) {
			c.LogKey, c.FormerLogKeys = bytes.Repeat([]byte{10}, schemas.MinKey), []schemas.Key{evidencetest.LogKey}
		})
		r.commit(t, w, 3, user)
		r.once(t, rotatedKey)
		if n := r.verifyRotated(t); n != 1 {
			t.Errorf("%d records hand the log over", n)
		}
	})
}
