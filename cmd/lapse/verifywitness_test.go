package main

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"lapse/audit/tree"
	witnesses "lapse/audit/witness"
	"lapse/internal/witnesstest"
	"lapse/schemas"
)

// An older export, or a log that was cut, is found by asking a witness; and asking changes nothing of what it has seen.
func TestAskingAWitnessFindsAnOlderExport(t *testing.T) {
	t.Parallel()
	key, err := tree.NewKey(make(schemas.Key, schemas.MinKey), "app.example.com/lapse")
	if err != nil {
		t.Fatal(err)
	}
	made := tree.New(key)
	made.Add(made.Next([]byte("a")))
	taken, err := made.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	_, signed, err := taken.Sign(0)
	if err != nil {
		t.Fatal(err)
	}
	w := witnesstest.New(t, "one.example.com")
	asked := []witnesses.Witness{{URL: w.URL, Key: w.Key}}
	v := &verifier{by: byWitnesses{ask: true}}
	for _, c := range []struct {
		name  string
		seen  tlog.Tree
		fault string
		says  int64
	}{
		{"nothing", tlog.Tree{}, "", 0},
		{"just this", tlog.Tree{N: 1, Hash: taken.Root()}, "", 1},
		{"another log", tlog.Tree{N: 1}, "the key has signed two", -1},
		{"more", tlog.Tree{N: 3}, "has seen 3 records, and here are 1", 3},
	} {
		w.Forge("app.example.com/lapse", c.seen)
		result := &verified{Records: 1, Witnesses: []seenBy{{}}}
		err := v.askWitnesses(t.Context(), "checkpoint", asked, signed, result)
		var fault *tree.Fault
		if (c.fault != "") != errors.As(err, &fault) || fault != nil && !strings.Contains(fault.What, c.fault) {
			t.Errorf("it has seen %s: %v", c.name, err)
		}
		if says := result.Witnesses[0].Says; c.says >= 0 && (says == nil || *says != c.says) {
			t.Errorf("it has seen %s: it says %v", c.name, says)
		}
		if w.Seen("app.example.com/lapse") != c.seen {
			t.Errorf("it has seen %s: asking has changed that", c.name)
		}
	}
	w.Answer(func(out http.ResponseWriter, _ *http.Request) bool { out.WriteHeader(http.StatusNotFound); return true })
	result := &verified{Records: 1, Witnesses: []seenBy{{}}}
	if err := v.askWitnesses(t.Context(), "checkpoint", asked, signed, result); err != nil || !strings.Contains(strings.Join(result.NotChecked, ""), "does not know this log") {
		t.Errorf("of a witness that does not know the log it says %v, %v", err, result.NotChecked)
	}
}
