package config

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"lapse/schemas"
)

// KeyName is the name of a key, and of its file.
type KeyName string

// The keys.
const (
	TagKey  KeyName = "tag"  // executor and auditor: the MAC of a ledger row
	LogKey  KeyName = "log"  // auditor: signs the log
	RowsKey KeyName = "rows" // auditor: commitments to rows
	HashKey KeyName = "hash" // auditor: hashed keys
)

// KeyNames lists all keys.
func KeyNames() []KeyName { return []KeyName{TagKey, LogKey, RowsKey, HashKey} }

func (n KeyName) variable() string { return "LAPSE_KEY_" + strings.ToUpper(string(n)) }

// KeySource is the place of the keys: variables such as LAPSE_KEY_TAG, or files in a folder.
type KeySource struct {
	Dir     string
	Default bool // the folder is not configured: it is the user's default
	env     Environment
}

// ErrNoKey says that a key was neither in the environment nor in the folder.
var ErrNoKey = errors.New("there is no such key")

// Load reads one key.
func (s KeySource) Load(name KeyName) (schemas.Key, error) {
	if text, set := s.lookup(name); set {
		if name == RowsKey {
			text = firstLine(text)
		}
		key, err := parseKey(text)
		if err != nil {
			return nil, fmt.Errorf("load key %s from %s: %w", name, name.variable(), err)
		}
		return key, nil
	}
	if s.Dir == "" {
		return nil, fmt.Errorf("load key %s: %w: there is no folder for keys; set keys: in lapse.yaml or %s", name, ErrNoKey, name.variable())
	}
	return loadKey(filepath.Join(s.Dir, string(name)), name)
}

// Former reads the former keys of a name: files in the folder whose names begin with it and a hyphen, such as hash-2025, and the
// comma-separated value of the variable with _FORMER appended to its name.
func (s KeySource) Former(name KeyName) ([]schemas.Key, error) {
	var former []schemas.Key
	if s.env != nil {
		variable := name.variable() + "_FORMER"
		text, set := s.env(variable)
		for one := range strings.SplitSeq(text, ",") {
			if !set || strings.TrimSpace(one) == "" {
				continue
			}
			key, err := parseKey(one)
			if err != nil {
				return nil, fmt.Errorf("load a former key %s from %s: %w", name, variable, err)
			}
			former = append(former, key)
		}
	}
	if s.Dir == "" {
		return former, nil
	}
	files, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for former keys %s: %w", name, err)
	}
	for _, file := range files {
		if !strings.HasPrefix(file.Name(), string(name)+"-") {
			continue
		}
		key, err := loadKey(filepath.Join(s.Dir, file.Name()), name)
		if err != nil {
			return nil, err
		}
		former = append(former, key)
	}
	return former, nil
}

// Place is the variable or file that Load reads a key from.
func (s KeySource) Place(name KeyName) string {
	if _, set := s.lookup(name); set {
		return name.variable()
	}
	return filepath.Join(s.Dir, string(name))
}

// Fingerprints returns the fingerprints of keys, by their names.
func (s KeySource) Fingerprints(names ...KeyName) (map[string]string, error) {
	all := map[string]string{}
	for _, name := range names {
		key, err := s.Load(name)
		if err != nil {
			return nil, err
		}
		all[string(name)] = key.Fingerprint()
	}
	return all, nil
}

func (s KeySource) lookup(name KeyName) (string, bool) {
	if s.env == nil {
		return "", false
	}
	return s.env(name.variable())
}

