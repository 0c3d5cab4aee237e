package witness_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"golang.org/x/mod/sumdb/tlog"

	"lapse/audit/tree"
	"lapse/audit/witness"
	"lapse/internal/fixture"
	"lapse/internal/witnesstest"
	"lapse/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const logName = "app.example.com/lapse"

// log is a log that is signed, and can be read back.
type log struct {
	t      *testing.T
	key    *tree.Key
	tree   *tree.Tree
	values int

	mu     sync.Mutex
	proofs int   // that were asked of it
	size   int64 // that it says; 0: what it has
}

func newLog(t *testing.T, first byte) *log {
	key, err := tree.NewKey(append(schemas.Key{first}, make([]byte, schemas.MinKey-1)...), logName)
	if err != nil {
		t.Fatal(err)
	}
	return &log{t: t, key: key, tree: tree.New(key)}
}

func (l *log) grow(by int) {
	for range by {
		l.values++
		l.tree.Add(l.tree.Next(fmt.Append(nil, l.values)))
	}
}

// sign is a checkpoint, as the auditor submits it.
func (l *log) sign(keep func(int64) bool) *witness.Submission {
	l.t.Helper()
	taken, err := l.tree.Snapshot()
	if err != nil {
		l.t.Fatal(err)
	}
	_, signed, err := taken.Sign(0)
	if err != nil {
		l.t.Fatal(err)
	}
	l.tree.Keep(keep)
	l.tree.Span()
	return &witness.Submission{Note: signed, Size: taken.Size(), At: time.Now(), Proofs: taken.Proofs}
}

// Prove grows the same log again.
func (l *log) Prove(_ context.Context, from int64, signed []byte) (tlog.TreeProof, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proofs++
	of, err := tree.Peek(signed)
	if err != nil {
		return nil, err
	}
	again := &log{t: l.t, key: l.key, tree: tree.New(l.key)}
	again.grow(int(from))
	again.tree.Span()
	again.grow(int(of.Size - from))
	taken, err := again.tree.Snapshot()
	return taken.Proofs[from], err
}

func (l *log) Size(context.Context) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size != 0 {
		return l.size, nil
	}
	return int64(l.values), nil
}

// asked is Witnesses at work.
type asked struct {
	*witness.Witnesses
	t       *testing.T
	metrics *witness.Metrics
	logged  bytes.Buffer
	mu      sync.Mutex
}

func (a *asked) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.logged.Write(p)
}

func (a *asked) said() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.logged.String()
}

