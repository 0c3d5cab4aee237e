package verify_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"lapse/audit/evidence"
	"lapse/audit/rows"
	"lapse/audit/verify"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

var committed = time.Date(2026, 11, 21, 10, 15, 30, 123456000, time.UTC)

// evidenceOf is a log, its events and their commitments, as the auditor would have written them.
type evidenceOf struct {
	log     []*evidence.LogRecord
	streams map[string][]schemas.Record // by name
	keys    schemas.EpochKeys
	lost    map[string]evidence.Reach
	cut     string // a stream that begins later than it did
}

const proofs = "proofs-0"

func routeOf(format string, keys schemas.EpochKeys) *evidence.Route {
	return &evidence.Route{
		Version: 1, Source: evidence.Source{SystemIdentifier: 7381000000000000001, DatabaseOID: 16384, Database: "app", Encoding: "UTF8", Slot: "lapse"},
		System: evidence.Topic{Name: "system", Partitions: 2}, User: evidence.Topic{Name: "user", Partitions: 2}, Log: evidence.Topic{Name: "log", Partitions: 1},
		Format: format, HashKey: evidencetest.HashKey.Fingerprint(), PublicKey: "log+key", RowsKeys: evidence.RowsKeysOf(keys),
	}
}

// write writes transactions of so many deletes each, system's and user's in turn.
func write(t interface{ Fatal(...any) }, format string, sizes ...int) *evidenceOf {
	return writeWith(t, evidencetest.RowsKeys(committed), format, sizes...)
}

func writeWith(t interface{ Fatal(...any) }, keys schemas.EpochKeys, format string, sizes ...int) *evidenceOf {
	route := routeOf(format, keys)
	e := &evidenceOf{streams: map[string][]schemas.Record{}, keys: keys, lost: map[string]evidence.Reach{}}
	router, committer := evidence.NewRouter(route, evidencetest.HashKey), rows.NewCommitter(route, keys)
	writer := evidence.NewLogWriter(route, evidencetest.HashKey, uuid.UUID{1}, nil)
	record := func(c evidence.Content, lsn schemas.LSN, seq uint32) {
		entry := writer.Write(c, evidence.LogPosition{Reach: evidence.Reach{History: 1, Timeline: 1, LSN: lsn}, Seq: seq}, false)
		r, err := evidence.ParseLogRecord(entry.Value)
		if err != nil {
			t.Fatal(err)
		}
		e.log = append(e.log, r)
	}
	store := func(chunk *rows.Chunk) {
		if chunk != nil {
			e.streams[proofs] = append(e.streams[proofs], schemas.Record{Value: bytes.Clone(chunk.Value), Headers: rows.Headers(&route.Source, chunk)})
		}
	}
	record(&evidence.OriginContent{Slot: "lapse", Consistent: 0x100}, 0x100, 0)
	record(&evidence.RouteContent{Route: route}, 0x100, 1)
	for i, size := range sizes {
		tx := &replication.Tx{CommitLSN: schemas.LSN(0x200 + 0x100*i), EndLSN: schemas.LSN(0x280 + 0x100*i), CommitTime: committed, XID: uint32(700 + i), Timeline: 1, History: 1}
		c := &evidence.TransactionContent{Committed: evidence.Committed{CommitLSN: tx.CommitLSN, CommitTime: tx.CommitTime, XID: tx.XID}, Verdict: evidence.Unclaimed}
		cause := []evidence.Cause{evidence.System, evidence.User}[i%2]
		committer.Begin()
		for n := range size {
			event := &evidence.Event{
				Tx: tx, Ordinal: uint32(1 + n), Op: evidence.Delete, Cause: cause, Table: []string{"public.a", "public.b"}[n%2], TableOID: uint32(1 + n%2),
				Keys: []evidence.Key{{Name: "id", Value: []byte(fmt.Sprint(1000*i + n))}},
			}
			if n == 3 && cause == evidence.User {
				event.Op, event.Keys = evidence.Truncate, nil
			}
			routed := router.Route(event)
			chunk, err := committer.Add(event, routed.Key)
			if err != nil {
				t.Fatal(err)
			}
			store(chunk)
			for _, p := range routed.Partitions {
				name := fmt.Sprintf("%s-%d", routed.Topic, p)
				rec := schemas.Record{Topic: routed.Topic, Partition: p, Key: bytes.Clone(routed.Key), Value: bytes.Clone(routed.Value), Time: committed}
				for _, h := range routed.Headers {
					rec.Headers = append(rec.Headers, schemas.Header{Key: h.Key, Value: bytes.Clone(h.Value)})
				}
				e.streams[name] = append(e.streams[name], rec)
			}
			at := slices.IndexFunc(c.Observed, func(t evidence.Tally) bool { return t.Table == event.Table && t.Op == event.Op })
			if at < 0 {
				at, c.Observed = len(c.Observed), append(c.Observed, evidence.Tally{OID: event.TableOID, Table: event.Table, Op: event.Op, Cause: cause})
			}
			c.Observed[at].Events++
		}
		root, last := committer.Commit()
		store(last)
		c.Rows = root
		record(c, tx.EndLSN, 0)
	}
	return e
}

