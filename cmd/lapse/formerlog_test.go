package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lapse/internal/pgtest"
)

// formerLogs are logs that a release wrote, which nobody changes afterwards. In each is what formerLog leaves: the keys, the folder of a sink, a
// receipt, and what a verification of then kept for the next one.
const formerLogs = "testdata/release-*.tar.gz"

// Whatever release has written a log, this program verifies it, reports of it, proves a row of it, and takes what was kept of it.
func TestTheLogOfEachReleaseIsRead(t *testing.T) {
	t.Parallel()
	archives, err := filepath.Glob(formerLogs)
	if err != nil || len(archives) == 0 {
		t.Fatalf("there is no log of a release: %v", err)
	}
	for _, archive := range archives {
		t.Run(filepath.Base(archive), func(t *testing.T) {
			m := newMachine(t, "")
			m.env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
			unpack(t, archive, m.dir)
			text, err := os.ReadFile(filepath.Join(m.dir, "public"))
			if err != nil {
				t.Fatal(err)
			}
			of := []string{"--dir", "sink", "--public-key", string(text)}
			with := func(args ...string) []string { return append(args, of...) }
			says(t, m.lapse(with("verify", "--keys", "keys")...), "verifies: ", "counted     2 transactions", "11 events with their own")
			says(t, m.lapse(with("verify", "--known", "verified.json")...), "verifies: ")
			says(t, m.lapse("verify", "receipt.json", "--key", "7", "--public-key", string(text)), "verifies with this key")
			says(t, m.lapse("prove", "--dir", "sink", "--table", "public.sessions", "--key", `{"id":"7"}`, "--keys", "keys", "-o", "again.json"), "by policy sessions-30d")
			says(t, m.lapse(with("report", "--from", "begin", "-o", "again.json")...), "sessions-30d, on public.sessions: 10 rows deleted")
		})
	}
}

// Once for each release: LAPSE_RELEASE=0.2 go test ./cmd/lapse -run TestALogOfThisReleaseIsKept
func TestALogOfThisReleaseIsKept(t *testing.T) {
	release := os.Getenv("LAPSE_RELEASE")
	if release == "" {
		t.Skip("no release is made: LAPSE_RELEASE names one")
	}
	m := formerLog(t)
	file, err := os.OpenFile(strings.Replace(formerLogs, "*", release, 1), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	packed := gzip.NewWriter(file)
	archive := tar.NewWriter(packed)
	for _, part := range []string{"keys", "sink", "public", "receipt.json", "verified.json"} {
		err := filepath.WalkDir(filepath.Join(m.dir, part), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			name, err := filepath.Rel(m.dir, path)
			if err != nil {
				return err
			}
			text, err := os.ReadFile(path)
			if err == nil {
				err = archive.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o600, Size: int64(len(text))})
			}
			if err == nil {
				_, err = archive.Write(text)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
}

// formerLog is a machine with a log: a policy deleted ten rows, somebody else one, and a row is held.
func formerLog(t *testing.T) *machine {
	t.Helper()
	db := pgtest.New(t, pgtest.Newest(t))
	app := db.NewRole(t, "app")
	db.Exec(t, "create table public.sessions (id bigint primary key, last_seen timestamptz not null)", "create index on public.sessions (last_seen, id)",
		"insert into public.sessions select n, now() - n * interval '10 days' from generate_series(1, 13) n", "grant select, delete on public.sessions to "+app)
	m := newMachine(t, fmt.Sprintf("database: { owner: %q, executor: %q, auditor: %q }\nkeys: keys\nsink: dir:sink\nlog_name: app.example.com/lapse\n",
		db.URL, db.As("lapse_executor"), db.As("lapse_auditor")))
	m.lapse("init", "--keys", "keys")
	m.lapse("apply", "--yes", "--arm", "-f", m.write("policies.yaml", `
policies:
  - name: sessions-30d
    table: public.sessions
    expire: { column: last_seen, after: 31 days }
    latitude: 1 day
    state: armed
`))
	m.lapse("audit", "--once")
	m.lapse("run", "--once")
	db.Exec(t, "set role "+app+"; delete from public.sessions where id = 1")
	m.lapse("hold", "place", "--table", "public.sessions", "--keys", "2", "--matter", "2026-14", "--reason", "claim")
	for range 3 {
		m.lapse("audit", "--once")
	}
	m.lapse("verify", "--dir", "sink", "--save", "verified.json")
	m.lapse("prove", "--table", "public.sessions", "--key", "7", "-o", "receipt.json")
	m.write("public", m.publicKey())
	return m
}

// unpack writes the files of an archive into a folder.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	packed, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(plain); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(io.LimitReader(files, 1<<20))
		path := filepath.Join(dir, filepath.FromSlash(header.Name))
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o700)
		}
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
