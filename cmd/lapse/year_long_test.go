//go:build long

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"lapse/internal/evidencetest"
)

// A year of a log, as an auditor would have written and lapse events --export exported it, is verified: time and memory. LAPSE_YEAR_SCALE is by
// how much smaller it is (1: ten million rows deleted by 100 policies, twenty million transactions of users; default 1000), LAPSE_YEAR_DIR where
// it is written and stays.
func TestAYearIsVerified(t *testing.T) {
	scale := 1000
	if text := os.Getenv("LAPSE_YEAR_SCALE"); text != "" {
		var err error
		if scale, err = strconv.Atoi(text); err != nil || scale < 1 {
			t.Fatalf("LAPSE_YEAR_SCALE=%s", text)
		}
	}
	dir := os.Getenv("LAPSE_YEAR_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	began := time.Now()
	y := newYear(t, dir)
	y.write(20_000_000/scale, 10_000_000/scale)
	public := y.close()
	t.Logf("1:%d: %d records of the log, %d events, %d commitments' chunks, written in %s", scale, y.tree.Size(), y.events, y.files[len(y.files)-1].of.Records, time.Since(began).Round(time.Second))
	keys := filepath.Join(dir, "..", "keys-of-"+filepath.Base(dir))
	if err := os.MkdirAll(keys, 0o700); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%x\n", []byte(evidencetest.RowsKey))
	for _, epoch := range y.keys.Epochs() {
		fmt.Fprintf(&text, "%s %x\n", epoch, []byte(y.keys[epoch]))
	}
	if err := os.WriteFile(filepath.Join(keys, "rows"), text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
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
		cmd := exec.CommandContext(t.Context(), bin, append([]string{"verify", "--dir", dir, "--public-key", public}, c.args...)...)
		began := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if c.name == "counted" && !bytes.Contains(out, fmt.Appendf(nil, `"transactions": %d,`, y.tree.Size()-2)) {
			t.Errorf("of %d records it says %s", y.tree.Size(), out)
		}
		usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		t.Logf("%s: %.1f s, %.1f s of CPU, %d MB at most", c.name, time.Since(began).Seconds(), (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), usage.Maxrss>>10)
	}
}
