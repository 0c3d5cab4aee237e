package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lapse/internal/config"
	"lapse/internal/setup/doctor"
)

func TestTheDoctorSaysWhenTheMonthsOfTheRowsKeyEnd(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("ab", 32)
	dir := t.TempDir()
	text := key + "\n2026-10 " + key + "\n2026-11 " + key + "\n2026-12 " + key + "\n2027-01 destroyed\n2027-02 " + key + "\n"
	if err := os.WriteFile(filepath.Join(dir, "rows"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]doctor.Grade{
		"2026-10-31T00:00:00Z": doctor.OK, "2026-11-02T00:00:01Z": doctor.Warn, "2026-12-31T23:59:59Z": doctor.Warn,
		"2027-01-01T00:00:00Z": doctor.Fail, "2027-02-01T00:00:00Z": doctor.Warn, "2027-03-01T00:00:00Z": doctor.Fail,
	} {
		now, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		found := examineKeys(config.KeySource{Dir: dir}, now)
		if len(found) != 1 || found[0].Grade != want || (want == doctor.OK) != (found[0].Advice == "") {
			t.Errorf("%s: %+v", at, found)
		}
	}
	if found := examineKeys(config.KeySource{Dir: t.TempDir()}, time.Now()); len(found) > 0 {
		t.Errorf("a machine without keys: %+v", found)
	}
}
