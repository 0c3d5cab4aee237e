package durable_test

import (
	"os"
	"path/filepath"
	"testing"

	"lapse/internal/durable"
)

func TestAFileIsReplacedWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	for _, text := range []string{"a long first text", "short"} {
		if err := durable.Write(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil || string(got) != text {
			t.Errorf("%q is there, and %v; want %q", got, err, text)
		}
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := durable.Write(filepath.Join(dir, "nowhere", "file"), nil); err == nil {
		t.Error("a file in no folder is written")
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.Write(filepath.Join(dir, "folder"), []byte("text")); err == nil {
		t.Error("a folder is replaced by a file")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("%v are left, %v", left, err)
	}
}
