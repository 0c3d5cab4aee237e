package witness_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"

	"lapse/audit/tree"
	"lapse/internal/witnesstest"
)

// What a witness may answer that is none of its own cosignature of this very checkpoint.
func TestAnAnswerThatIsNoCosignatureFailsAndHoldsUpNobody(t *testing.T) {
	t.Parallel()
	l := newLog(t, 1)
	l.grow(3)
	first := l.sign(func(int64) bool { return false })
	impostor := sha(t, "one.example.com", 9)
	elsewhere := witnesstest.New(t, "one.example.com")
	answer := func(status int, body string) func(*witnesstest.Witness) {
		return func(w *witnesstest.Witness) {
			w.Answer(func(out http.ResponseWriter, _ *http.Request) bool {
				out.WriteHeader(status)
				_, _ = io.WriteString(out, body)
				return true
			})
		}
	}
	cosignedBy := func(signer note.Signer, of []byte) string {
		text, _ := tree.TextOf(of)
		signed, err := note.Sign(&note.Note{Text: text}, signer)
		if err != nil {
			t.Fatal(err)
		}
		return string(signed[len(text)+1:])
	}
	l.grow(4)
	second := l.sign(func(int64) bool { return false })
	for name, c := range map[string]struct {
		answers func(*witnesstest.Witness)
		says    string
	}{
		"nothing":                         {answer(200, ""), "its answer"},
		"rubbish":                         {answer(200, "<html>\x00\xff"), "its answer"},
		"too much":                        {answer(200, strings.Repeat("— x ", 1<<20)), "more than"},
		"by another key of the name":      {answer(200, cosignedBy(impostor, second.Note)), "no cosignature by the key"},
		"of the checkpoint before":        {answer(200, cosignedBy(own(t, "one.example.com"), first.Note)), "does not verify"},
		"the log's own signature":         {answer(200, string(second.Note[bytes.Index(second.Note, []byte("\n\n"))+2:])), "no cosignature by the key"},
		"unknown log":                     {answer(404, "unknown log"), "does not know this log"},
		"another key of the log":          {answer(403, "no"), "another key"},
		"another log":                     {answer(422, "no"), "did not grow"},
		"an error":                        {answer(500, strings.Repeat("a", 1000)), "it answers 500"},
		"another size that is none":       {answer(409, "seven"), "where the size that it has seen should be"},
		"less than nothing":               {answer(409, "-1\n"), "where the size that it has seen should be"},
		"the size that it was sent":       {answer(409, "0\n"), "does not take the proof from there"},
		"another size each time":          {sizes(), "another size each time"},
		"a redirect to one that would":    {func(w *witnesstest.Witness) { redirect(w, elsewhere.URL) }, "it answers 307"},
		"nothing, for longer than it may": {hang(t), "Timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, other := witnesstest.New(t, "one.example.com"), witnesstest.New(t, "two.example.com")
			c.answers(w)
			a := ask(t, l, 2, nil, w, other)
			a.Submit(second)
			wantCosigned(t, l, a.take(), 7, other)
			a.until(a.Settled)
			if a.value("lapse_witness_failing", "witnessone.example.com") != 1 || a.value("lapse_witness_failing", "witnesstwo.example.com") != 0 {
				t.Error("the metric does not say which witness fails")
			}
			if a.value("lapse_cosignature_lag_seconds", "") <= 0 {
				t.Error("the metric says that the quorum has cosigned")
			}
			if !strings.Contains(a.said(), c.says) || strings.Contains(a.said(), strings.Repeat("a", 300)) || a.Err() != nil {
				t.Errorf("it says %s (%v), want %q", a.said(), a.Err(), c.says)
			}
		})
	}
}

// own is the signer of a test's witness.
func own(t *testing.T, name string) note.Signer {
	t.Helper()
	w := witnesstest.New(t, name)
	return w.Signer()
}

// sha is another key of a name.
func sha(t *testing.T, name string, first byte) note.Signer {
	t.Helper()
	signer, err := torchwood.NewCosignatureSigner(name, ed25519.NewKeyFromSeed(append([]byte{first}, make([]byte, ed25519.SeedSize-1)...)))
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

func sizes() func(*witnesstest.Witness) {
	return func(w *witnesstest.Witness) {
		n := 0
		w.Answer(func(out http.ResponseWriter, _ *http.Request) bool {
			n++
			out.WriteHeader(http.StatusConflict)
			_, _ = fmt.Fprintln(out, n)
			return true
		})
	}
}

func redirect(w *witnesstest.Witness, to string) {
	w.Answer(func(out http.ResponseWriter, r *http.Request) bool {
		http.Redirect(out, r, to+"/add-checkpoint", http.StatusTemporaryRedirect)
		return true
	})
}

func hang(t *testing.T) func(*witnesstest.Witness) {
	return func(w *witnesstest.Witness) {
		w.Answer(func(_ http.ResponseWriter, r *http.Request) bool {
			_, _ = io.ReadAll(r.Body)
			<-r.Context().Done()
			return true
		})
	}
}
