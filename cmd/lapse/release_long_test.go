//go:build long

package main

import (
	"encoding/json"
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
	key := newSigningKey(t)
	build := func(folder, umask string) map[string]string {
		t.Helper()
		script := fmt.Sprintf(`umask %s && mkdir -p %[2]q && (cd ../.. && git ls-files -z | tar --null -T - -cf -) |
			tar -C %[2]q --no-same-permissions -xf - && exec %[2]q/scripts/release 1.2.3`, umask, folder)
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
		cmd.Env = append(os.Environ(), "NFPM="+nfpm, "SIGN="+key, "COMMIT=0123456789abcdef", "SOURCE_DATE_EPOCH=1700000000", "ARCHITECTURES="+runtime.GOARCH)
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
	if len(first) != 6 || len(second) != len(first) {
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
	checkSignature(t, key, first)
	checkBill(t, first["lapse-1.2.3-linux-"+runtime.GOARCH+".cdx.json"])
	installs(t, first["lapse_1.2.3_"+runtime.GOARCH+".deb"])
}

// newSigningKey is a throw-away key of ssh-keygen.
func newSigningKey(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		fixture.Missing(t, errors.New("ssh-keygen is missing: the package openssh-client has it"))
	}
	key := filepath.Join(t.TempDir(), "key")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "release", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return key
}

// checkSignature verifies the sums as SECURITY.md says, and refuses others.
func checkSignature(t *testing.T, key string, made map[string]string) {
	t.Helper()
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for file, text := range map[string]string{"allowed_signers": "release " + string(public), "SHA256SUMS.sig": made["SHA256SUMS.sig"]} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for text, good := range map[string]bool{made["SHA256SUMS"]: true, made["SHA256SUMS"] + " ": false} {
		cmd := exec.CommandContext(t.Context(), "ssh-keygen", "-Y", "verify", "-f", "allowed_signers", "-I", "release", "-n", "lapse-release", "-s", "SHA256SUMS.sig")
		cmd.Dir, cmd.Stdin = folder, strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); (err == nil) != good {
			t.Errorf("the sums verify: %v, want %v\n%s", err == nil, good, out)
		}
	}
}

// checkBill looks for what everybody asks about first.
func checkBill(t *testing.T, text string) {
	t.Helper()
	var bill struct {
		BOMFormat, SpecVersion string
		Metadata               struct{ Timestamp string }
		Components             []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal([]byte(text), &bill); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, c := range bill.Components {
		names[c.Name] = true
	}
	if bill.BOMFormat != "CycloneDX" || bill.SpecVersion != "1.6" || bill.Metadata.Timestamp != "2023-11-14T22:13:20Z" || !names["std"] || !names["github.com/jackc/pgx/v5"] {
		t.Errorf("the bill is %s %s of %s with %d components", bill.BOMFormat, bill.SpecVersion, bill.Metadata.Timestamp, len(names))
	}
}

// installs gives a package to dpkg, in a root of its own: it is installed over itself with a settings file that somebody changed, which stays, and
// removed.
func installs(t *testing.T, text string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Log("dpkg installs as root alone: the package is not installed")
		return
	}
	deb, root := filepath.Join(t.TempDir(), "lapse.deb"), t.TempDir()
	if err := os.WriteFile(deb, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"status", "available"} {
		if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg", file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dpkg := func(args ...string) {
		t.Helper()
		args = append([]string{"--root=" + root, "--log=" + filepath.Join(root, "log"), "--force-not-root", "--force-script-chrootless", "--force-confold"}, args...)
		if out, err := exec.CommandContext(t.Context(), "dpkg", args...).CombinedOutput(); err != nil {
			t.Fatalf("dpkg %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	dpkg("--install", deb)
	if out, err := exec.CommandContext(t.Context(), filepath.Join(root, "usr/bin/lapse"), "version").CombinedOutput(); err != nil ||
		!strings.HasPrefix(string(out), "lapse 1.2.3\ncommit   0123456789abcdef\n") {
		t.Errorf("the package's program says %v\n%s", err, out)
	}
	for file, mode := range map[string]os.FileMode{
		"usr/bin/lapse": 0o755, "etc/lapse/keys": 0o700, "etc/lapse/lapse.yaml": 0o644, "usr/lib/systemd/system/lapse.service": 0o644,
		"usr/share/man/man1/lapse.1.gz": 0o644, "usr/share/bash-completion/completions/lapse": 0o644, "usr/share/zsh/vendor-completions/_lapse": 0o644,
		"usr/share/fish/vendor_completions.d/lapse.fish": 0o644, "usr/share/lapse/lapse.schema.json": 0o644, "usr/share/lapse/policies.schema.json": 0o644,
	} {
		if is, err := os.Stat(filepath.Join(root, file)); err != nil || is.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v, want %v", file, is, err, mode)
		}
	}
	settings := filepath.Join(root, "etc/lapse/lapse.yaml")
	shipped, err := os.ReadFile(settings)
	if err != nil || !strings.HasPrefix(string(shipped), "# yaml-language-server: $schema=/usr/share/lapse/lapse.schema.json\n") {
		t.Errorf("the settings begin otherwise: %v\n%s", err, shipped)
	}
	if err := os.WriteFile(settings, []byte("slot: mine\n"), 0o644); err != nil { // #nosec G306 -- as the package has it
		t.Fatal(err)
	}
	dpkg("--install", deb)
	if kept, err := os.ReadFile(settings); err != nil || string(kept) != "slot: mine\n" {
		t.Errorf("after another version the settings are %q, %v", kept, err)
	}
	dpkg("--remove", "lapse")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/lapse")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the program is there after the package was removed: %v", err)
	}
	if kept, err := os.ReadFile(settings); err != nil || string(kept) != "slot: mine\n" {
		t.Errorf("after the removal the settings are %q, %v", kept, err)
	}
}
