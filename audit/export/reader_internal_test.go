package export

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lapse/audit/tree"
)

// Who made the folder may want the reader's memory: a gigabyte without a line's end, which takes no room on disk, is not read to its end.
func TestALineThatIsTooLongForARecordIsFoundAndNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{ManifestFile, "log.jsonl"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, name), 1<<30); err != nil {
			t.Fatal(err)
		}
	}
	var fault *tree.Fault
	if _, err := readManifest(dir); !errors.As(err, &fault) || !strings.Contains(fault.What, "larger than any manifest") {
		t.Errorf("of the manifest it says %v", err)
	}
	l, err := (&Reader{dir: dir}).open(t.Context(), &File{Name: "log.jsonl"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if _, err := l.next(); !errors.As(err, &fault) || fault.File != "log.jsonl" || !strings.Contains(fault.What, "line 1 is longer") {
		t.Errorf("of the line it says %v", err)
	}
}
