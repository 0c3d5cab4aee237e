package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"lapse/audit/tree"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/internal/witnesstest"
)

// The log is verified where it is, with its topics, its ledger and a witness; a second time from where the first has come to.
func TestTheLogIsVerifiedWhereItIs(t *testing.T) {
	t.Parallel()
	s := newShop(t, pgtest.New(t, pgtest.Newest(t)), kafkatest.Broker(t), 40, 10, 10)
	w, kept := s.witnessed()
	s.userDeletes(1, 3)
	s.m.lapse("audit", "--once")
	s.m.lapse("run", "--once")
	s.m.lapse("audit", "--once")
	said := s.m.lapse("verify", "--known", kept, "--save", "verified.json", "--ask")
	says(t, said, "verifies: ", "covers ", "with 0 gaps and 0 rewinds", "in the order that the topics promise", " batches in the database", "one.example.com has seen", ", and says ",
		"counted     ", "with the commitments of its root")
	if strings.Contains(said, "--known") || strings.Contains(said, "--ask") || strings.Contains(said, "foreign") {
		t.Errorf("it says\n%s", said)
	}
	first := s.verified(t, "verify", "--json")
	s.m.lapse("events", "--export", "out")
	says(t, s.m.lapse("doctor"), "the newest checkpoint that the quorum has cosigned is ")
	says(t, s.m.lapse("status"), "witnesses: the newest checkpoint that the quorum has cosigned is ")

	s.userDeletes(4, 5)
	s.m.lapse("audit", "--once")
	again := s.verified(t, "verify", "--json", "--known", "verified.json", "--known", kept, "--save", "verified.json")
	if again.Records <= first.Records || again.Events >= first.Events || again.Cosigned != again.Records {
		t.Errorf("from %+v on it finds %+v", first, again)
	}
	s.verified(t, "verify", "--json", "--known", "verified.json") // nothing is new
	says(t, s.m.exits(exitPerson, "verify", "--dir", "out", "--ask"), "this is not the newest")
	s.m.lapse("events", "--export", "out")
	says(t, s.m.lapse("verify", "--dir", "out", "--known", kept, "--ask"), "verifies: ", "one.example.com has seen", ", and says ")

	// Somebody who has no key names it.
	public := first.PublicKey
	elsewhere := &machine{t: t, bin: s.m.bin, dir: t.TempDir(), env: []string{"HOME=" + t.TempDir(), "LAPSE_CONFIG=" + filepath.Join(s.m.dir, "lapse.yaml"), "LAPSE_KEYS=" + t.TempDir()}}
	says(t, elsewhere.exits(exitInvalid, "verify"), "give it with --public-key")
	says(t, elsewhere.lapse("verify", "--public-key", public), "verifies: ", "not checked: the log against the database")

	if first.Transactions < 5 || first.Rooted != first.Transactions || first.Opened < 40 {
		t.Errorf("of the events it counts %+v", first)
	}

	// The batches of a minute, an hour ago, that only the ledger has; and a witness that has seen more.
	if fault := s.verifyFault(t); fault != nil {
		t.Fatalf("it says %v", fault)
	}
	s.db.Exec(t, `alter table lapse.batch disable trigger user`, `delete from lapse.batch where batch = (select batch from lapse.batch limit 1)`)
	if fault := s.verifyFault(t); fault == nil || !strings.Contains(fault.What, "they are not the same") {
		t.Errorf("of a ledger that lacks a batch it says %v", fault)
	}
	s.copyWithNextOrdinal()
	says(t, s.m.exits(exitPerson, "verify"), s.name+".user/", "offset ")
	seen := w.Seen(first.Log)
	seen.N += 5
	w.Forge(first.Log, seen)
	says(t, s.m.exits(exitPerson, "verify", "--ask"), "has seen", "the log was cut")
}

