package folder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"

	"github.com/google/uuid"

	"lapse/internal/durable"
)

// What a folder has: see doc.go.
const (
	identityFile = "sink.json"
	lockName     = "lock"
	topicsDir    = "topics"
	// TreeDir has the log's tree, as C2SP's tlog-tiles. It does not show which rows were deleted.
	TreeDir = "tree"

	format = 1
)

// identity is the content of identityFile.
type identity struct {
	Format int       `json:"format"`
	ID     uuid.UUID `json:"id"` // of this folder, and of its copies
}

// producer is the id that names the writer in the log.
func (i *identity) producer() int64 {
	var n uint64
	for _, b := range i.ID[:8] {
		n = n<<8 | uint64(b)
	}
	return int64(n >> 1)
}

// Is reports whether a folder keeps topics.
func Is(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, identityFile))
	return err == nil
}

// readIdentity reads it; nil where the folder has never kept topics.
func readIdentity(dir string) (*identity, error) {
	path := filepath.Join(dir, identityFile)
	text, err := os.ReadFile(path)
	if isGone(err) {
		if _, err := os.Lstat(filepath.Join(dir, topicsDir)); err == nil {
			return nil, &PlaceError{dir, "it has topics, and " + identityFile + " is missing: put it back, it is in each backup of the folder"}
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var i identity
	if err := json.Unmarshal(text, &i); err != nil || i.ID == (uuid.UUID{}) {
		return nil, corrupt(path, "it is not as lapse writes it")
	}
	if i.Format != format {
		return nil, &PlaceError{dir, fmt.Sprintf("it has format %d, and this program knows %d: run the version of lapse that made it", i.Format, format)}
	}
	return &i, nil
}

// makeIdentity makes the folder one that keeps topics.
//
//	crash before it is written    there is only an empty folder
func makeIdentity(dir string) (*identity, error) {
	i, err := readIdentity(dir)
	if err != nil || i != nil {
		return i, err
	}
	i = &identity{Format: format, ID: uuid.New()}
	text, err := json.Marshal(i)
	if err != nil {
		return nil, err
	}
	return i, durable.Write(filepath.Join(dir, identityFile), append(text, '\n'))
}

// Check says what is wrong with a place for topics; nil if a publisher may be opened there. If the folder does not exist the publisher
// creates it, if its parent exists. warning is about a place that works, but that a person should know about.
func Check(dir string) (warning string, err error) {
	info, err := os.Stat(dir)
	if isGone(err) {
		parent, err := os.Stat(filepath.Dir(filepath.Clean(dir)))
		if err != nil || !parent.IsDir() {
			return "", &PlaceError{dir, "the folder above it is not there: make it, or mount what belongs there"}
		}
		return checkSystem(filepath.Dir(filepath.Clean(dir)))
	}
	switch {
	case err != nil:
		return "", &PlaceError{dir, err.Error()}
	case !info.IsDir():
		return "", &PlaceError{dir, "it is no folder"}
	}
	if err := checkOwner(dir, info); err != nil {
		return "", err
	}
	return checkSystem(dir)
}

// checkOwner refuses a folder that others may read or write: its records say who was deleted, and a writer there could write the log. A
// group with read access is allowed, because it was granted on purpose.
func checkOwner(dir string, info fs.FileInfo) error {
	if perm := info.Mode().Perm(); perm&0o027 != 0 {
		return &PlaceError{dir, fmt.Sprintf("others may use it (mode %04o): run chmod 700 %s; 0750 where a group is to read it", perm, dir)}
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() && stat.Uid != 0 {
		return &PlaceError{dir, fmt.Sprintf("it belongs to the user %d, and this process is %d: run chown %d %s", stat.Uid, os.Geteuid(), os.Geteuid(), dir)}
	}
	return nil
}

// checkInside refuses links in the folder, and file systems mounted there.
func checkInside(dir, path string) error {
	root, err := os.Stat(dir)
	if err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &PlaceError{path, "it is no folder: links are not followed"}
	}
	if deviceOf(root) != deviceOf(info) {
		return &PlaceError{path, "it is on another file system than " + dir + ": a backup of one would lack the other, so have all of it on one"}
	}
	return nil
}

func deviceOf(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Dev) //nolint:unconvert // it is 32 bits wide elsewhere
	}
	return 0
}

// makeDir makes a folder inside, and its name durable.
func (d *disk) makeDir(dir, path string) error {
	if err := os.Mkdir(path, 0o750); err == nil {
		return d.syncDir(filepath.Dir(path))
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return checkInside(dir, path)
}

// syncDir makes the names in a folder durable.
func (d *disk) syncDir(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.sync(folder)
	if closed := folder.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotDurable, err)
	}
	return nil
}

var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// topicPath is the folder of a topic.
func topicPath(dir, topic string) (string, error) {
	if !topicName.MatchString(topic) || topic == "." || topic == ".." {
		return "", &PlaceError{dir, fmt.Sprintf("topic %q: want letters, digits, dots, hyphens and underscores", topic)}
	}
	return filepath.Join(dir, topicsDir, topic), nil
}

// partitionsOf returns how many partitions a topic has: folders numbered from 0.
func partitionsOf(path string) (n int, err error) {
	for ; ; n++ {
		if info, err := os.Lstat(filepath.Join(path, strconv.Itoa(n))); isGone(err) {
			return n, nil
		} else if err != nil {
			return 0, err
		} else if !info.IsDir() {
			return n, nil
		}
	}
}
