// Package witnesstest is a witness of C2SP's tlog-witness in memory, for tests. It follows the document's rules in its order, and refuses
// what they refuse.
package witnesstest

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Witness cosigns what grew from what it has seen.
type Witness struct {
	URL string
	Key *torchwood.CosignatureVerifier

	signer *torchwood.CosignatureSigner

	mu       sync.Mutex
	logs     map[string]note.Verifier // by origin; nil: every log is known, and its signature is not looked at
	seen     map[string]tlog.Tree
	answers  func(w http.ResponseWriter, r *http.Request) bool
	requests int
	conflict int
}

// New starts a witness that knows every log. It ends with the test.
func New(t testing.TB, name string) *Witness {
	t.Helper()
	seed := sha256.Sum256([]byte(name))
	signer, err := torchwood.NewCosignatureSigner(name, ed25519.NewKeyFromSeed(seed[:]))
	if err != nil {
		t.Fatal(err)
	}
	w := &Witness{Key: signer.Verifier(), signer: signer, seen: map[string]tlog.Tree{}}
	server := httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(server.Close)
	w.URL = server.URL
	return w
}

// Know has the witness know this log alone beside others that it was told of, by its key.
func (w *Witness) Know(key note.Verifier) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.logs == nil {
		w.logs = map[string]note.Verifier{}
	}
	w.logs[key.Name()] = key
}

// Answer has somebody else answer before the witness does; nil: it does. It reports whether it has.
func (w *Witness) Answer(answers func(http.ResponseWriter, *http.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers = answers
}

// Seen is the newest tree of a log that it has cosigned.
func (w *Witness) Seen(origin string) tlog.Tree {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[origin]
}

// Forge has the witness believe that it has seen a tree.
func (w *Witness) Forge(origin string, seen tlog.Tree) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[origin] = seen
}

// Requests is how often it was asked, and how often it answered with another size.
func (w *Witness) Requests() (all, conflicts int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requests, w.conflict
}

// refusal is a status of the document.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func (w *Witness) serve(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	answers := w.answers
	w.requests++
	w.mu.Unlock()
	if answers != nil && answers(out, r) {
		return
	}
	if r.Method != http.MethodPost || r.URL.Path != "/add-checkpoint" {
		http.NotFound(out, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	lines, err := w.add(string(body))
	var refused *refusal
	switch {
	case errors.As(err, &refused) && refused.status == http.StatusConflict:
		w.conflict++
		out.Header().Set("Content-Type", "text/x.tlog.size")
		out.WriteHeader(refused.status)
		_, _ = io.WriteString(out, refused.text)
	case errors.As(err, &refused):
		http.Error(out, refused.text, refused.status)
	case err != nil:
		http.Error(out, err.Error(), http.StatusBadRequest)
	default:
		_, _ = io.WriteString(out, lines)
	}
}

// add is add-checkpoint.
func (w *Witness) add(body string) (lines string, err error) {
	head, signed, ok := strings.Cut(body, "\n\n")
	if !ok {
		return "", errors.New("no empty line")
	}
	old, proofText, _ := strings.Cut(head, "\n")
	size, err := strconv.ParseInt(strings.TrimPrefix(old, "old "), 10, 64)
	if err != nil || !strings.HasPrefix(old, "old ") || size < 0 {
		return "", errors.New("no old size")
	}
	var proof tlog.TreeProof
	for line := range strings.FieldsSeq(proofText) {
		h, err := tlog.ParseHash(line)
		if err != nil {
			return "", err
		}
		proof = append(proof, h)
	}
	if len(proof) > 63 {
		return "", errors.New("too long a proof")
	}
	origin, _, _ := strings.Cut(signed, "\n")
	text, err := w.open(origin, signed)
	if err != nil {
		return "", err
	}
	c, err := torchwood.ParseCheckpoint(text)
	if err != nil {
		return "", err
	}
	seen := w.seen[origin]
	switch {
	case size > c.N:
		return "", errors.New("the old size is above the checkpoint's")
	case size != seen.N || size == c.N && seen.N > 0 && c.Hash != seen.Hash:
		return "", &refusal{http.StatusConflict, fmt.Sprintf("%d\n", seen.N)}
	case size > 0 && size < c.N && tlog.CheckTree(proof, c.N, c.Hash, size, seen.Hash) != nil:
		return "", &refusal{http.StatusUnprocessableEntity, "the proof does not verify"}
	case (size == 0 || size == c.N) && len(proof) > 0:
		return "", &refusal{http.StatusUnprocessableEntity, "there is nothing to prove"}
	}
	w.seen[origin] = c.Tree
	cosigned, err := note.Sign(&note.Note{Text: text}, w.signer)
	if err != nil {
		return "", err
	}
	return string(cosigned[len(text)+1:]), nil
}

// open verifies the log's signature.
func (w *Witness) open(origin, signed string) (text string, err error) {
	if w.logs == nil {
		at := strings.LastIndex(signed, "\n\n")
		return signed[:max(at+1, 0)], nil
	}
	key := w.logs[origin]
	if key == nil {
		return "", &refusal{http.StatusNotFound, "unknown log"}
	}
	n, err := note.Open([]byte(signed), note.VerifierList(key))
	if err != nil {
		return "", &refusal{http.StatusForbidden, "no signature of a known key"}
	}
	return n.Text, nil
}

// Signer is the witness's key, for answers that it would not give.
func (w *Witness) Signer() note.Signer { return w.signer }
