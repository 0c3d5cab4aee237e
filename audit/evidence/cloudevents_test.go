package evidence_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
)

// routeOf is the example's route in another format.
func routeOf(format string) *evidence.Route {
	route := exampleRoute
	route.Format = format
	return &route
}

func TestCloudEventsAreTheirGoldenFilesAndFitTheSchema(t *testing.T) {
	t.Parallel()
	for name, routed := range examplesBy(t, routeOf(evidence.FormatCloudEvents)) {
		golden(t, "event-cloudevents", "cloud"+name, routed.Value)
	}
}

func TestACloudEventsDataIsTheEventInTheDefaultFormat(t *testing.T) {
	t.Parallel()
	plain := exampleEvents(t)
	for name, routed := range examplesBy(t, routeOf(evidence.FormatCloudEvents)) {
		var e struct {
			ID   string          `json:"id"`
			Data json.RawMessage `json:"data"`
		}
		if err := json.Unmarshal(routed.Value, &e); err != nil {
			t.Fatal(err)
		}
		want := plain[name]
		if !bytes.Equal(e.Data, want.Value) || !bytes.HasPrefix(want.Value, []byte(`{"event_id":"`+e.ID+`"`)) || !bytes.Equal(routed.Key, want.Key) {
			t.Errorf("%s: id %s, key %s, data %s", name, e.ID, routed.Key, e.Data)
		}
	}
}

// Kafka's binding: the content type says that the mode is structured, and ce_ headers that it is binary. What an event says is in its
// value; only Lapse's own headers are beside it.
func TestACloudEventIsInStructuredModeAlone(t *testing.T) {
	t.Parallel()
	route := routeOf(evidence.FormatCloudEvents)
	router := evidence.NewRouter(route, evidencetest.HashKey)
	examples := examplesBy(t, route)
	for _, rec := range router.RouteMarker(exampleMarker(evidence.Gap)) {
		examples["marker"] = &evidence.Routed{Value: rec.Value, Headers: rec.Headers}
	}
	for name, routed := range examples {
		own := len(exampleEvents(t)["event-user"].Headers)
		if headers := routed.Headers[own:]; len(headers) != 1 || headers[0].Key != "content-type" ||
			string(headers[0].Value) != "application/cloudevents+json; charset=UTF-8" {
			t.Errorf("%s: headers %v", name, headers)
		}
	}
}

func TestACloudEventsSubjectHasNoCharacterThatIsForbiddenThere(t *testing.T) {
	t.Parallel()
	route := routeOf(evidence.FormatCloudEvents)
	raw := *route
	raw.Source.Encoding = "SQL_ASCII"
	for _, test := range []struct {
		route       *evidence.Route
		table, want string
	}{
		{route, "sessions", "public.sessions"},
		{route, "größe", `public."größe"`},
		{route, "50%\x01\u0085\ufffe", `public."50%25%01%C2%85%EF%BF%BE"`},
		{&raw, "caf\xe9", "public.\"caf\uefe9\""},
		{&raw, "\uef81", "public.\"\uefee\uefbe\uef81\""},
	} {
		routed := eventOf(t, test.route, exampleTx(), del(relation(16700, "public", test.table, "id*"), 1))
		var e struct{ Subject string }
		if err := json.Unmarshal(routed.Value, &e); err != nil || e.Subject != test.want {
			t.Errorf("%q: subject %q, want %q", test.table, e.Subject, test.want)
		}
		if err := evidencetest.Schema(t, "event-cloudevents").Validate(evidencetest.ParseJSON(t, routed.Value)); err != nil {
			t.Error(err)
		}
	}
}

func TestTheSchemaRefusesACloudEventThatContradictsItsData(t *testing.T) {
	t.Parallel()
	events := examplesBy(t, routeOf(evidence.FormatCloudEvents))
	for _, test := range []struct{ name, from, old, new string }{
		{"a user's deletion as the system's", "event-user", `"lapsecause":"user"`, `"lapsecause":"system","lapsepolicy":"p"`},
		{"the system's deletion as a user's", "event-system", `"lapsecause":"system","lapsepolicy":"sessions-30d"`, `"lapsecause":"user"`},
		{"an unverified event with a policy", "event-unverified", `"lapsecause":"unverified"`, `"lapsecause":"unverified","lapsepolicy":"p"`},
		{"a truncate as a deletion", "event-truncate", `"lapse.truncate"`, `"lapse.delete"`},
		{"a gap with a subject", "event-gap", `"specversion"`, `"subject":"public.sessions","specversion"`},
		{"a deletion without a subject", "event-user", `"subject":"public.sessions",`, ``},
		{"data that is no event", "event-user", `"mods"`, `"mod"`},
		{"an attribute that is none", "event-user", `"specversion"`, `"lapseOp":"delete","specversion"`},
	} {
		value := bytes.Replace(events[test.from].Value, []byte(test.old), []byte(test.new), 1)
		if bytes.Equal(value, events[test.from].Value) {
			t.Errorf("%s: nothing was changed", test.name)
		}
		if evidencetest.Schema(t, "event-cloudevents").Validate(evidencetest.ParseJSON(t, value)) == nil {
			t.Errorf("the schema takes %s", test.name)
		}
	}
}
