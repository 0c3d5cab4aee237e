package main

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"lapse/audit/kafka"
)

func TestPlacesSortAsTheDatabaseWroteThem(t *testing.T) {
	sorted := []place{
		{"1", "00000000019C2A40", "00000000"},
		{"1", "00000000019C2A40", "0000000A"},
		{"1", "00000001019C2A40", "00000000"},
		{"2", "00000000019C2A40", "00000000"},
		{"10", "0000000000000001", "00000000"},
	}
	for i := range sorted {
		for k := range sorted {
			if sorted[i].before(sorted[k]) != (i < k) {
				t.Errorf("%v before %v: %v", sorted[i], sorted[k], !(i < k))
			}
		}
	}
}

func record(op string, headers ...string) *kafka.Record {
	r := &kafka.Record{Key: []byte(`{"id":"1"}`), Value: []byte("{}"), Time: time.Unix(0, 0).UTC(), Headers: []kafka.Header{{Key: "lapse-op", Value: []byte(op)}}}
	for pair := range slices.Chunk(headers, 2) {
		r.Headers = append(r.Headers, kafka.Header{Key: pair[0], Value: []byte(pair[1])})
	}
	return r
}

func TestTheConsumerSkipsFencesAndWhatWasNotAskedFor(t *testing.T) {
	event := record("delete", "lapse-cause", "system", "lapse-policy", "p", "lapse-table", "public.t")
	for _, c := range []struct {
		name     string
		consumer consumer
		record   *kafka.Record
		wants    bool
	}{
		{"everything", consumer{}, event, true},
		{"its cause", consumer{cause: "system"}, event, true},
		{"another cause", consumer{cause: "user"}, event, false},
		{"its policy and table", consumer{policy: "p", table: "public.t"}, event, true},
		{"another policy", consumer{policy: "q"}, event, false},
		{"another table", consumer{table: "public.u"}, event, false},
		{"a fence", consumer{}, record("fence"), false},
	} {
		if got := c.consumer.wants(c.record); got != c.wants {
			t.Errorf("%s: wants is %v", c.name, got)
		}
	}
}

func TestATruncateIsPrintedOnceThoughItIsInEveryPartition(t *testing.T) {
	var out bytes.Buffer
	c := consumer{app: &app{out: &out}}
	truncate := record("truncate", "lapse-cause", "user", "lapse-table", "public.t")
	for range 3 {
		if err := c.print(truncate, place{"1", "00000000019C2A40", "00000000"}); err != nil {
			t.Fatal(err)
		}
	}
	want := "1970-01-01T00:00:00.000Z user       truncate public.t {\"id\":\"1\"} lsn=0/19C2A40 seq=00000000\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}
