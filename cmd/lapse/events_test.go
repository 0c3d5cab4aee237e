package main

import (
	"bytes"
	"cmp"
	"slices"
	"testing"
	"time"

	"lapse/audit/kafka"
)

func TestPlacesSortAsTheDatabaseWroteThem(t *testing.T) {
	sorted := []place{
		{"1", "1", "00000000019C2A40", "00000000"},
		{"1", "1", "00000000019C2A40", "0000000A"},
		{"1", "1", "00000001019C2A40", "00000000"},
		{"1", "2", "00000000019C2A40", "00000000"},
		{"1", "10", "0000000000000001", "00000000"},
		{"2", "1", "0000000000000001", "00000000"},
		{"10", "1", "0000000000000001", "00000000"},
	}
	for i := range sorted {
		for k := range sorted {
			if sorted[i].compare(sorted[k]) != cmp.Compare(i, k) {
				t.Errorf("%v compared with %v: %d", sorted[i], sorted[k], sorted[i].compare(sorted[k]))
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
		{"a gap, whatever is asked for", consumer{cause: "system", policy: "p", table: "public.t"}, record("gap"), true},
		{"a rewind, whatever is asked for", consumer{cause: "user"}, record("rewind"), true},
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
		if err := c.print(truncate, place{"1", "1", "00000000019C2A40", "00000000"}); err != nil {
			t.Fatal(err)
		}
	}
	want := "1970-01-01T00:00:00.000Z user       truncate public.t {\"id\":\"1\"} lsn=0/19C2A40 seq=00000000\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

func TestGapsAndRewindsArePrintedOnceInWords(t *testing.T) {
	var out bytes.Buffer
	c := consumer{app: &app{out: &out}}
	body := func(reason, more string) []byte {
		return []byte(`{"lapse":{"reason":"` + reason + `",` + more + `"from":{"history":1,"timeline":1,"lsn":"0/19C2A40"},` +
			`"to":{"history":1,"timeline":1,"lsn":"0/1A00000"}}}`)
	}
	rewind, gap := record("rewind"), record("gap")
	rewind.Value, gap.Value = body("accepted", ""), body("topic", `"topic":"lapse.log",`)
	event := record("delete", "lapse-cause", "user", "lapse-table", "public.t")
	for _, step := range []struct {
		record *kafka.Record
		at     place
	}{
		{rewind, place{"2", "1", "00000000019C2A40", "00000000"}},
		{rewind, place{"2", "1", "00000000019C2A40", "00000000"}},
		{event, place{"2", "1", "00000000019C2A50", "00000000"}},
		{rewind, place{"2", "1", "00000000019C2A40", "00000000"}}, // of a partition that came late, as --follow reads them
		{gap, place{"2", "1", "00000000019C2A60", "00000000"}},
	} {
		if err := c.print(step.record, step.at); err != nil {
			t.Fatal(err)
		}
	}
	want := "1970-01-01T00:00:00.000Z rewind above 1/1/0/19C2A40: what was published above it, up to 1/1/0/1A00000, never happened in the " +
		"database that goes on here (a person accepted this database's past)\n" +
		"1970-01-01T00:00:00.000Z user       delete   public.t {\"id\":\"1\"} lsn=0/19C2A50 seq=00000000\n" +
		"1970-01-01T00:00:00.000Z gap from 1/1/0/19C2A40 to 1/1/0/1A00000: what was deleted in between is not in the topics, or not as " +
		"what it was (records are gone from topic lapse.log)\n"
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
}