// account compares all of it.
func (e *evidenceOf) account(withKeys bool) (*verify.Account, error) {
	a := &verify.Account{System: "system", Lost: e.lost}
	if withKeys {
		a.Keys = e.keys
	}
	for _, name := range []string{"system-0", "system-1", "user-0", "user-1", proofs} {
		all, line := e.streams[name], 0
		topic, _, _ := strings.Cut(name, "-")
		s := &verify.Stream{Name: name, Topic: topic, Cut: e.cut == name, Line: func() int { return line }, Next: func() (*schemas.Record, error) {
			if line == len(all) {
				return nil, io.EOF
			}
			line++
			return &all[line-1], nil
		}}
		if name == proofs {
			a.Proofs = s
		} else {
			a.Events = append(a.Events, s)
		}
	}
	for i, r := range e.log {
		if err := a.Record(int64(i), r); err != nil {
			return a, err
		}
	}
	return a, a.End()
}

func TestWhatTheAuditorWritesIsAccountedFor(t *testing.T) {
	t.Parallel()
	for _, format := range []string{evidence.FormatSpanner, evidence.FormatCloudEvents, evidence.FormatDebezium} {
		for _, keys := range []bool{true, false} {
			e := write(t, format, 4, 1, 7, 6, 0, 2500, 1, 5)
			a, err := e.account(keys)
			opened := 2524
			if !keys || format == evidence.FormatDebezium {
				opened = 0
			}
			if err != nil || a.Transactions != 8 || a.Rooted != 7 || a.Opened != opened || a.Forgotten+a.Unrooted+a.Beyond+a.TakenBack > 0 {
				t.Errorf("%s, keys %v: %v, %+v", format, keys, err, a)
			}
		}
	}
}

// The store has the end of what was written before a crash a second time, from some transaction on.
func TestChunksMayBeThereTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		e := write(rt, evidence.FormatSpanner, 2, 2100, 3, 5, 2, 2)
		all := e.streams[proofs]
		crash := rapid.IntRange(0, len(all)).Draw(rt, "crash")
		again := rapid.IntRange(0, crash).Draw(rt, "again from")
		e.streams[proofs] = append(slices.Clone(all[:crash]), all[again:]...)
		if a, err := e.account(true); err != nil || a.Rooted != 6 {
			rt.Fatalf("%v, %+v", err, a)
		}
	})
}

