package audit_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"

	"lapse/audit/evidence"
	"lapse/audit/history"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// A writer into the log can forge a route, or a record that names a missing one. Nothing is published by it: the auditor
// names its place.
func TestAForgedRouteIsRefusedWithItsPlace(t *testing.T) {
	t.Parallel()
	route := func(from, to string) func(value string) string {
		return func(value string) string { return strings.Replace(value, from, to, 1) }
	}
	for name, forge := range map[string]func(value string) string{
		"other content than its fingerprint says":  route(`"partitions":3`, `"partitions":2`),
		"a format that there is not":               sealed(route(`"format":"spanner"`, `"format":"avro"`)),
		"more partitions than a topic may have":    sealed(route(`"partitions":3`, `"partitions":2000000000`)),
		"members that nobody knows":                sealed(route(`"topics":{`, `"tidy":true,"topics":{`)),
		"something that only a later version says": sealed(route(`"partitioner":"murmur2"`, `"partitioner":"crc32"`)),
		"no content at all":                        route(`"routing":`, `"forgotten":`),
		"no record of the route that it is of": func(value string) string {
			return route(`"kind":"route"`, `"kind":"coverage"`)(route(`"route_version":1,"route":"`, `"route_version":7,"route":"0000`)(value))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
				r := newRig(t, db, kafkatest.Broker(t))
				r.begun(t)
				offset := r.forge(t, forge)
				r.refused(t, history.ErrRouteUnreadable)
				if err := r.tryOnce(t); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s/0: ", r.settings.Log)) ||
					!strings.Contains(err.Error(), fmt.Sprintf("offset %d", offset)) {
					t.Errorf("got %v, want the offset %d", err, offset)
				}
			})
		})
	}
}

// sealed gives a forged record of a route the fingerprint of what it says.
func sealed(forge func(string) string) func(string) string {
	return func(value string) string {
		value = forge(value)
		_, content, _ := strings.Cut(value, `"routing":`)
		before, rest, _ := strings.Cut(value, `"route":"`)
		return before + `"route":"` + schemas.Fingerprint([]byte(strings.TrimSuffix(content, "}"))) + rest[32:]
	}
}

var reachedMember = regexp.MustCompile(`"reached":"[^"]*"`)

// forge puts a record after the log's end that is its route's but for a change, and returns its offset.
func (r *rig) forge(t *testing.T, change func(value string) string) (offset int64) {
	t.Helper()
	var route kafkatest.Record
	records := r.readAll(t, r.settings.Log)
	for _, record := range records {
		if record.Header("lapse-op") == "route" {
			route = record
		}
	}
	var headers []kafka.Header
	for _, h := range route.Headers {
		headers = append(headers, kafka.Header{Key: h.Name, Value: h.Value})
	}
	value := change(string(route.Value))
	if value == string(route.Value) {
		t.Fatalf("nothing is forged: %s", value)
	}
	r.echo(t, r.settings.Log, reachedMember.ReplaceAllString(value, `"reached":"F/0"`), headers...)
	return records[len(records)-1].Offset + 1
}

// The first auditor of a log died before it had written its route: nothing was routed by that one.
func TestALogThatHasNoRouteYetTakesAnotherOne(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		copied, want, w := r.copySlot(t), newExpected(), &writer{conn: r.db.Connect(t)}
		r.delete(t, want, w, 3)
		r.dies(t, theRoute)
		for _, c := range []chosen{{Format: evidence.FormatDebezium}, {}, {Format: evidence.FormatDebezium}} {
			r.settings.Chosen = c
			r.once(t)
			r.delete(t, want, w, 3)
		}
		r.once(t)
		r.routes = 3
		r.verifyRouted(t, want, 0)
		r.isAsReread(t, copied)
		if first := r.logRoutes(t)[0]; first.Version != 2 || first.Format != evidence.FormatDebezium {
			t.Errorf("the first route is %+v", first.Route)
		}
	})
}

// Copies of old records that come after a route's make halving miss it. It is found all the same.
func TestARouteIsFoundAmongCopiesOfOldRecords(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := r.begun(t)
		r.settings.Chosen.Partitions = 2 // so that the route's record is looked for at each start
		r.commit(t, w, 2, user)
		r.once(t)
		var old kafkatest.Record
		for _, record := range r.read(t, r.settings.Log) {
			if old.Value == nil && record.Header("lapse-op") == "transaction" {
				old = record
			}
		}
		var headers []kafka.Header
		for _, h := range old.Headers {
			headers = append(headers, kafka.Header{Key: h.Name, Value: h.Value})
		}
		for range 40 {
			r.echo(t, r.settings.Log, string(old.Value), headers...)
		}
		r.commit(t, w, 2, user)
		r.once(t)
		if routes := r.logRoutes(t); len(routes) != 2 {
			t.Errorf("%d routes, want 2: the second was not found", len(routes))
		}
	})
}
