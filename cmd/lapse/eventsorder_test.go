package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"lapse/schemas"
)

// placed is an event of a database at a place in its history.
func placed(op, system string, history, lsn, seq int) *schemas.Record {
	return logRecord(op, "lapse-sysid", system, "lapse-db", "5", "lapse-history", fmt.Sprint(history), "lapse-tli", "1",
		"lapse-lsn", fmt.Sprintf("%016X", lsn), "lapse-seq", fmt.Sprintf("%08X", seq), "lapse-schema", "1")
}

func TestTheConsumerHoldsEveryRecordAgainstTheOrder(t *testing.T) {
	for _, c := range []struct {
		name    string
		records []*schemas.Record
		says    []string
	}{
		{"events in order", []*schemas.Record{
			placed("delete", "1", 1, 10, 0), placed("delete", "1", 1, 10, 1), placed("delete", "1", 1, 11, 0),
		}, nil},
		{"fences, and what Lapse has not written", []*schemas.Record{
			placed("delete", "1", 1, 10, 0), placed("fence", "1", 1, 9, 0), logRecord("delete"), placed("delete", "1", 1, 11, 0),
		}, nil},
		{"a rewind and what follows it", []*schemas.Record{
			placed("delete", "1", 1, 20, 0), placed("rewind", "1", 2, 10, 0), placed("delete", "1", 2, 11, 0),
		}, nil},
		{"another database's", []*schemas.Record{
			placed("delete", "1", 1, 20, 0), placed("delete", "2", 1, 10, 0), placed("delete", "1", 1, 21, 0),
		}, nil},
		{"an event twice", []*schemas.Record{placed("delete", "1", 1, 10, 0), placed("delete", "1", 1, 10, 0)}, []string{
			"topic/3: the event at offset 1 is there twice",
		}},
		{"a copy of an old event", []*schemas.Record{
			placed("delete", "1", 1, 10, 0), placed("delete", "1", 1, 11, 0), placed("delete", "1", 1, 10, 0), placed("delete", "1", 1, 12, 0),
		}, []string{"topic/3: the event at offset 2 comes after one that is later"}},
		{"an event of a future that was made up", []*schemas.Record{
			placed("delete", "1", 1, 10, 0), placed("delete", "1", 9, 10, 0), placed("delete", "1", 1, 11, 0), placed("delete", "1", 1, 12, 0),
		}, []string{"topic/3: the event at offset 2 comes after one that is later"}},
		{"a gap out of place", []*schemas.Record{placed("delete", "1", 1, 10, 0), placed("gap", "1", 1, 9, 0)}, []string{
			"topic/3: the event at offset 1 comes after one that is later",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var said bytes.Buffer
			o := newOrder(&said, "")
			for offset, r := range c.records {
				o.Next("topic", 3, r, int64(offset))
			}
			err := o.verdict()
			if errors.Is(err, errNeedsPerson) != (len(c.says) > 0) {
				t.Errorf("verdict %v", err)
			}
			want := append(c.says, fmt.Sprintf("broken in %s: another program has written", counted(uint64(len(c.says)), "place")))
			lines := strings.Split(strings.TrimSpace(said.String()), "\n")
			for i, line := range lines {
				if len(c.says) > 0 && (len(lines) != len(want) || !strings.Contains(line, want[i])) || len(c.says) == 0 && line != "" {
					t.Errorf("it says %q", said.String())
				}
			}
		})
	}
}

func TestAnEventOfARowIsInOnePartition(t *testing.T) {
	for op, want := range map[string]bool{"delete": true, "soft_delete": true, "move": true, "truncate": false, "gap": false} {
		c := consumer{app: &app{out: new(bytes.Buffer)}, order: newOrder(nil, "")}
		r := placed(op, "1", 1, 10, 0)
		for range 2 {
			if err := c.print(r, positionOf(r)); err != nil {
				t.Fatal(err)
			}
		}
		if broken := c.order.verdict() != nil; broken != want {
			t.Errorf("%s in two partitions: broken is %t", op, broken)
		}
	}
}

func TestAnEventOfTheOtherTopicIsNamed(t *testing.T) {
	of := func(cause string) *schemas.Record {
		r := placed("delete", "1", 1, 10, 0)
		r.Headers = append(r.Headers, schemas.Header{Key: "lapse-cause", Value: []byte(cause)})
		return r
	}
	for _, c := range []struct {
		topic  string
		record *schemas.Record
		says   string
	}{
		{"sys", of("system"), ""},
		{"usr", of("user"), ""},
		{"usr", of("unverified"), ""},
		{"usr", placed("gap", "1", 1, 10, 0), ""},
		{"sys", placed("gap", "1", 1, 10, 0), ""},
		{"usr", of("system"), "usr/1: the event at offset 7 is of cause system"},
		{"sys", of("user"), "sys/1: the event at offset 7 is of cause user"},
	} {
		var said bytes.Buffer
		o := newOrder(&said, "sys")
		o.Next(c.topic, 1, c.record, 7)
		if broken := o.verdict() != nil; broken != (c.says != "") || !strings.Contains(said.String(), c.says) {
			t.Errorf("%s in %s: broken is %t: %s", c.record.Header("lapse-cause"), c.topic, broken, said.String())
		}
	}
}

func TestOfManyBreaksOfTheOrderAFewAreNamed(t *testing.T) {
	var said bytes.Buffer
	o := newOrder(&said, "")
	for n := range 3 * shownBreaks {
		o.Next("topic", 0, placed("delete", "1", 1, 1000-n, 0), int64(n))
	}
	if err := o.verdict(); !errors.Is(err, errNeedsPerson) || strings.Count(said.String(), "\n") != shownBreaks+1 ||
		!strings.Contains(said.String(), fmt.Sprintf("broken in %d places", 3*shownBreaks-1)) {
		t.Errorf("%v:\n%s", err, said.String())
	}
}

// A broker that lost a segment in the middle of a partition says nothing: 18 of 330 events were missing and exit was 0.
func TestTheConsumerMissesOffsets(t *testing.T) {
	var said strings.Builder
	o := newOrder(&said, "")
	for n, offset := range []int64{5, 6, 9, 10} {
		o.Next("topic", 0, placed("delete", "1", 1, 10+n, 0), offset)
		o.Next("topic", 1, placed("fence", "1", 1, 10+n, 0), int64(n))
	}
	want := "topic/0: there are no records at the offsets 7 to 8\n"
	if err := o.verdict(); !errors.Is(err, errNeedsPerson) || !strings.HasPrefix(said.String(), want) || o.Breaks() != 1 {
		t.Errorf("verdict %v, %d breaks:\n%s", err, o.Breaks(), said.String())
	}
}