func TestWhateverIsChangedIsFoundInItsPlace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		e := write(rt, evidence.FormatSpanner, 4, 5, 1, 6, 3, 9)
		name := rapid.SampledFrom([]string{"system-0", "system-1", "user-0", "user-1", proofs}).Draw(rt, "stream")
		all := e.streams[name]
		if len(all) == 0 {
			return
		}
		keys := true
		i := rapid.IntRange(0, len(all)-1).Draw(rt, "record")
		what := rapid.SampledFrom([]string{"removed", "doubled", "elsewhere", "another key", "another table", "another cause", "a byte"}).Draw(rt, "what")
		rec := all[i]
		switch what {
		case "removed":
			e.streams[name] = slices.Delete(slices.Clone(all), i, i+1)
			keys = rapid.Bool().Draw(rt, "keys") // it is found without them
		case "doubled":
			if name == proofs || rec.Header(schemas.HeaderOp) == "truncate" {
				return // the first is allowed; the second is in another partition too, and Order finds it
			}
			e.streams[name] = slices.Insert(slices.Clone(all), i, rec)
			keys = rapid.Bool().Draw(rt, "keys")
		case "elsewhere": // somebody adds an event of a transaction that the log does not have, in its order
			if name == proofs {
				return
			}
			other := write(rt, evidence.FormatSpanner, 1).streams["system-0"]
			other = append(other, write(rt, evidence.FormatSpanner, 1).streams["system-1"]...)
			added := other[0]
			added.Headers = slices.Clone(added.Headers)
			for h := range added.Headers {
				if added.Headers[h].Key == evidence.HeaderLSN {
					added.Headers[h].Value = []byte("0000000000000210")
				}
			}
			at := 0
			for at < len(all) && all[at].Header(evidence.HeaderLSN) < "0000000000000210" {
				at++
			}
			e.streams[name] = slices.Insert(slices.Clone(all), at, added)
			keys = rapid.Bool().Draw(rt, "keys")
		case "another key":
			if name == proofs || rec.Header(schemas.HeaderOp) == "truncate" {
				return
			}
			former := string(rec.Key)
			rec.Key = []byte(`{"id":"999999"}`)
			rec.Value = []byte(strings.Replace(string(rec.Value), former, string(rec.Key), 1))
			e.streams[name] = slices.Replace(slices.Clone(all), i, i+1, rec)
		case "another table", "another cause":
			if name == proofs {
				return
			}
			header, from, to := evidence.HeaderTable, rec.Header(evidence.HeaderTable), "public.c"
			if what == "another cause" {
				header, from, to = evidence.HeaderCause, rec.Header(evidence.HeaderCause), "unverified"
			}
			rec.Headers = slices.Clone(rec.Headers)
			for h := range rec.Headers {
				if rec.Headers[h].Key == header {
					rec.Headers[h].Value = []byte(to)
				}
			}
			rec.Value = []byte(strings.Replace(string(rec.Value), `"`+from+`"`, `"`+to+`"`, 1))
			if rec.Header(schemas.HeaderOp) == "truncate" {
				return // it is in another partition too
			}
			e.streams[name] = slices.Replace(slices.Clone(all), i, i+1, rec)
			keys = rapid.Bool().Draw(rt, "keys")
		case "a byte":
			if name != proofs {
				return // above
			}
			rec.Value = bytes.Clone(rec.Value)
			rec.Value[rapid.IntRange(0, len(rec.Value)-1).Draw(rt, "byte")] ^= byte(rapid.IntRange(1, 255).Draw(rt, "mask"))
			e.streams[name] = slices.Replace(slices.Clone(all), i, i+1, rec)
			keys = rapid.Bool().Draw(rt, "keys")
		}
		if what == "removed" && rec.Header(schemas.HeaderOp) == "truncate" {
			return // it is in another partition too
		}
		a, err := e.account(keys)
		var found *verify.Discrepancy
		if !errors.As(err, &found) {
			rt.Fatalf("%s: record %d %s: %v, %+v", name, i, what, err, a)
		}
		if found.Name == "" && found.Leaf < 0 {
			rt.Fatalf("%s: record %d %s: it says nowhere: %v", name, i, what, found)
		}
	})
}

// Only a month whose key was destroyed may lack its root, and the result says so.
func TestARecordWithoutARootIsAFaultUnlessItsMonthsKeyWasDestroyed(t *testing.T) {
	t.Parallel()
	e := writeWith(t, schemas.EpochKeys{schemas.EpochOf(committed): nil}, evidence.FormatSpanner, 4, 0, 7)
	if a, err := e.account(false); err != nil || a.Rootless != 2 || a.Transactions != 3 || a.Rooted != 0 {
		t.Errorf("%v, %+v", err, a)
	}
	e = write(t, evidence.FormatSpanner, 4, 0, 7)
	e.log[4].Content.(*evidence.TransactionContent).Rows, e.streams[proofs] = nil, e.streams[proofs][:1]
	a, err := e.account(false)
	var found *verify.Discrepancy
	if !errors.As(err, &found) || found.Leaf != 4 {
		t.Errorf("a root is gone: %v, %+v", err, a)
	}
}

func TestWhatRetentionAndLossesTookIsNotAFault(t *testing.T) {
	t.Parallel()
	e := write(t, evidence.FormatSpanner, 4, 1, 7, 1, 3, 1)
	e.cut, e.streams["system-0"] = "system-0", e.streams["system-0"][3:]
	a, err := e.account(true)
	if err != nil || a.Forgotten == 0 || a.Transactions+a.Forgotten != 6 {
		t.Errorf("events gone by retention: %v, %+v", err, a)
	}
	e = write(t, evidence.FormatSpanner, 4, 1, 7, 1, 3, 1)
	e.streams["system-0"], e.streams["system-1"] = nil, nil
	if _, err = e.account(true); err == nil {
		t.Error("a topic is empty, and nobody says so")
	}
	e.lost["system"] = evidence.Reach{History: 1, Timeline: 1, LSN: 0x10000}
	if a, err = e.account(true); err != nil || a.Forgotten != 3 {
		t.Errorf("events of a topic that is lost: %v, %+v", err, a)
	}
	e = write(t, evidence.FormatSpanner, 4, 1, 7, 1, 3, 1)
	e.cut, e.streams[proofs] = proofs, e.streams[proofs][2:]
	if a, err = e.account(false); err != nil || a.Unrooted != 2 {
		t.Errorf("commitments gone by retention: %v, %+v", err, a)
	}
	if a, err = e.account(true); err != nil || a.Unrooted != 0 || a.Rooted != 6 {
		t.Errorf("with the keys they are made again: %v, %+v", err, a)
	}
}
