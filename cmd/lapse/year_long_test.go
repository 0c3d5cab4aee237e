//go:build long

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/folder"
	"lapse/audit/tree"
	"lapse/internal/evidencetest"
	"lapse/schemas"
)

// A year of a log is verified, once as lapse events --export exports it, once in the folder where an auditor keeps topics: time and memory.
// It has a heartbeat a minute, and a checkpoint each half minute. LAPSE_YEAR_SCALE is by how much smaller it is (1: ten million rows deleted by
// 100 policies, twenty million transactions of users; default 1000), LAPSE_YEAR_DIR where it is written and stays.
func TestAYearIsVerified(t *testing.T) {
	scale := 1000
	if text := os.Getenv("LAPSE_YEAR_SCALE"); text != "" {
		var err error
		if scale, err = strconv.Atoi(text); err != nil || scale < 1 {
			t.Fatalf("LAPSE_YEAR_SCALE=%s", text)
		}
	}
	for form, begin := range map[string]func(t *testing.T, dir string) (y *year, end func() string){
		"export": func(t *testing.T, dir string) (*year, func() string) { y := yearOf(t, dir, yearLog); return y, y.close }, "sink": newSink,
	} {
		t.Run(form, func(t *testing.T) {
			dir := os.Getenv("LAPSE_YEAR_DIR")
			if dir == "" {
				dir = t.TempDir()
			}
			dir = filepath.Join(dir, form)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			y, end := begin(t, dir)
			y.write(20_000_000/scale, 10_000_000/scale)
			public := end()
			t.Logf("1:%d: %d records of the log, %d checkpoints, %d events, %d commitments' chunks, written in %s", scale, y.tree.Size(), len(y.notes), y.events,
				y.files[len(y.files)-1].of.Records, time.Since(began).Round(time.Second))
			verifyYear(t, y, public)
		})
	}
}

func verifyYear(t *testing.T, y *year, public string) {
	keys := y.dir + "-keys"
	if err := os.MkdirAll(keys, 0o700); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%x\n", []byte(evidencetest.RowsKey))
	for _, epoch := range y.keys.Epochs() {
		fmt.Fprintf(&text, "%s %x\n", epoch, []byte(y.keys[epoch]))
	}
	public += "\n"
	for name, text := range map[string][]byte{"rows": text.Bytes(), "public": []byte(public)} {
		if err := os.WriteFile(filepath.Join(keys, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bin, err := built.binary()
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(keys, "verified.json")
	for _, c := range []struct {
		name string
		args []string
	}{
		{"counted", []string{"--save", state, "--json"}},
		{"with the months' keys", []string{"--keys", keys}},
		{"again, from there on", []string{"--known", state}},
	} {
		cmd := exec.CommandContext(t.Context(), bin, append([]string{"verify", "--dir", y.dir, "--public-key", filepath.Join(keys, "public")}, c.args...)...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		began := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		memory := make(chan string)
		go func() { memory <- mostMemory(cmd.Process.Pid) }()
		err := cmd.Wait()
		most, out := <-memory, said.Bytes()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if c.name == "counted" && !bytes.Contains(out, fmt.Appendf(nil, `"transactions": %d,`, y.accounts)) {
			t.Errorf("of %d transactions it says %s", y.accounts, out)
		}
		t.Logf("%s: %.1f s, %.1f s of CPU, at most %s", c.name, time.Since(began).Seconds(), (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), most)
	}
}

// mostMemory returns the most memory that a process had, once it has ended. What wait says is at least what the test had when it began the process.
func mostMemory(pid int) (most string) {
	for range time.Tick(10 * time.Millisecond) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, after, found := strings.Cut(string(status), "VmHWM:")
		if err != nil || !found {
			return most
		}
		line, _, _ := strings.Cut(after, "\n")
		most = strings.TrimSpace(line)
	}
	return most
}

// write writes transactions of users, of one row each, and batches of policies among them.
func (y *year) write(users, deleted int) {
	const batch = 1000
	batches := max(deleted/batch, 1)
	y.pause = 365 * 24 * time.Hour / time.Duration(users+batches)
	y.signs = 20
	beat := evidence.Heartbeat{History: 1, Timeline: 1, ServerStart: y.at}
	y.before = func() {
		if y.at.Sub(beat.At) < time.Minute {
			return
		}
		y.lsn += 0x1000
		beat.Former, beat.At = beat.Nonce, y.at.Truncate(time.Microsecond)
		binary.BigEndian.PutUint64(beat.Nonce[:], uint64(y.lsn))
		y.record(&evidence.CoverageContent{At: beat.At, Heartbeat: &beat}, y.lsn, 0)
	}
	y.transactions(users, users/batches, deleted/batches)
}

// sink is a folder that keeps topics, as an auditor writes it.
type sink struct {
	*year
	publisher *folder.Publisher
	appended  uint64 // the number of the last record
	tree      *tree.Published
}

func newSink(t *testing.T, dir string) (y *year, end func() string) {
	s := &sink{year: newYear(t, dir, yearLog), tree: tree.NewPublished(filepath.Join(dir, folder.TreeDir))}
	var topics []folder.Topic
	for _, f := range s.files {
		if f.of.Partition == 0 {
			topics = append(topics, folder.Topic{Name: f.of.Topic})
		}
		topics[len(topics)-1].Partitions++
		f.of.Records = 1 // the publisher's fence
	}
	var err error
	// The tree is finished once, at the end: an auditor does so at each checkpoint.
	if s.publisher, err = folder.Open(t.Context(), folder.Config{Dir: dir, Topics: topics, MaxBuffered: 16 << 20}); err != nil {
		t.Fatal(err)
	}
	s.year.keep = s.append
	return s.year, s.end
}

func (s *sink) append(f *yearFile, rec *schemas.Record) {
	stored := *rec
	stored.Topic, stored.Partition = f.of.Topic, f.of.Partition
	if f == s.files[0] && !rec.IsFence() {
		if err := s.tree.Add(rec.Value); err != nil {
			s.t.Fatal(err)
		}
	}
	for {
		number, ok := s.publisher.Append(stored)
		if ok {
			s.appended = number
			f.of.Records++
			return
		}
		s.progress()
	}
}

func (s *sink) progress() {
	if err := s.publisher.Err(); err != nil {
		s.t.Fatal(err)
	}
	<-s.publisher.Progress()
}

// end waits until everything is on disk, and writes the tree.
func (s *sink) end() string {
	for s.publisher.Acked() < s.appended {
		s.progress()
	}
	var former bytes.Buffer
	last := len(s.notes) - 1
	for _, signed := range s.notes[:last] {
		line, err := json.Marshal(map[string]string{"note": string(signed)})
		if err != nil {
			s.t.Fatal(err)
		}
		former.Write(append(line, '\n'))
	}
	err := errors.Join(s.publisher.Close(s.t.Context()), s.tree.Publish(s.notes[last]),
		os.WriteFile(filepath.Join(s.dir, folder.TreeDir, tree.FormerFile), former.Bytes(), 0o600))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.year.key.Public()
}
