package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// capDACOverride lets a process pass by file permissions (capabilities(7)).
const capDACOverride = 1

// Account is who runs a child that refuses root. The zero Account is this process's own user.
type Account struct {
	uid, gid uint32
	dropped  bool
}

// Unprivileged is this process's own user, or, for root, the first of postgres and nobody that exists.
func Unprivileged() (Account, error) {
	if os.Geteuid() != 0 {
		return Account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(found.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(found.Gid, 10, 32)
		if err != nil {
			continue
		}
		return Account{uid: uint32(uid), gid: uint32(gid), dropped: true}, nil
	}
	return Account{}, errors.New("drop root: there is neither a user postgres nor a user nobody; run this as an ordinary user")
}

// Command is a command that runs as this account and can reach the given paths, and its own. Where one of them lies below
// somebody's private folder (a clone in /root), the child keeps the one capability that lets it pass. A capability kept
// over the change of account is not in effect before the next exec: so a shell comes first, and gives its process away.
func (a Account) Command(path string, args []string, reach ...string) *exec.Cmd {
	cmd := exec.Command(path, args...) //nolint:noctx // A server outlives the context of its start.
	if !a.dropped {
		return cmd
	}
	attr := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: a.uid, Gid: a.gid}}
	if slices.ContainsFunc(append(reach, path), func(path string) bool { return !searchable(path) }) {
		cmd = exec.Command("/bin/sh", append([]string{"-c", `exec "$0" "$@"`, path}, args...)...) //nolint:noctx // As above.
		attr.AmbientCaps = []uintptr{capDACOverride}
	}
	cmd.SysProcAttr = attr
	return cmd
}

// Passes says whether this account may pass through every folder above path without that capability. Some programs ask
// access(2) about their own files, which does not count it.
func (a Account) Passes(path string) bool { return !a.dropped || searchable(path) }

// Own hands a file or folder to the account.
func (a Account) Own(path string) error {
	if !a.dropped {
		return nil
	}
	if err := os.Chown(path, int(a.uid), int(a.gid)); err != nil {
		return fmt.Errorf("hand over %s: %w", path, err)
	}
	return nil
}

// searchable says whether everybody may pass through every folder above path.
func searchable(path string) bool {
	path, err := filepath.Abs(path)
	if err != nil {
		return false
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}
