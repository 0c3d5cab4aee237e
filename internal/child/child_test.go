package child_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lapse/internal/child"
)

func TestAChildThatEndsIsReportedAndCannotBeSignalledAfterwards(t *testing.T) {
	t.Parallel()
	process, err := child.Start(exec.Command("sh", "-c", "exit 3"), syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code := process.State().ExitCode(); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	if err := process.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a signal after the end: %v", err)
	}
}

func TestWaitingGivesUpWithItsContextAndTheChildGoesOn(t *testing.T) {
	t.Parallel()
	process, err := child.Start(exec.Command("sleep", "60"), syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := process.Wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting gave %v", err)
	}
	if process.State() != nil {
		t.Error("the child has ended")
	}
	if err := process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAProgramThatIsNotThereIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := child.Start(exec.Command("/does/not/exist"), syscall.SIGKILL); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func TestFoldersOfEndedProcessesAreRemovedAndThoseOfLivingOnesStay(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("LAPSE_TMPDIR", "")
	t.Setenv("TMPDIR", temporary)
	living, err := child.NewFolder("kind")
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	abandoned := filepath.Join(temporary, "lapse-kind-abandoned")
	young := filepath.Join(temporary, "lapse-kind-young")
	other := filepath.Join(temporary, "lapse-other-abandoned")
	for _, dir := range []string{abandoned, young, other} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, ".owner"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{abandoned, other, living.Path} {
		if err := os.Chtimes(filepath.Join(dir, ".owner"), old, old); err != nil {
			t.Fatal(err)
		}
	}
	next, err := child.NewFolder("kind")
	if err != nil {
		t.Fatal(err)
	}
	for dir, stays := range map[string]bool{living.Path: true, next.Path: true, young: true, other: true, abandoned: false} {
		if _, err := os.Stat(dir); (err == nil) != stays {
			t.Errorf("%s: %v, want it to stay: %t", dir, err, stays)
		}
	}
	if err := living.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(living.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Remove: %v", err)
	}
}

func TestDataMayHaveAPlaceOfItsOwnAndProgramsStayInTheTemporaryFolder(t *testing.T) {
	temporary, memory := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Setenv("LAPSE_TMPDIR", memory)
	for want, makeFolder := range map[string]func(string) (*child.Folder, error){memory: child.NewFolder, temporary: child.NewProgramFolder} {
		folder, err := makeFolder("kind")
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Dir(folder.Path) != want {
			t.Errorf("%s is not in %s", folder.Path, want)
		}
		if err := folder.Remove(); err != nil {
			t.Error(err)
		}
	}
}

func TestAChildOfRootIsNobodySpecialAndReachesPrivateFolders(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root has something to drop")
	}
	account, err := child.Unprivileged()
	if err != nil {
		t.Fatal(err)
	}
	private := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(private, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nid -u; id -G\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	output, err := account.Command(program, nil).CombinedOutput()
	// A child that another test started while the program was being written keeps it open until it is another program itself.
	for tries := 0; tries < 1000 && err != nil && strings.Contains(err.Error()+string(output), "ext file busy"); tries++ {
		output, err = account.Command(program, nil).CombinedOutput()
	}
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for field := range strings.FieldsSeq(string(output)) {
		if id, err := strconv.Atoi(field); err != nil || id == 0 {
			t.Errorf("ids %q: still root", output)
		}
	}
}

func TestAFreePortIsOneThatNobodyListensOn(t *testing.T) {
	t.Parallel()
	var listener net.Listener
	var port int
	err := errors.New("not tried")
	for tries := 0; tries < 5 && err != nil; tries++ { // tests beside this one take ports too
		if port, err = child.FreePort(); err == nil {
			listener, err = net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if child.PortIsFree(port) {
		t.Error("a port is free while somebody listens on it")
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if !child.PortIsFree(port) {
		t.Error("a port is taken when nobody listens on it")
	}
}
