package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"lapse/replication"
	"lapse/schemas"
)

func logRecord(op string, headers ...string) *schemas.Record {
	r := &schemas.Record{Key: []byte(`{"id":"1"}`), Value: []byte("{}"), Time: time.Unix(0, 0).UTC(), Headers: []schemas.Header{{Key: "lapse-op", Value: []byte(op)}}}
	for pair := range slices.Chunk(headers, 2) {
		r.Headers = append(r.Headers, schemas.Header{Key: pair[0], Value: []byte(pair[1])})
	}
	return r
}

func TestTheConsumerSkipsFencesAndWhatWasNotAskedFor(t *testing.T) {
	event := logRecord("delete", "lapse-cause", "system", "lapse-policy", "p", "lapse-table", "public.t")
	for _, c := range []struct {
		name     string
		consumer consumer
		record   *schemas.Record
		wants    bool
	}{
		{"everything", consumer{}, event, true},
		{"its cause", consumer{cause: "system"}, event, true},
		{"another cause", consumer{cause: "user"}, event, false},
		{"its policy and table", consumer{policy: "p", table: "public.t"}, event, true},
		{"another policy", consumer{policy: "q"}, event, false},
		{"another table", consumer{table: "public.u"}, event, false},
		{"a fence", consumer{}, logRecord("fence"), false},
		{"a gap, whatever is asked for", consumer{cause: "system", policy: "p", table: "public.t"}, logRecord("gap"), true},
		{"a rewind, whatever is asked for", consumer{cause: "user"}, logRecord("rewind"), true},
	} {
		if got := c.consumer.wants(c.record); got != c.wants {
			t.Errorf("%s: wants is %v", c.name, got)
		}
	}
}

func TestATruncateIsPrintedOnceThoughItIsInEveryPartition(t *testing.T) {
	var out bytes.Buffer
	c := consumer{app: &app{out: &out}, order: newOrder(nil, "")}
	truncate := logRecord("truncate", "lapse-cause", "user", "lapse-table", "public.t")
	for range 3 {
		if err := c.print(truncate, replication.Position{History: 1, Timeline: 1, Commit: 0x19C2A40, Ordinal: 0x0}); err != nil {
			t.Fatal(err)
		}
	}
	want := "1970-01-01T00:00:00.000Z user       truncate public.t {\"id\":\"1\"} lsn=0/19C2A40 seq=00000000\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

// `lapse events` reads each partition as it comes: between two copies of a truncate are events of other partitions.
func TestATruncateIsPrintedOnceThoughOthersComeInBetween(t *testing.T) {
	for _, op := range []string{"truncate", "drop"} {
		var out bytes.Buffer
		c := consumer{app: &app{out: &out}, order: newOrder(nil, "")}
		all := logRecord(op, "lapse-cause", "user", "lapse-table", "public.t")
		for n := range uint32(3) {
			for at, r := range map[uint32]*schemas.Record{7: all, 8 + n: logRecord("delete", "lapse-cause", "user", "lapse-table", "public.t")} {
				if err := c.print(r, replication.Position{History: 1, Timeline: 1, Commit: 0x19C2A40, Ordinal: at}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n, rows := strings.Count(out.String(), " "+op+" "), strings.Count(out.String(), " delete "); n != 1 || rows != 3 {
			t.Errorf("a %s is printed %d times, and %d of 3 rows", op, n, rows)
		}
	}
}

func TestAMarkerIsReadInEachFormat(t *testing.T) {
	body := `{"lapse":{"reason":"slot","from":{"history":1,"timeline":1,"lsn":"0/19C2A40"},"to":{"history":1,"timeline":1,"lsn":"0/1A00000"}}}`
	want := "gap from 1/1/0/19C2A40 to 1/1/0/1A00000: deletions in between are missing from the topics, or have the wrong cause " +
		"(the slot was gone, and was made again)"
	for _, value := range []string{body, `{"specversion":"1.0","data":` + body + `}`, `{"op":"m",` + body[1:]} {
		gap := logRecord("gap")
		gap.Value = []byte(value)
		if got := markerLine(gap); got != want {
			t.Errorf("%s is printed as %q", value, got)
		}
	}
}

func TestGapsAndRewindsArePrintedOnceInWords(t *testing.T) {
	var out bytes.Buffer
	c := consumer{app: &app{out: &out}, order: newOrder(nil, "")}
	body := func(reason, more string) []byte {
		return []byte(`{"lapse":{"reason":"` + reason + `",` + more + `"from":{"history":1,"timeline":1,"lsn":"0/19C2A40"},` +
			`"to":{"history":1,"timeline":1,"lsn":"0/1A00000"}}}`)
	}
	rewind, gap := logRecord("rewind"), logRecord("gap")
	rewind.Value, gap.Value = body("accepted", ""), body("topic", `"topic":"lapse.log",`)
	event := logRecord("delete", "lapse-cause", "user", "lapse-table", "public.t")
	for _, step := range []struct {
		record *schemas.Record
		at     replication.Position
	}{
		{rewind, replication.Position{History: 2, Timeline: 1, Commit: 0x19C2A40, Ordinal: 0x0}},
		{rewind, replication.Position{History: 2, Timeline: 1, Commit: 0x19C2A40, Ordinal: 0x0}},
		{event, replication.Position{History: 2, Timeline: 1, Commit: 0x19C2A50, Ordinal: 0x0}},
		{rewind, replication.Position{History: 2, Timeline: 1, Commit: 0x19C2A40, Ordinal: 0x0}}, // of a partition that came late, as --follow reads them
		{gap, replication.Position{History: 2, Timeline: 1, Commit: 0x19C2A60, Ordinal: 0x0}},
	} {
		if err := c.print(step.record, step.at); err != nil {
			t.Fatal(err)
		}
	}
	want := "1970-01-01T00:00:00.000Z rewind above 1/1/0/19C2A40: the events above it, up to 1/1/0/1A00000, never happened in this " +
		"database (a person accepted this database's history)\n" +
		"1970-01-01T00:00:00.000Z user       delete   public.t {\"id\":\"1\"} lsn=0/19C2A50 seq=00000000\n" +
		"1970-01-01T00:00:00.000Z gap from 1/1/0/19C2A40 to 1/1/0/1A00000: deletions in between are missing from the topics, or have " +
		"the wrong cause (records are gone from topic lapse.log)\n"
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
}
