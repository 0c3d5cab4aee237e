package evidence_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

func headersOf(r *evidence.Routed) []string {
	var out []string
	for _, h := range r.Headers {
		out = append(out, h.Key+"="+string(h.Value))
	}
	return out
}

func TestHeadersRepeatWhatAFilterNeeds(t *testing.T) {
	t.Parallel()
	events := exampleEvents(t)
	place := []string{"lapse-sysid=7381000000000000001", "lapse-db=16384", "lapse-history=1", "lapse-tli=1", "lapse-schema=1"}
	roots := map[string]string{"event-root": "public.sessions", "event-drop": "public.sessions", "event-move": "public.sessions"}
	for _, test := range []struct {
		event string
		want  []string
	}{
		{"event-root", []string{
			"lapse-cause=user", "lapse-op=delete", "lapse-policy=", "lapse-table=public.sessions_2026_09",
			"lapse-cascade=false", "lapse-run=", "lapse-xid=745", "lapse-lsn=00000000019C2A40", "lapse-seq=00000000",
		}},
		{"event-cascade", []string{
			"lapse-cause=system", "lapse-op=delete", "lapse-policy=sessions-30d", "lapse-table=public.session_notes",
			"lapse-cascade=true", "lapse-run=0198f1d0-0000-7000-8000-000000000002", "lapse-xid=745",
			"lapse-lsn=00000000019C2A40", "lapse-seq=00000002",
		}},
		{"event-move", []string{
			"lapse-cause=user", "lapse-op=move", "lapse-policy=", "lapse-table=public.sessions_2026_09",
			"lapse-cascade=false", "lapse-run=", "lapse-xid=745", "lapse-lsn=00000000019C2A40", "lapse-seq=00000000",
		}},
		{"event-unverified", []string{
			"lapse-cause=unverified", "lapse-op=delete", "lapse-policy=", "lapse-table=public.sessions",
			"lapse-cascade=false", "lapse-run=", "lapse-xid=745", "lapse-lsn=00000000019C2A40", "lapse-seq=00000001",
		}},
		{"event-drop", []string{
			"lapse-cause=system", "lapse-op=drop", "lapse-policy=sessions-30d", "lapse-table=public.sessions_2026_09",
			"lapse-cascade=false", "lapse-run=0198f1d0-0000-7000-8000-000000000002", "lapse-xid=745", "lapse-lsn=00000000019C2A40", "lapse-seq=00000000",
		}},
		{"event-truncate", []string{
			"lapse-cause=user", "lapse-op=truncate", "lapse-policy=", "lapse-table=public.sessions",
			"lapse-cascade=false", "lapse-run=", "lapse-xid=745", "lapse-lsn=00000000019C2A40", "lapse-seq=00000000",
		}},
	} {
		if got, want := headersOf(events[test.event]), slices.Concat(test.want, place, []string{"lapse-root=" + roots[test.event]}); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", test.event, got, want)
		}
	}
}

func TestOnlySystemDeletesGoToTheSystemTopic(t *testing.T) {
	t.Parallel()
	for name, routed := range exampleEvents(t) {
		if name == "event-gap" || name == "event-rewind" {
			continue // they go to both
		}
		want := exampleRoute.User.Name
		if slices.Contains([]string{"event-system", "event-cascade", "event-soft", "event-drop", "event-columns", "event-notdue"}, name) {
			want = exampleRoute.System.Name
		}
		if routed.Topic != want {
			t.Errorf("%s goes to %s, want %s", name, routed.Topic, want)
		}
	}
}

func TestATruncateGoesToEveryPartitionOfTheUserTopic(t *testing.T) {
	t.Parallel()
	routed := exampleEvents(t)["event-truncate"]
	if want := []int32{0, 1, 2, 3, 4, 5}; !slices.Equal(routed.Partitions, want) {
		t.Errorf("partitions %v, want %v", routed.Partitions, want)
	}
	if got := string(routed.Key); got != "{}" {
		t.Errorf("key %s of an event that names no row", got)
	}
}

var allFormats = []string{evidence.FormatSpanner, evidence.FormatCloudEvents, evidence.FormatDebezium}

// A row's partition must never change: murmur2 of the key, as Java's DefaultPartitioner has it. The numbers come from
// org.apache.kafka.common.utils.Utils.murmur2 over the same bytes.
func TestTheSameKeyIsAlwaysInTheSamePartition(t *testing.T) {
	t.Parallel()
	seen := map[int32]bool{}
	for id := range 200 {
		first := eventOf(t, &exampleRoute, exampleTx(), del(target, id))
		key, partition := bytes.Clone(first.Key), first.Partitions[0]
		second := eventOf(t, &exampleRoute, exampleTx(), signed(exampleClaim()), del(target, id))
		if !bytes.Equal(key, second.Key) || partition != second.Partitions[0] {
			t.Fatalf("row %d is in partition %d as a user's delete and in %d as a system's", id, partition, second.Partitions[0])
		}
		seen[partition] = true
	}
	if len(seen) != 6 {
		t.Errorf("200 rows are in %d of 6 partitions", len(seen))
	}
}