func ask(t *testing.T, l *log, quorum int, anchors []witness.Anchor, of ...*witnesstest.Witness) *asked {
	t.Helper()
	a := &asked{t: t, metrics: witness.NewMetrics()}
	var members []witness.Witness
	for _, w := range of {
		members = append(members, witness.Witness{URL: w.URL, Key: w.Key})
	}
	a.Witnesses = witness.New(members, quorum, anchors, a.metrics, slog.New(slog.NewTextHandler(a, nil)))
	a.Hasten(500*time.Millisecond, time.Hour)
	a.Begin(l)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var done sync.WaitGroup
	done.Go(func() { a.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return a
}

// until waits until Progress has brought about what is.
func (a *asked) until(is func() bool) {
	a.t.Helper()
	limit := time.After(fixture.Patience)
	for !is() {
		select {
		case <-a.Progress():
		case <-limit:
			a.t.Fatalf("it does not come; the log says\n%s", a.said())
		}
	}
}

// take is the next note with its cosignatures.
func (a *asked) take() (signed []byte) {
	a.t.Helper()
	a.until(func() bool { signed = a.Take(); return signed != nil })
	return signed
}

// value is what a metric says; the labels' values are written one after the other.
func (a *asked) value(name, labels string) float64 {
	a.t.Helper()
	registry := prometheus.NewRegistry()
	for _, c := range a.metrics.Collectors() {
		registry.MustRegister(c)
	}
	families, err := registry.Gather()
	if err != nil {
		a.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			of := ""
			for _, l := range m.GetLabel() {
				of += l.GetValue()
			}
			if f.GetName() == name && of == labels {
				return m.GetGauge().GetValue()
			}
		}
	}
	a.t.Fatalf("there is no metric %s of %q", name, labels)
	return 0
}

// wantCosigned wants a note to have the log's signature, and these witnesses'.
func wantCosigned(t *testing.T, l *log, signed []byte, size int64, by ...*witnesstest.Witness) {
	t.Helper()
	of, err := tree.Open(signed, l.key.Verifier())
	if err != nil || of.Size != size {
		t.Fatalf("the note is of %+v (%v), want %d records", of, err, size)
	}
	var keys []*tree.Witness
	for _, w := range by {
		keys = append(keys, w.Key)
	}
	found, err := tree.Cosignatures(signed, keys)
	if err != nil || len(found) != len(by) {
		t.Errorf("%d cosignatures of %d verify (%v)", len(found), len(by), err)
	}
	for _, c := range found {
		if since := time.Since(c.At); since < -time.Minute || since > time.Minute {
			t.Errorf("%s has cosigned %s ago", c.By.Name(), since)
		}
	}
}

func TestWitnessesCosignWhatGrewAndNoProofIsReadBack(t *testing.T) {
	t.Parallel()
	l, one, two := newLog(t, 1), witnesstest.New(t, "one.example.com"), witnesstest.New(t, "two.example.com")
	one.Know(l.key.Verifier())
	two.Know(l.key.Verifier())
	a := ask(t, l, 2, nil, one, two)
	for _, by := range []int{1, 1, 5, 0, 300, 1000} {
		l.grow(by)
		a.Submit(l.sign(a.Wants))
		wantCosigned(t, l, a.take(), int64(l.values), one, two)
		a.until(a.Settled)
	}
	if seen := one.Seen(logName); seen.N != int64(l.values) || l.proofs != 0 {
		t.Errorf("a witness has seen %d of %d records, and %d proofs were read back", seen.N, l.values, l.proofs)
	}
	if lag := a.value("lapse_cosignature_lag_seconds", ""); lag != 0 {
		t.Errorf("with all cosigned the lag is %v s", lag)
	}
	// Another process, which knows nothing.
	l.grow(77)
	again := ask(t, l, 2, nil, one, two)
	again.Submit(l.sign(again.Wants))
	wantCosigned(t, l, again.take(), int64(l.values), one, two)
	if _, conflicts := one.Requests(); conflicts != 1 {
		t.Errorf("a process that begins meets %d conflicts", conflicts)
	}
}

func TestAWitnessThatIsBehindGetsAProofFromTheLog(t *testing.T) {
	t.Parallel()
	l, w := newLog(t, 1), witnesstest.New(t, "one.example.com")
	l.grow(100)
	a := ask(t, l, 1, nil, w)
	a.Submit(l.sign(a.Wants))
	a.take()
	l.grow(23)
	other := ask(t, l, 1, nil, w)
	other.Submit(l.sign(func(int64) bool { return false })) // the tree remembers nothing
	wantCosigned(t, l, other.take(), 123, w)
	if l.proofs != 0 { // the span of the first checkpoint was there
		t.Errorf("%d proofs were read back", l.proofs)
	}
	l.grow(7)
	third := ask(t, l, 1, nil, w)
	s := l.sign(func(int64) bool { return false })
	s.Proofs = nil
	third.Submit(s)
	wantCosigned(t, l, third.take(), 130, w)
	if l.proofs != 1 {
		t.Errorf("%d proofs were read back", l.proofs)
	}
}

func TestAFailingWitnessHasTheNewestCheckpointWhenItAnswersAgain(t *testing.T) {
	t.Parallel()
	l, w := newLog(t, 1), witnesstest.New(t, "one.example.com")
	w.Answer(func(out http.ResponseWriter, _ *http.Request) bool {
		out.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	a := ask(t, l, 1, nil, w)
	a.Hasten(time.Second, 20*time.Millisecond)
	for range 5 {
		l.grow(2)
		a.Submit(l.sign(a.Wants))
		a.until(a.Settled)
	}
	w.Answer(nil)
	wantCosigned(t, l, a.take(), 10, w)
	a.until(func() bool { return a.value("lapse_witness_failing", "witnessone.example.com") == 0 })
	if n := a.value("lapse_cosignature_lag_seconds", ""); n != 0 || l.proofs != 0 {
		t.Errorf("then the lag is %v s, and %d proofs were read back", n, l.proofs)
	}
}

// A witness that is slow has the newest, and nothing of what was between.
func TestCheckpointsThatNobodyCouldTakeAreLeftOut(t *testing.T) {
	t.Parallel()
	l, w := newLog(t, 1), witnesstest.New(t, "one.example.com")
	go1, came := make(chan struct{}), make(chan struct{}, 100)
	w.Answer(func(http.ResponseWriter, *http.Request) bool {
		came <- struct{}{}
		<-go1
		return false
	})
	a := ask(t, l, 1, nil, w)
	a.Hasten(time.Minute, time.Hour)
	l.grow(1)
	a.Submit(l.sign(a.Wants))
	<-came
	for range 100 {
		l.grow(1)
		a.Submit(l.sign(a.Wants))
	}
	if a.Settled() {
		t.Error("it is settled while a witness is asked")
	}
	close(go1)
	wantCosigned(t, l, a.take(), 1, w)
	wantCosigned(t, l, a.take(), 101, w)
	if all, _ := w.Requests(); all != 2 {
		t.Errorf("there were %d requests", all)
	}
}

func TestAWitnessThatHasSeenMoreThanTheLogHasStopsTheAudit(t *testing.T) {
	t.Parallel()
	l, w := newLog(t, 1), witnesstest.New(t, "one.example.com")
	l.grow(10)
	w.Forge(logName, tlog.Tree{N: 12})
	a := ask(t, l, 1, nil, w)
	a.Submit(l.sign(a.Wants))
	a.until(func() bool { return a.Err() != nil })
	var cut *witness.CutError
	if err := a.Err(); !errors.Is(err, witness.ErrCut) || !errors.As(err, &cut) || cut.Seen != 12 || cut.Has != 10 {
		t.Errorf("it says %v", err)
	}
	// Another auditor has gone on with the log: that is nobody's fault.
	l.size = 12
	other := ask(t, l, 1, nil, w)
	other.Submit(l.sign(other.Wants))
	other.until(other.Settled)
	if err := other.Err(); err != nil || !strings.Contains(other.said(), "another auditor has gone on") {
		t.Errorf("it says %v: %s", err, other.said())
	}
}

func TestAForkIsRefused(t *testing.T) {
	t.Parallel()
	l, fork, w := newLog(t, 1), newLog(t, 1), witnesstest.New(t, "one.example.com")
	w.Know(l.key.Verifier())
	l.grow(10)
	a := ask(t, l, 1, nil, w)
	a.Submit(l.sign(a.Wants))
	a.take()
	fork.values = 1000 // other records
	fork.grow(12)
	other := ask(t, fork, 1, nil, w)
	other.Submit(fork.sign(other.Wants))
	other.until(other.Settled)
	if signed := other.Take(); signed != nil || !strings.Contains(other.said(), "did not grow") {
		t.Errorf("it says %s, and hands out %s", other.said(), signed)
	}
}
