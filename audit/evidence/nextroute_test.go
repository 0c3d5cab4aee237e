package evidence_test

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/schemas"
)

// following is a route that follows the example: fewer partitions, another format and another hash key.
func following() *evidence.Route {
	r := exampleRoute
	r.System.Partitions, r.User.Partitions, r.Format = 4, 4, evidence.FormatDebezium
	r.HashKey = "e0e0e0e0a04942cc4f8e0fe0b302606d"
	r.Follow(&exampleRoute)
	return &r
}

// routeRecord is the record of a route after one that reaches a position.
func routeRecord(route *evidence.Route) []byte {
	return recordOf(&evidence.RouteContent{Route: route, At: commitTime}, route)
}

func recordOf(content *evidence.RouteContent, route *evidence.Route) []byte {
	beat := exampleHeartbeat()
	former := *beat
	former.Nonce = beat.Former
	writer := evidence.NewLogWriter(&exampleRoute, evidencetest.HashKey, uuid.MustParse("0198f1d0-0000-7000-8000-0000000000aa"), &former)
	writer.SetRoute(route, evidencetest.HashKey)
	at := evidence.LogPosition{Reach: evidence.Reach{History: 1, Timeline: 1, LSN: 0x19C2B00}, Seq: 1}
	return writer.Write(content, at, false).Value
}

// exampleRotation is the note of a change of the log's key.
const exampleRotation = "lapse log key\nof app.example.com/lapse\napp.example.com/lapse+1f2e3d4c+AWVhc3R=\napp.example.com/lapse+4c3d2e1f+AW5leHQ=\n\n" +
	"— app.example.com/lapse Hy49TGVhc3Q=\n— app.example.com/lapse TD0uH25leHQ=\n"

var rotationRecord = recordOf(&evidence.RouteContent{Route: following(), At: commitTime, Rotation: exampleRotation}, following())

func TestARouteIsReadBackFromItsRecord(t *testing.T) {
	t.Parallel()
	golden(t, "log-route", "log-route-next", routeRecord(following()))
	golden(t, "log-route", "log-route-rotation", rotationRecord)
	record, err := evidence.ParseLogRecord(rotationRecord)
	if err != nil {
		t.Fatal(err)
	}
	if c := record.Content.(*evidence.RouteContent); c.Rotation != exampleRotation {
		t.Errorf("the change of the log's key is read as %q", c.Rotation)
	}
	raw := *following()
	raw.Source.Database, raw.Source.Encoding = "caf\xe9 \uef81", "SQL_ASCII"
	for name, route := range map[string]*evidence.Route{"the first": &exampleRoute, "the next": following(), "of a database in no encoding": &raw} {
		record, err := evidence.ParseLogRecord(routeRecord(route))
		if err != nil {
			t.Fatal(err)
		}
		if record.Route != route.Fingerprint() || record.RouteVersion != route.Version {
			t.Errorf("%s: the record is of route %d, %s", name, record.RouteVersion, record.Route)
		}
		if read, err := record.Routing(); err != nil || !reflect.DeepEqual(read, route) {
			t.Errorf("%s: read %+v (%v), want %+v", name, read, err, route)
		}
	}
}

