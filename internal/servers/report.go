package servers

import (
	"fmt"
	"os"
	"path/filepath"
)

// Announcement begins a line of a test's output that names a server the tests ran on. The summary of make test
// collects them.
const Announcement = "lapse-test-server: "

// KeepLog copies a server's log to .servers/logs, so that it outlives the server's folder, and says where.
func KeepLog(path, name string) (kept string, err error) {
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "logs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	kept = filepath.Join(dir, fmt.Sprintf("%s.log", name))
	return kept, os.WriteFile(kept, content, 0o644)
}
