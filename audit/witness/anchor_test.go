package witness_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lapse/audit/tree"
	"lapse/audit/witness"
	"lapse/internal/witnesstest"
)

func TestAnchorsKeepCheckpoints(t *testing.T) {
	t.Parallel()
	l, path, printed := newLog(t, 1), filepath.Join(t.TempDir(), "checkpoints"), &bytes.Buffer{}
	keeper := witnesstest.New(t, "keeper.example.com")
	var posted []string
	keeper.Answer(func(out http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		posted = append(posted, string(body))
		out.WriteHeader(http.StatusCreated)
		return true
	})
	a := ask(t, l, 0, []witness.Anchor{witness.FileAnchor{Path: path}, &witness.PrintAnchor{To: printed}, witness.WebAnchor{URL: keeper.URL + "/keep?token=secret"}})
	var all []string
	for range 3 {
		l.grow(2)
		s := l.sign(a.Wants)
		all = append(all, string(s.Note))
		a.Submit(s)
		a.until(a.Settled)
		file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = file.WriteString(`{"note":"half`) // a crash
			_ = file.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	notes, err := tree.ReadNotes(bytes.NewReader(bytes.TrimSuffix(kept, []byte(`{"note":"half`))))
	if err != nil || len(notes) != 3 || string(notes[2]) != all[2] {
		t.Errorf("the file has %q (%v)", kept, err)
	}
	if printed.String() != strings.Join(all, "\n")+"\n" || len(posted) != 3 || posted[2] != all[2] {
		t.Errorf("printed: %q\nposted: %q", printed, posted)
	}
	if strings.Contains(a.said(), "secret") {
		t.Error("a secret is in the log")
	}
	foreign := filepath.Join(t.TempDir(), "foreign")
	if err := os.WriteFile(foreign, []byte("somebody's\nown text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (witness.FileAnchor{Path: foreign}).Put(t.Context(), nil, []byte(all[0])); err == nil {
		t.Error("another file was appended to")
	}
	if text, _ := os.ReadFile(foreign); string(text) != "somebody's\nown text" {
		t.Errorf("another file is changed: %q", text)
	}
}
