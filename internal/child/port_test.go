package child

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// asksFor has the test below ask for a port in a process of its own.
const asksFor = "LAPSE_TEST_PORT"

func TestAPortIsGivenOnceUntilItsProcessEnds(t *testing.T) {
	if asked := os.Getenv(asksFor); asked != "" {
		port, err := strconv.Atoi(asked)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := reserve(port)
		t.Logf("given: %t, %v", ours, err)
		return
	}
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	if ours, err := reserve(port); ours || err != nil {
		t.Errorf("given twice in one process: %t, %v", ours, err)
	}
	if said := askElsewhere(t, port); !strings.Contains(said, "given: false, <nil>") {
		t.Errorf("another process is given it too:\n%s", said)
	}
	// Below the ports that tests are given.
	for range 2 {
		if said := askElsewhere(t, firstPort-1); !strings.Contains(said, "given: true, <nil>") {
			t.Errorf("a port is not given, or not again when its process has ended:\n%s", said)
		}
	}
}

func askElsewhere(t *testing.T, port int) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), asksFor+"="+strconv.Itoa(port))
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return string(said)
}
