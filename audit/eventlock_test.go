package audit_test

import (
	"path/filepath"
	"strings"
	"testing"

	"lapse/audit"
)

func TestASecondProcessIsKeptFromAFileOfEventsAndADeviceIsAStream(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.jsonl")
	first, err := audit.OpenEventFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := audit.OpenEventFile(path); err == nil || !strings.Contains(err.Error(), "another process writes to it") {
		t.Errorf("a second process got %v, want to be refused", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := audit.OpenEventFile(path)
	if err != nil {
		t.Fatalf("after the end of the first: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if _, err := audit.OpenEventFile("/dev/null"); err != nil {
		t.Errorf("/dev/null: %v", err)
	}
}