func TestARecordThatIsNotWhatARouteSaysIsRefused(t *testing.T) {
	t.Parallel()
	value := string(routeRecord(following()))
	sealed := func(from, to string) string {
		head, content, _ := strings.Cut(strings.Replace(value, from, to, 1), `"routing":`)
		return strings.Replace(head, following().Fingerprint(), schemas.Fingerprint([]byte(strings.TrimSuffix(content, "}"))), 1) + `"routing":` + content
	}
	if record, err := evidence.ParseLogRecord([]byte(sealed("nothing", "nothing"))); err != nil {
		t.Fatal(err)
	} else if _, err := record.Routing(); err != nil {
		t.Fatal(err)
	}
	for name, forged := range map[string]string{
		"other content":         strings.Replace(value, `"partitions":4`, `"partitions":3`, 1),
		"no content":            strings.Replace(value, `"routing":`, `"forgotten":`, 1),
		"another kind":          strings.Replace(value, `"kind":"route"`, `"kind":"coverage"`, 1),
		"another fingerprint":   strings.Replace(value, `"route":"`, `"route":"0`, 1),
		"no version":            strings.Replace(value, `"route_version":2`, `"route_version":0`, 1),
		"another database":      strings.Replace(value, `"database_oid":16384`, `"database_oid":16385`, 1),
		"an unknown format":     sealed(`"format":"debezium"`, `"format":"avro"`),
		"no partitions":         sealed(`"partitions":4`, `"partitions":0`),
		"too many partitions":   sealed(`"partitions":4,"every":6`, `"partitions":4,"every":100001`),
		"another partitioner":   sealed(`"partitioner":"murmur2"`, `"partitioner":"crc32"`),
		"other values":          sealed(`"values":"keys"`, `"values":"rows"`),
		"another schema":        sealed(`"event_schema":1`, `"event_schema":2`),
		"unknown members":       sealed(`"topics":{`, `"tidy":true,"topics":{`),
		"an every that is less": sealed(`"partitions":4,"every":6`, `"partitions":4,"every":3`),
		"a list":                sealed(`"routing":{`, `"routing":[{`),
	} {
		record, err := evidence.ParseLogRecord([]byte(forged))
		if err != nil {
			continue // not even a record
		}
		if route, err := record.Routing(); err == nil {
			t.Errorf("%s is taken: %+v", name, route)
		}
	}
}

func TestARouteThatFollowsGoesOnWithEveryPartition(t *testing.T) {
	t.Parallel()
	same := exampleRoute
	if same.Version = 7; same.Follow(&exampleRoute) || same.Version != 1 || same.Fingerprint() != exampleRoute.Fingerprint() {
		t.Errorf("a route that differs in nothing follows as %+v", same)
	}
	next := following()
	if next.Version != 2 || next.System.All() != 6 || next.User.All() != 6 {
		t.Errorf("it follows as %+v", next)
	}
	wide := exampleRoute
	wide.User.Partitions = 9
	if !wide.Follow(next) || wide.Version != 3 || wide.User.All() != 9 || wide.System.All() != 6 {
		t.Errorf("the one after it follows as %+v", wide)
	}
	back := exampleRoute
	if !back.Follow(&wide) || back.Version != 4 || back.User.All() != 9 || back.Fingerprint() == exampleRoute.Fingerprint() {
		t.Errorf("the one that there was before follows as %+v", back)
	}

	if got := slices.Clone(eventOf(t, next, exampleTx(), truncate(target)).Partitions); !slices.Equal(got, []int32{0, 1, 2, 3, 4, 5}) {
		t.Errorf("a truncate goes to %v", got)
	}
	if n := len(evidence.NewRouter(next, evidencetest.HashKey).RouteMarker(exampleMarker(evidence.Gap))); n != 12 {
		t.Errorf("a gap goes to %d partitions of two topics", n)
	}
	for id := range 100 {
		if p := eventOf(t, next, exampleTx(), del(target, id)).Partitions; len(p) != 1 || p[0] > 3 {
			t.Fatalf("row %d is in %v", id, p)
		}
	}
}

// A record that is written after another route's names the one that is in force.
func TestRecordsAreOfTheRouteThatIsInForce(t *testing.T) {
	t.Parallel()
	writer := evidence.NewLogWriter(&exampleRoute, evidencetest.HashKey, uuid.New(), nil)
	content := &evidence.CoverageContent{At: commitTime, Ancestry: exampleAncestry}
	before := writer.Write(content, evidence.LogPosition{}, false).Value
	writer.SetRoute(following(), evidencetest.HashKey)
	after := writer.Write(content, evidence.LogPosition{}, false).Value
	writer.SetRoute(&exampleRoute, evidencetest.HashKey)
	if again := writer.Write(content, evidence.LogPosition{}, false).Value; !bytes.Equal(again, before) || bytes.Equal(after, before) {
		t.Errorf("written as\n%s\n%s\n%s", before, after, again)
	}
}