func loadKey(path string, name KeyName) (schemas.Key, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("load key %s: %w at %s: run lapse init --keys %s, once for all machines, or set %s",
			name, ErrNoKey, path, filepath.Dir(path), name.variable())
	case err != nil:
		return nil, fmt.Errorf("load key %s: %w", name, err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("load key %s: %s is not a file", name, path)
	case !isPrivate(info):
		return nil, fmt.Errorf("load key %s: others may use %s (mode %04o): run chmod 600 %s; a file that is mounted may have mode 0440, "+
			"if root or a group of this process owns it", name, path, info.Mode().Perm(), path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load key %s: %w", name, err)
	}
	if name == RowsKey {
		text = []byte(firstLine(string(text)))
	}
	key, err := parseKey(string(text))
	if err != nil {
		return nil, fmt.Errorf("load key %s from %s: %w", name, path, err)
	}
	return key, nil
}

// isPrivate reports whether only the owner can change a file, and whether only the owner and a group with intended access can read it. Access is
// intended if root owns the file, or if the group is one of this process's, as with a secret that Kubernetes mounts for an fsGroup.
func isPrivate(info fs.FileInfo) bool {
	switch perm := info.Mode().Perm(); {
	case perm&0o077 == 0:
		return true
	case perm&0o037 != 0:
		return false
	}
	file, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	groups, _ := os.Getgroups() // after an error only the process's own group counts
	return file.Uid == 0 || slices.Contains(append(groups, os.Getegid()), int(file.Gid))
}

func parseKey(text string) (schemas.Key, error) {
	key, err := hex.DecodeString(strings.TrimSpace(text))
	if err != nil || len(key) != schemas.MinKey {
		// The error never quotes what it read.
		return nil, fmt.Errorf("want %d hexadecimal digits", 2*schemas.MinKey)
	}
	return key, nil
}

// Make makes the missing keys and returns their names. A key has 32 random bytes; the file named rows gets one for each month of a year. Make
// never changes an existing key. Two processes that make keys at once end up with the same ones: each links a whole file into place,
// and the first link wins.
func (s KeySource) Make() ([]KeyName, error) {
	if s.Dir == "" {
		return nil, errors.New("make keys: there is no folder for them: name one with --keys DIR")
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make keys: %w", err)
	}
	var made []KeyName
	for _, name := range KeyNames() {
		if _, set := s.lookup(name); set {
			continue
		}
		fresh, err := makeKey(filepath.Join(s.Dir, string(name)), name)
		if err != nil {
			return made, fmt.Errorf("make key %s: %w", name, err)
		}
		if fresh {
			made = append(made, name)
		}
	}
	if len(made) == 0 {
		return nil, nil
	}
	return made, syncFolder(s.Dir)
}

// RotateLog replaces the key named log. It keeps the former key in a file next to it, with its fingerprint in the name.
//
//	crash before the former key has its second name    nothing has changed
//	crash before the new key is in place               the former key has both names, and .log.next may exist: run it again
func (s KeySource) RotateLog() (next schemas.Key, former string, err error) {
	if _, set := s.lookup(LogKey); set {
		return nil, "", fmt.Errorf("key log comes from %s: set that to another key, and %s_FORMER to this one", LogKey.variable(), LogKey.variable())
	}
	key, err := s.Load(LogKey)
	if err != nil {
		return nil, "", err
	}
	path := filepath.Join(s.Dir, string(LogKey))
	former = filepath.Join(s.Dir, fmt.Sprintf("%s-%.16s", LogKey, key.Fingerprint()))
	if err := os.Link(path, former); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, "", fmt.Errorf("keep the former key log: %w", err)
	}
	if err := syncFolder(s.Dir); err != nil {
		return nil, "", err
	}
	made := filepath.Join(s.Dir, ".log.next")
	if _, err := makeKey(made, LogKey); err != nil {
		return nil, "", err
	}
	if next, err = loadKey(made, LogKey); err != nil {
		return nil, "", err
	}
	if err := os.Rename(made, path); err != nil {
		return nil, "", err
	}
	return next, former, syncFolder(s.Dir)
}

// makeKey writes a temporary file and links it to path: a crash leaves at most the temporary file.
func makeKey(path string, name KeyName) (fresh bool, err error) {
	if _, err := os.Lstat(path); err == nil {
		return false, nil
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return false, err
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	key := make([]byte, schemas.MinKey)
	if _, err := rand.Read(key); err != nil {
		return false, err
	}
	text := []byte(hex.EncodeToString(key) + "\n")
	if name == RowsKey {
		keys := schemas.EpochKeys{}
		if _, err := addMonths(keys, time.Now()); err != nil {
			return false, err
		}
		text = formatEpochKeys(key, keys)
	}
	_, err = temporary.Write(text)
	if err = errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return false, err
	}
	switch err := os.Link(temporary.Name(), path); {
	case errors.Is(err, fs.ErrExist):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil
}

func syncFolder(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Missing returns those of names for which neither the environment nor the folder has a key.
func (s KeySource) Missing(names ...KeyName) []KeyName {
	return slices.DeleteFunc(slices.Clone(names), func(name KeyName) bool {
		_, err := s.Load(name)
		return !errors.Is(err, ErrNoKey)
	})
}
