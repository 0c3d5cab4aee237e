//go:build long

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"lapse/internal/fixture"
)

// Two people who build a release from the same sources, in folders of their own and with another umask, get the same bytes. What they get is a
// program that says its version, and a package that has it.
func TestAReleaseIsTheSameBytesForEverybody(t *testing.T) {
	t.Parallel()
	tools, err := filepath.Glob("../../.bin/nfpm-*/nfpm")
	if err != nil || len(tools) == 0 {
		fixture.Missing(t, errors.New("nfpm is missing: make release installs it"))
	}
	nfpm, err := filepath.Abs(tools[len(tools)-1])
	if err != nil {
		t.Fatal(err)
	}
	build := func(folder, umask string) map[string]string {
		t.Helper()
		script := fmt.Sprintf(`umask %s && mkdir -p %[2]q && (cd ../.. && git ls-files -z | tar --null -T - -cf -) |
			tar -C %[2]q --no-same-permissions -xf - && exec %[2]q/scripts/release 1.2.3`, umask, folder)
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
		cmd.Env = append(os.Environ(), "NFPM="+nfpm, "COMMIT=0123456789abcdef", "SOURCE_DATE_EPOCH=1700000000", "ARCHITECTURES="+runtime.GOARCH)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		made := map[string]string{}
		files, err := os.ReadDir(filepath.Join(folder, "dist"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(filepath.Join(folder, "dist", file.Name()))
			if err != nil {
				t.Fatal(err)
			}
			made[file.Name()] = string(text)
		}
		return made
	}
	first, second := build(filepath.Join(t.TempDir(), "a"), "022"), build(filepath.Join(t.TempDir(), "some other folder"), "002")
	if len(first) != 5 || len(second) != len(first) {
		t.Fatalf("a release has %d files, and %d", len(first), len(second))
	}
	for name, text := range first {
		if second[name] != text {
			t.Errorf("%s is not the same bytes twice", name)
		}
	}
	if sums := first["SHA256SUMS"]; strings.Count(sums, "\n") != 4 {
		t.Errorf("the sums:\n%s", sums)
	}
	deb, root := filepath.Join(t.TempDir(), "lapse.deb"), t.TempDir()
	if err := os.WriteFile(deb, []byte(first["lapse_1.2.3_"+runtime.GOARCH+".deb"]), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--extract", deb, root).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), filepath.Join(root, "usr/bin/lapse"), "version").CombinedOutput(); err != nil ||
		!strings.HasPrefix(string(out), "lapse 1.2.3\ncommit   0123456789abcdef\n") {
		t.Errorf("the package's program says %v\n%s", err, out)
	}
	for file, mode := range map[string]os.FileMode{"usr/bin/lapse": 0o755, "etc/lapse/keys": 0o700, "etc/lapse/lapse.yaml": 0o644, "usr/lib/systemd/system/lapse.service": 0o644} {
		if is, err := os.Stat(filepath.Join(root, file)); err != nil || is.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want %v", file, is, err, mode)
		}
	}
}
