package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
)

// publicKey is the one that lapse keys list shows.
func (m *machine) publicKey() string {
	m.t.Helper()
	var listed struct {
		Result struct {
			PublicKey string `json:"public_key"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(m.lapse("keys", "list", "--json")), &listed); err != nil {
		m.t.Fatal(err)
	}
	return listed.Result.PublicKey
}

// The log's key is changed by one command and a start. What was made before goes on to verify, and so does what is made later, by either key.
func TestTheLogsKeyIsRotated(t *testing.T) {
	t.Parallel()
	s := newShop(t, pgtest.New(t, pgtest.Newest(t)), kafkatest.Broker(t), 40, 10, 15)
	w, kept := s.witnessed()
	s.m.lapse("audit", "--once")
	s.m.lapse("run", "--once")
	s.m.lapse("audit", "--once")
	first := s.m.publicKey()
	tell := func(public string) {
		t.Helper()
		key, err := note.NewVerifier(public)
		if err != nil {
			t.Fatal(err)
		}
		w.Know(key)
	}
	tell(first)
	s.m.lapse("prove", "--table", "public.sessions", "--key", "7", "-o", "first.json")
	s.m.lapse("verify", "--save", "verified.json")
	s.m.lapse("events", "--export", "out")

	says(t, s.m.lapse("keys", "rotate", "--log"), "has another key", "the former one is in ")
	next := s.m.publicKey()
	if next == first || strings.Split(next, "+")[0] != strings.Split(first, "+")[0] {
		t.Fatalf("the public key is %s, and was %s", next, first)
	}
	says(t, s.m.lapse("verify"), "verifies: ") // the log is under the former key yet
	s.m.lapse("events", "--export", "out")
	says(t, s.m.lapse("verify", "--dir", "out"), "verifies: ")
	files, err := filepath.Glob(filepath.Join(s.m.dir, "keys", "log-*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the former key is in %v (%v)", files, err)
	}
	if err := os.Rename(files[0], filepath.Join(s.m.dir, "former")); err != nil {
		t.Fatal(err)
	}
	says(t, s.m.exits(exitInvalid, "audit", "--once"), "begins with log-")
	if err := os.Rename(filepath.Join(s.m.dir, "former"), files[0]); err != nil {
		t.Fatal(err)
	}
	s.userDeletes(1, 3)
	s.m.lapse("audit", "--once")
	if found := s.verified(t, "verify", "--json"); found.Cosigned >= found.Records {
		t.Errorf("a witness that does not know the next key has cosigned %d of %d records", found.Cosigned, found.Records)
	}
	tell(next)
	s.m.lapse("audit", "--once")
	if found := s.verified(t, "verify", "--json", "--ask"); found.Cosigned != found.Records {
		t.Errorf("a witness that was told the next key has cosigned %d of %d records", found.Cosigned, found.Records)
	}
	s.m.lapse("init")
	s.m.lapse("prove", "--table", "public.sessions", "--key", "41", "-o", "second.json")
	says(t, s.m.lapse("verify", "--known", kept), "verifies: ", " 0 gaps")
	says(t, s.m.lapse("verify", "--known", "verified.json"), "verifies: ")
	s.m.lapse("events", "--export", "out")
	s.m.lapse("events", "--export", "new")
	elsewhere := &machine{t: t, bin: s.m.bin, dir: s.m.dir, env: []string{"HOME=" + t.TempDir()}}
	for _, public := range []string{first, next} {
		for _, dir := range []string{"out", "new"} {
			says(t, elsewhere.lapse("verify", "--dir", dir, "--public-key", public), "verifies: ")
		}
		says(t, s.m.lapse("verify", "--public-key", public), "verifies: ")
	}
	s.m.write("public", first+"\n"+next+"\n")
	for receipt, c := range map[string]struct{ key, public, other string }{"first.json": {"7", first, next}, "second.json": {"41", next, first}} {
		says(t, s.m.lapse("verify", receipt, "--key", c.key), "verifies with this key")
		says(t, elsewhere.lapse("verify", receipt, "--key", c.key, "--public-key", "public"), "verifies with this key", c.public)
		says(t, elsewhere.exits(exitPerson, "verify", receipt, "--key", c.key, "--public-key", c.other), "does not verify")
	}
}
