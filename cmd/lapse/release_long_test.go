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
	installs(t, first)
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

// packager is a program that installs packages, here in a root of its own.
type packager struct {
	file, zsh   string   // of the package; where its completion for zsh is
	run         []string // the program and its first arguments
	again, gone string   // installs the same package again; removes it
	kept        string   // the settings that are left after the removal
}

// installs gives a release's packages to the systems' own programs: each is installed, over itself with a settings file that somebody changed,
// which stays, and removed.
func installs(t *testing.T, made map[string]string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Log("packages are installed as root alone: they are not installed")
		return
	}
	root := t.TempDir()
	for _, folder := range []string{"info", "updates", "triggers"} {
		if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg", folder), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"status", "available"} {
		if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg", file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	installsWith(t, root, made, packager{
		file: "lapse_1.2.3_" + runtime.GOARCH + ".deb", zsh: "vendor-completions",
		run:   []string{"dpkg", "--root=" + root, "--log=" + filepath.Join(root, "log"), "--force-not-root", "--force-script-chrootless", "--force-confold"},
		again: "--install", gone: "--remove", kept: "etc/lapse/lapse.yaml",
	})
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Skip("rpm is missing: apt-get install rpm")
	}
	root = t.TempDir()
	rpm := packager{
		file: "lapse-1.2.3-1." + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + ".rpm", zsh: "site-functions",
		run:   []string{"rpm", "--root=" + root, "--dbpath=/var/lib/rpm", "--nodeps"}, // nothing else is in that root
		again: "--install --replacepkgs", gone: "--erase", kept: "etc/lapse/lapse.yaml.rpmsave",
	}
	path := installsWith(t, root, made, rpm)
	out, err := exec.CommandContext(t.Context(), "rpm", "-qp", "--qf", "%{BUILDHOST} %{BUILDTIME} [%{REQUIRENAME} ]", path).CombinedOutput()
	if err != nil || string(out) != "lapse 1700000000 " {
		t.Errorf("the package for Red Hat knows where and when it was built, or needs others: %v %s", err, out)
	}
}

// installsWith installs a package in root and returns its path.
func installsWith(t *testing.T, root string, made map[string]string, p packager) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), p.file)
	if made[p.file] == "" {
		t.Fatalf("the release has no %s", p.file)
	}
	if err := os.WriteFile(path, []byte(made[p.file]), 0o600); err != nil {
		t.Fatal(err)
	}
	does := func(args string) {
		t.Helper()
		all := append(append([]string{}, p.run...), strings.Fields(args)...)
		if out, err := exec.CommandContext(t.Context(), all[0], all[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(all, " "), err, out)
		}
	}
	does("--install " + path)
	if out, err := exec.CommandContext(t.Context(), filepath.Join(root, "usr/bin/lapse"), "version").CombinedOutput(); err != nil ||
		!strings.HasPrefix(string(out), "lapse 1.2.3\ncommit   0123456789abcdef\n") {
		t.Errorf("%s: the program says %v\n%s", p.file, err, out)
	}
	for file, mode := range map[string]os.FileMode{
		"usr/bin/lapse": 0o755, "etc/lapse/keys": 0o700, "etc/lapse/lapse.yaml": 0o644, "usr/lib/systemd/system/lapse.service": 0o644,
		"usr/share/man/man1/lapse.1.gz": 0o644, "usr/share/bash-completion/completions/lapse": 0o644, "usr/share/zsh/" + p.zsh + "/_lapse": 0o644,
		"usr/share/fish/vendor_completions.d/lapse.fish": 0o644, "usr/share/lapse/lapse.schema.json": 0o644, "usr/share/lapse/policies.schema.json": 0o644,
	} {
		if is, err := os.Stat(filepath.Join(root, file)); err != nil || is.Mode().Perm() != mode {
			t.Errorf("%s: %s: %v, %v, want %v", p.file, file, is, err, mode)
		}
	}
	settings := filepath.Join(root, "etc/lapse/lapse.yaml")
	shipped, err := os.ReadFile(settings)
	if err != nil || !strings.HasPrefix(string(shipped), "# yaml-language-server: $schema=/usr/share/lapse/lapse.schema.json\n") {
		t.Errorf("%s: the settings begin otherwise: %v\n%s", p.file, err, shipped)
	}
	if err := os.WriteFile(settings, []byte("slot: mine\n"), 0o644); err != nil { // #nosec G306 -- as the package has it
		t.Fatal(err)
	}
	does(p.again + " " + path)
	if kept, err := os.ReadFile(settings); err != nil || string(kept) != "slot: mine\n" {
		t.Errorf("%s: after another version the settings are %q, %v", p.file, kept, err)
	}
	does(p.gone + " lapse")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/lapse")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: the program is there after the package was removed: %v", p.file, err)
	}
	if kept, err := os.ReadFile(filepath.Join(root, p.kept)); err != nil || string(kept) != "slot: mine\n" {
		t.Errorf("%s: after the removal the settings are %q, %v", p.file, kept, err)
	}
	return path
}
