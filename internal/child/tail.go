package child

import (
	"os"
	"strings"
)

// Tail is the last lines of a log file, for an error or a failed test. What cannot be read is said in its place.
func Tail(path string, lines int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