// witnessed has the shop's auditor show its checkpoints to a witness, and keep them in a file.
func (s *shop) witnessed() (w *witnesstest.Witness, kept string) {
	s.t.Helper()
	w, kept = witnesstest.New(s.t, "one.example.com"), filepath.Join(s.m.dir, "checkpoints")
	yaml, err := os.ReadFile(filepath.Join(s.m.dir, "lapse.yaml"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.m.write("lapse.yaml", string(yaml)+"witnesses: { ask: [{ url: '"+w.URL+"', key: "+w.Key.String()+" }] }\nanchors: ['file:"+kept+"']\n")
	return w, kept
}

// copyWithNextOrdinal adds an event by hand: the last one of the users' once more, in the same transaction at the next ordinal.
func (s *shop) copyWithNextOrdinal() {
	s.t.Helper()
	place := func(r *kafkatest.Record) string { return r.Header("lapse-lsn") + r.Header("lapse-seq") }
	all := kafkatest.ReadAll(s.t, s.name+".user")
	last := &all[0]
	for i := range all {
		if all[i].Header("lapse-op") == "delete" && (last.Header("lapse-op") != "delete" || place(&all[i]) > place(last)) {
			last = &all[i]
		}
	}
	n, err := strconv.ParseUint(last.Header("lapse-seq"), 16, 32)
	if err != nil {
		s.t.Fatal(err)
	}
	s.forgeAs(s.t.Context(), last, "lapse-seq", fmt.Sprintf("%08X", n+1))
}

// verified is what verify says as JSON.
func (s *shop) verified(t *testing.T, args ...string) *verified {
	t.Helper()
	var answer struct {
		Result verified `json:"result"`
	}
	if err := json.Unmarshal([]byte(s.m.lapse(args...)), &answer); err != nil || !answer.Result.Verifies {
		t.Fatalf("it says %+v (%v)", answer.Result, err)
	}
	return &answer.Result
}

// verifyFault is what is found with batches of any age.
func (s *shop) verifyFault(t *testing.T) *tree.Fault {
	t.Helper()
	env := map[string]string{}
	for _, one := range s.m.env {
		name, value, _ := strings.Cut(one, "=")
		env[name] = value
	}
	a := &app{out: &bytes.Buffer{}, err: &bytes.Buffer{}, log: silent, env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}
	v := &verifier{app: a, recent: -time.Hour}
	var fault *tree.Fault
	if err := v.online(t.Context(), &verified{}); err != nil && !errors.As(err, &fault) {
		t.Fatal(err)
	}
	return fault
}

func TestLedgerAndLogAreComparedByTheMinute(t *testing.T) {
	t.Parallel()
	begin := time.Now().Add(-time.Hour)
	var both, one ledgerSums
	for range 100 {
		batch := uuid.Must(uuid.NewV7())
		both.log(batch)
		both.add(batch, time.Time{}).ledger++
		one.log(batch)
		one.add(batch, time.Time{}).ledger++
	}
	if _, m, _ := both.differs(begin, time.Now().Add(time.Hour)); m != nil {
		t.Errorf("the same batches differ: %+v", m)
	}
	missing := uuid.Must(uuid.NewV7())
	one.add(missing, time.Time{}).ledger++
	if at, m, _ := one.differs(begin, time.Now().Add(time.Hour)); m == nil || m.ledger != m.log+1 || time.Since(at) > 2*time.Minute {
		t.Errorf("a batch more, and it says %v, %+v", at, m)
	}
	if _, m, _ := one.differs(begin, time.Now().Add(-time.Minute)); m != nil {
		t.Error("a batch that is too young is compared")
	}
	one.doubt(time.Now())
	if _, m, doubted := one.differs(begin, time.Now().Add(time.Hour)); m != nil || doubted == 0 {
		t.Errorf("what the log names itself is found once more: %+v", m)
	}
	foreign := ledgerSums{}
	foreign.add(uuid.New(), begin.Add(10*time.Minute)).ledger++
	if at, m, _ := foreign.differs(begin, time.Now()); m == nil || at.Before(begin.Add(9*time.Minute)) {
		t.Errorf("somebody's own row is found at %v", at)
	}
}
