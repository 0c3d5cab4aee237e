package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The units start commands that there are, systemd has nothing against them, and they expose little: 0 is nothing, 100 all.
func TestTheUnitsStartCommandsThatThereAreAndExposeLittle(t *testing.T) {
	t.Parallel()
	analyze, missing := exec.LookPath("systemd-analyze")
	units, none := filepath.Glob("../../deploy/systemd/*.service")
	if none != nil || len(units) != 3 {
		t.Fatalf("%d units: %v", len(units), none)
	}
	folder, start := t.TempDir(), regexp.MustCompile(`(?m)^ExecStart=/usr/bin/lapse (\w+) (.*)$`)
	var copies []string
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		starts := start.FindStringSubmatch(string(text))
		if starts == nil {
			t.Fatalf("%s starts no command of lapse", unit)
		}
		command, _, err := newRoot(&app{}).Find(starts[1:2])
		if err != nil || command.Name() != starts[1] {
			t.Fatalf("%s starts lapse %s: %v", unit, starts[1], err)
		}
		checkFlags(t, unit, command, starts[2])
		// Where the program is not installed, systemd would say that and nothing else.
		here := filepath.Join(folder, filepath.Base(unit))
		if err := os.WriteFile(here, []byte(strings.ReplaceAll(string(text), "/usr/bin/lapse", "/bin/true")), 0o600); err != nil {
			t.Fatal(err)
		}
		copies = append(copies, here)
	}
	if missing != nil {
		t.Skip("systemd-analyze is missing: apt-get install systemd")
	}
	if out, err := exec.CommandContext(t.Context(), analyze, append([]string{"verify", "--man=no"}, copies...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	args := append([]string{"security", "--offline=true", "--no-pager", "--threshold=15"}, copies...)
	if out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
}