// One router that has routed much else, and a fresh one, must write the same bytes: a router has memory only to save
// memory.
func TestRoutingDependsOnTheEventAndTheRouteAlone(t *testing.T) {
	t.Parallel()
	used := map[string]*evidence.Router{}
	for _, format := range allFormats {
		used[format] = evidence.NewRouter(routeOf(format), evidencetest.HashKey)
	}
	rapid.Check(t, func(t *rapid.T) {
		tx := exampleTx()
		tx.CommitLSN = schemas.LSN(rapid.Uint64().Draw(t, "commit"))
		tx.XID = rapid.Uint32().Draw(t, "xid")
		tx.Origin = rapid.String().Draw(t, "origin")
		claim := exampleClaim()
		e := evidence.Event{
			Tx: tx, Ordinal: rapid.Uint32().Draw(t, "ordinal"),
			Op:       rapid.SampledFrom([]evidence.Op{evidence.Delete, evidence.Truncate}).Draw(t, "op"),
			Cause:    rapid.SampledFrom([]evidence.Cause{evidence.System, evidence.User, evidence.Unverified}).Draw(t, "cause"),
			TableOID: rapid.Uint32().Draw(t, "oid"), Table: rapid.String().Draw(t, "table"),
		}
		if e.Cause == evidence.System {
			e.Claim = &claim
		}
		if e.Op == evidence.Delete {
			for i, value := range rapid.SliceOfN(rapid.SliceOf(rapid.Byte()), 1, 3).Draw(t, "keys") {
				column := &replication.Column{TypeOID: rapid.SampledFrom([]uint32{17, 20, 25, 1009, 1186}).Draw(t, "type"), TypeMod: -1}
				e.Keys = append(e.Keys, evidence.Key{Name: fmt.Sprint("k", i), Value: value, Column: column})
			}
		}
		marked := rapid.Bool().Draw(t, "a marker between two that are alike")
		for _, format := range allFormats {
			if marked {
				used[format].Route(&e)
				used[format].RouteMarker(exampleMarker(evidence.Gap))
				e.Ordinal++
			}
			a := describe(used[format].Route(&e))
			if b := describe(evidence.NewRouter(routeOf(format), evidencetest.HashKey).Route(&e)); a != b {
				t.Fatalf("%s: a used router wrote\n%s\na fresh one\n%s", format, a, b)
			}
		}
	})
}

func describe(r *evidence.Routed) string {
	return fmt.Sprint(r.Topic, r.Partitions, string(r.Key), string(r.Value), headersOf(r))
}

func TestRoutesThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	if err := exampleRoute.Validate(); err != nil {
		t.Errorf("the example is refused: %v", err)
	}
	for name, fix := range map[string]func(*evidence.Route){
		"no user topic":                  func(r *evidence.Route) { r.User.Name = "" },
		"user and system are one":        func(r *evidence.Route) { r.User.Name = r.System.Name },
		"log and user are one":           func(r *evidence.Route) { r.Log.Name = r.User.Name },
		"a topic without partitions":     func(r *evidence.Route) { r.System.Partitions = 0 },
		"a log of more than one":         func(r *evidence.Route) { r.Log.Partitions = 2 },
		"a log with an unknown number":   func(r *evidence.Route) { r.Log.Partitions = 0 },
		"a format that is not known":     func(r *evidence.Route) { r.Format = "avro" },
		"no format":                      func(r *evidence.Route) { r.Format = "" },
		"no hash key":                    func(r *evidence.Route) { r.HashKey = "" },
		"a topic of negative partitions": func(r *evidence.Route) { r.User.Partitions = -1 },
	} {
		route := exampleRoute
		fix(&route)
		if route.Validate() == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestWhateverChangesBytesChangesTheRoutesFingerprint(t *testing.T) {
	t.Parallel()
	fixes := map[string]func(*evidence.Route){
		"system topic": func(r *evidence.Route) { r.System.Name += "x" },
		"partitions":   func(r *evidence.Route) { r.User.Partitions++ },
		"log":          func(r *evidence.Route) { r.Log.Name += "x" },
		"database":     func(r *evidence.Route) { r.Source.Database += "x" },
		"oid":          func(r *evidence.Route) { r.Source.DatabaseOID++ },
		"system":       func(r *evidence.Route) { r.Source.SystemIdentifier++ },
		"encoding":     func(r *evidence.Route) { r.Source.Encoding = "SQL_ASCII" },
		"slot":         func(r *evidence.Route) { r.Source.Slot += "x" },
		"hash key":     func(r *evidence.Route) { r.HashKey += "x" },
	}
	seen := map[string]string{exampleRoute.Fingerprint(): "the example"}
	for name, fix := range fixes {
		route := exampleRoute
		fix(&route)
		if other, ok := seen[route.Fingerprint()]; ok {
			t.Errorf("changing %s gives the fingerprint of %s", name, other)
		}
		seen[route.Fingerprint()] = name
	}
}

func BenchmarkAssembleAndRoute(b *testing.B) {
	next := steadily()
	var bytes int64
	b.ReportAllocs()
	for b.Loop() {
		bytes += int64(len(next().Value))
	}
	b.ReportMetric(float64(bytes)/float64(b.N), "bytes/event")
}

func TestADeleteCostsNoMemory(t *testing.T) {
	next := steadily()
	if n := testing.AllocsPerRun(1000, func() { next() }); n != 0 {
		t.Errorf("a delete allocates %v times from the stream to the record", n)
	}
}

// steadily assembles and routes one delete after another, in one transaction.
func steadily() func() *evidence.Routed {
	a := evidence.NewAssembler(source, []schemas.Key{evidencetest.TagKey}, evidence.Standing{})
	router := evidence.NewRouter(&exampleRoute, evidencetest.HashKey)
	a.Begin(exampleTx())
	a.Change(signed(exampleClaim()))
	drain(a)
	change := del(target, 4711000)
	return func() *evidence.Routed {
		change.Ordinal++
		a.Change(change)
		routed := router.Route(a.Next())
		a.Next()
		return routed
	}
}
