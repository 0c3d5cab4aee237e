package audit_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"lapse/audit"
	"lapse/audit/tree"
	"lapse/audit/witness"
	"lapse/internal/evidencetest"
	"lapse/internal/kafkatest"
	"lapse/internal/witnesstest"
)

// shownTo has an auditor show its checkpoints to witnesses; all of them count.
func shownTo(of ...*witnesstest.Witness) func(*audit.Config) {
	return func(c *audit.Config) {
		for _, w := range of {
			c.Witnesses = append(c.Witnesses, witness.Witness{URL: w.URL, Key: w.Key})
		}
		c.Quorum = len(of)
	}
}

// newestCosigned is the newest checkpoint that the log has with cosignatures, sealed by the auditor, and whose they are.
func (r *rig) newestCosigned(t *testing.T, of ...*witnesstest.Witness) (origin string, size int64, by []string) {
	t.Helper()
	keys := make([]*tree.Witness, len(of))
	for i, w := range of {
		keys[i] = w.Key
	}
	for _, record := range kafkatest.ReadAllOn(t, r.broker, r.settings.Log) {
		signed, ok := tree.CosignedIn(record.Value)
		if !ok {
			continue
		}
		c, err := tree.Peek(signed)
		if err != nil {
			t.Fatal(err)
		}
		key, err := tree.NewKey(evidencetest.LogKey, c.Origin)
		if err != nil {
			t.Fatal(err)
		}
		if !key.HasCosigned(record.Value) || record.Header("lapse-op") != "fence" {
			t.Errorf("the record at offset %d is no cosigned checkpoint of the auditor's", record.Offset)
		}
		if _, err := tree.Open(signed, key.Verifier()); err != nil {
			t.Error(err)
		}
		found, err := tree.Cosignatures(signed, keys)
		if err != nil {
			t.Error(err)
		}
		origin, size, by = c.Origin, c.Size, nil
		for _, f := range found {
			by = append(by, f.By.Name())
		}
	}
	return origin, size, by
}

// The whole life of a log with witnesses: cosigned when a run ends, over restarts; one that was away has a proof from the log; and what
// fails holds nothing up.
func TestTheLogIsCosignedWhenARunEnds(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		one, two := witnesstest.New(t, "one.example.com"), witnesstest.New(t, "two.example.com")
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		leaves := 2
		for range 2 {
			r.deletes(t, w, want, 5)
			r.once(t, shownTo(one, two))
			leaves = r.wantSigned(t, leaves+5)
			if _, size, by := r.newestCosigned(t, one, two); size != int64(leaves) || len(by) != 2 {
				t.Errorf("of %d leaves %d are cosigned, by %v", leaves, size, by)
			}
		}
		two.Answer(func(out http.ResponseWriter, _ *http.Request) bool {
			out.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(out, "a proxy")
			return true
		})
		for range 2 {
			r.deletes(t, w, want, 5)
			r.once(t, shownTo(one, two))
			leaves = r.wantSigned(t, leaves+5)
			if _, size, by := r.newestCosigned(t, one, two); size != int64(leaves) || len(by) != 1 {
				t.Errorf("of %d leaves %d are cosigned, by %v", leaves, size, by)
			}
		}
		two.Answer(nil) // it is two checkpoints behind
		var origin string
		var size int64
		for range 3 { // a run that is told to end waits 2 s for its witnesses, which a busy machine may need for something else
			r.deletes(t, w, want, 1)
			running := r.start(t, shownTo(one, two))
			r.catchUp(t, w.conn)
			running.end(t)
			leaves = r.wantSigned(t, leaves+1)
			var by []string
			if origin, size, by = r.newestCosigned(t, one, two); size == int64(leaves) && len(by) == 2 {
				break
			}
		}
		if size != int64(leaves) || two.Seen(origin).N != size {
			t.Errorf("of %d leaves %d are cosigned, and %d by who was away", leaves, size, two.Seen(origin).N)
		}
		r.verify(t, want)

		// A witness that has seen more than there is says so while the auditor goes on.
		one.Forge(origin, tlog.Tree{N: size + 100})
		r.ends(t, witness.ErrCut, shownTo(one, two))
		r.once(t, shownTo(two))
	})
}

// A witness that never answers costs the end of a run some seconds, and nothing else.
func TestAWitnessThatHangsHoldsNothingUp(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := witnesstest.New(t, "one.example.com")
		w.Answer(func(_ http.ResponseWriter, req *http.Request) bool {
			_, _ = io.ReadAll(req.Body)
			<-req.Context().Done()
			return true
		})
		want, user := newExpected(), &writer{conn: r.db.Connect(t)}
		running := r.start(t, shownTo(w))
		r.deletes(t, user, want, 5)
		r.catchUp(t, user.conn)
		began := time.Now()
		running.end(t)
		if took := time.Since(began); took > 45*time.Second {
			t.Errorf("it took %s to stop", took)
		}
		r.wantSigned(t, 5)
		r.verify(t, want)
	})
}

// Somebody who may write into the log's topic copies its first checkpoints and cosignatures after its end. The next start begins there, and
// the witness has seen more: it is asked about the log as it is, and the audit goes on.
func TestACopiedCheckpointIsNoShorterLog(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		one := witnesstest.New(t, "one.example.com")
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		leaves := 2
		for range 3 {
			r.deletes(t, w, want, 5)
			r.once(t, shownTo(one))
			leaves = r.wantSigned(t, leaves+5)
		}
		var copied []kafkatest.Record
		for _, record := range r.readAll(t, r.settings.Log) {
			_, signed := tree.NoteIn(record.Value)
			_, cosigned := tree.CosignedIn(record.Value)
			if (signed || cosigned) && len(copied) < 2 {
				copied = append(copied, record)
			}
		}
		for range 3 {
			for _, record := range copied {
				r.appendToLog(t, record.Value, record.Headers)
			}
			r.deletes(t, w, want, 5)
			r.once(t, shownTo(one))
			origin, size, by := r.newestCosigned(t, one)
			if leaves += 5; size < int64(leaves) || len(by) != 1 || one.Seen(origin).N != size {
				t.Errorf("%d leaves are cosigned by %v, want %d at least", size, by, leaves)
			}
		}
		r.verify(t, want)
	})
}
