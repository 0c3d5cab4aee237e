//go:build long

package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"lapse/audit/export"
	"lapse/audit/tree"
	"lapse/schemas"
)

// A report of a year with 100 policies: memory does not grow with the log. The time for each record is logged; scaling it is the reader's.
func TestAReportOfALargeLogTakesNoMoreMemory(t *testing.T) {
	t.Parallel()
	var memory []int64
	for _, records := range []int{60_000, 240_000} {
		dir, public := largeExport(t, records)
		m := newMachine(t, "")
		cmd := exec.CommandContext(t.Context(), m.bin, "report", "--dir", dir, "--public-key", public, "--from", "begin", "-o", "report.json")
		cmd.Dir, cmd.Env = m.dir, m.env
		began := time.Now()
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 0 || bytes.Count(out, []byte("rows deleted")) != 100 {
			t.Fatalf("%v\n%.2000s", err, out)
		}
		used := cmd.ProcessState.SysUsage().(*syscall.Rusage) //nolint:forcetypeassert // where these tests run
		cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		t.Logf("%d records: %v, %v of CPU, %v for each record; %d MB at most", records, time.Since(began).Round(time.Millisecond), cpu.Round(time.Millisecond),
			(cpu / time.Duration(records)).Round(time.Microsecond), used.Maxrss/1024)
		memory = append(memory, used.Maxrss)
	}
	if memory[1] > memory[0]*3/2 {
		t.Errorf("four times as many records take %d KB, and not %d", memory[1], memory[0])
	}
}

// largeExport writes the log of an export: users' transactions, a batch for each two of them, and heartbeats with checkpoints.
func largeExport(t *testing.T, records int) (dir, public string) {
	t.Helper()
	key, err := tree.NewKey(schemas.Key(bytes.Repeat([]byte{7}, schemas.MinKey)), "app.example.com/large")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	file, err := os.Create(filepath.Join(dir, export.FileName("large", 0)))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	w := &largeLog{t: t, to: bufio.NewWriterSize(io.MultiWriter(file, sum), 1<<16), tree: tree.New(key), at: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)}
	pace := 365 * 24 * time.Hour / time.Duration(records)
	w.record("origin", `"slot":"s","consistent_point":"0/1","keys":[]`)
	w.record("route", `"routing":{}`)
	w.beat()
	for p := range 100 {
		terms := `{"expire":{"column":"at","after":"30 days"},"every":"00:05:00","action":"delete","evidence":"due","latitude":"1 day"}`
		w.record("policy", fmt.Sprintf(`%s,"row":"version","op":"insert","is":{"policy":"p%d","id":%[2]d,"version":1,"table":"public.p%[2]d","table_oid":%d,"terms":%s}`, w.committed(), p+1, p+101, terms))
		w.record("policy", fmt.Sprintf(`%s,"row":"state","op":"insert","is":{"id":%d,"version":1,"state":"armed"}`, w.committed(), p+1))
	}
	for i := range records {
		p := i%100 + 1
		switch {
		case i%3 == 0:
			w.record("transaction", fmt.Sprintf(`%s,"verdict":"match","claim":{"policy":"p%d","policy_version":1,"run":"%s","batch":"%s","cutoff":%q,"hold_version":0,"target":%d,"functions":"00"},`+
				`"claimed":{"picked":5,"deleted":5,"by_relation":[{"table_oid":%[6]d,"rows":5}]},"observed":[{"table":"public.p%[2]d","table_oid":%[6]d,"op":"delete","cause":"system","cascade":false,"events":5,"due":5,"not_due":0,"unknown":0}]`,
				w.committed(), p, uuid.New(), uuid.New(), w.at.Format(time.RFC3339Nano), p+100))
		case i%500 == 1:
			w.beat()
		default:
			w.record("transaction", fmt.Sprintf(`%s,"verdict":"unclaimed","observed":[{"table":"public.p%d","table_oid":%d,"op":"delete","cause":"user","cascade":false,"events":1}]`, w.committed(), p, p+100))
		}
		w.at = w.at.Add(pace)
	}
	w.beat()
	if err := w.to.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	public = key.Public()
	e := &export.Manifest{Format: 1, Topics: export.Topics{System: "s", User: "u", Log: "large", Proofs: "p"}, Tree: &export.Tree{Log: "app.example.com/large", PublicKey: &public}}
	e.Files = []export.File{{Name: export.FileName("large", 0), Topic: "large", End: w.offset, Records: int(w.offset), SHA256: hex.EncodeToString(sum.Sum(nil))}}
	if err := e.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir, public
}

// largeLog writes a log's file line by line.
type largeLog struct {
	t      *testing.T
	to     *bufio.Writer
	tree   *tree.Tree
	at     time.Time
	offset int64
	lsn    uint64
	xid    uint32
}

func (w *largeLog) committed() string {
	w.xid++
	return fmt.Sprintf(`"commit_lsn":"%X/%X","commit_timestamp":%q,"xid":%d`, (w.lsn+128)>>32, uint32(w.lsn+128), w.at.Format(time.RFC3339Nano), w.xid)
}

func (w *largeLog) record(kind, members string) {
	w.lsn += 256
	value := fmt.Appendf(nil, `{"kind":%q,"schema":1,"system_identifier":"7","database":"app","database_oid":5,"route_version":1,"route":"r","history":1,`+
		`"nonce":"0198f1d0-0000-7000-8000-0000000000aa","timeline":1,"reached":"%X/%X","seq":0,%s}`, kind, w.lsn>>32, uint32(w.lsn), members)
	leaf := w.tree.Next(value)
	w.tree.Add(leaf)
	w.line(value, leaf.AppendHeaders([]schemas.Header{{Key: schemas.HeaderOp, Value: []byte(kind)}}))
}

// beat adds a heartbeat, and signs all there is.
func (w *largeLog) beat() {
	at := w.at.Format(time.RFC3339Nano)
	w.record("coverage", fmt.Sprintf(`"at":%q,"heartbeat":{"nonce":"%s","at":%[1]q,"history":1,"timeline":1,"server_start":%[1]q,"faults":0},"ancestry":[]`, at, uuid.New()))
	snapshot, err := w.tree.Snapshot()
	if err != nil {
		w.t.Fatal(err)
	}
	value, _, err := snapshot.Sign(w.offset)
	if err != nil {
		w.t.Fatal(err)
	}
	w.line(value, []schemas.Header{{Key: schemas.HeaderOp, Value: []byte(schemas.OpFence)}})
}

func (w *largeLog) line(value []byte, headers []schemas.Header) {
	text, err := export.LineOf(&schemas.Record{Time: w.at, Headers: headers, Value: value}, w.offset).Text()
	if err == nil {
		_, err = w.to.Write(text)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.offset++
}
