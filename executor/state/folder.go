package state

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/internal/durable"
)

// Folder is the directory with the files of one or several executors. Safe for concurrent use, by several processes too.
type Folder struct {
	path    string
	address string
}

// New returns a folder, for the server of a connection. It does not access the disk.
func New(path string, database *pgx.ConnConfig) *Folder {
	addresses := []string{address(database.Host, database.Port)}
	for _, f := range database.Fallbacks {
		addresses = append(addresses, address(f.Host, f.Port))
	}
	slices.Sort(addresses)
	return &Folder{path: path, address: strings.Join(slices.Compact(addresses), ",")}
}

func address(host string, port uint16) string { return fmt.Sprintf("%s:%d", host, port) }

// Writable creates the folder if it is missing, and returns an error if it cannot be written to. It does nothing if f is nil.
func (f *Folder) Writable() error {
	if f == nil {
		return nil
	}
	if err := os.MkdirAll(f.path, 0o700); err != nil {
		return err
	}
	probe, err := os.CreateTemp(f.path, durable.Temporary)
	if err != nil {
		return err
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// Seen is the state of a database at a reading of the facts.
type Seen struct {
	System   string    `json:"system_identifier"`
	Database uint32    `json:"database_oid"`
	Started  time.Time `json:"server_started"`
	// Histories are the nonces of all accepted histories, oldest first.
	Histories []uuid.UUID `json:"histories"`
	// Beats count the writes of each memory, by its id.
	Beats map[uuid.UUID]int64 `json:"beats,omitempty"`
}

func (s *Seen) history() uuid.UUID {
	if len(s.Histories) == 0 {
		return uuid.Nil
	}
	return s.Histories[len(s.Histories)-1]
}

// file is what is remembered of one database at one address.
type file struct {
	Address string `json:"address"`
	Seen
	Memory uuid.UUID `json:"memory"`
	Beat   int64     `json:"beat"`
	At     time.Time `json:"at"`
}

// Recalled is the contents of a folder's files at one moment.
type Recalled struct {
	folder *Folder
	files  []*file
	err    error
}

// Recall reads the files. Call it before the database is read: otherwise a beat that another executor commits and writes in between would be
// in the file, but not in what was read. If f is nil it returns nothing.
func (f *Folder) Recall() *Recalled {
	if f == nil {
		return nil
	}
	files, err := f.read()
	return &Recalled{f, files, err}
}

// Compare says why a database is not the one that was last deleted from. It returns "" if it is, if a person has accepted it since, or if
// nothing is known of it. An error means that a file cannot be read.
func (m *Recalled) Compare(s *Seen) (string, error) {
	if m == nil {
		return "", nil
	}
	if m.err != nil {
		return "", m.err
	}
	why := m.difference(s)
	if why != "" {
		why += " (remembered in " + m.folder.path + ")"
	}
	return why, nil
}

func (m *Recalled) difference(s *Seen) string {
	var newest *file
	continues := false
	for _, r := range m.files {
		if !slices.Contains(r.Histories, s.history()) {
			continue // it is of another database, or was accepted since
		}
		if newest == nil || r.At.After(newest.At) {
			newest = r
		}
		if r.history() != s.history() {
			continue
		}
		if s.Beats[r.Memory] < r.Beat {
			return fmt.Sprintf("this database is older than the one that was deleted from last, at %s: a copy was restored or started", instant(r.At))
		}
		continues = continues || r.isOf(s) && (r.Address == m.folder.address || r.Started.Equal(s.Started))
	}
	switch {
	case newest == nil || continues:
		return ""
	case newest.history() != s.history():
		return fmt.Sprintf("this database is older than the history that was in force at %s: a copy was restored or started", instant(newest.At))
	}
	return fmt.Sprintf("what was deleted from last, at %s, is database %d at %s; this is database %d at %s, of a server that was started since: "+
		"a copy was restored or started, or the server moved", instant(newest.At), newest.Database, newest.Address, s.Database, m.folder.address)
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// isOf reports whether a file is of this database: the same number, on the same cluster.
func (r *file) isOf(s *Seen) bool { return r.System == s.System && r.Database == s.Database }

// Memory returns the id under which beats of a database are counted; a new one if there is none.
func (f *Folder) Memory(s *Seen) uuid.UUID {
	if r, err := readFile(f.name(s)); err == nil {
		return r.Memory
	}
	return uuid.New()
}

// Remember writes a committed beat to the file. It keeps the file if another executor has written a later beat, of the same history or of
// the next.
func (f *Folder) Remember(s *Seen, memory uuid.UUID, beat int64) error {
	name := f.name(s)
	if r, err := readFile(name); err == nil && r.Memory == memory && slices.Contains(r.Histories, s.history()) &&
		(r.history() != s.history() || r.Beat >= beat) {
		return nil
	}
	r := file{Address: f.address, Seen: *s, Memory: memory, Beat: beat, At: time.Now()}
	r.Beats = nil
	text, err := json.MarshalIndent(&r, "", "  ")
	if err = errors.Join(err, os.MkdirAll(f.path, 0o700)); err != nil {
		return err
	}
	return durable.Write(name, append(text, '\n'))
}

var named = regexp.MustCompile(`^[0-9]+-[0-9]+-[0-9a-f]{8}\.json$`)

// name returns the file's name for a database at this folder's address.
func (f *Folder) name(s *Seen) string {
	sum := sha256.Sum256([]byte(f.address))
	return filepath.Join(f.path, fmt.Sprintf("%s-%d-%x.json", s.System, s.Database, sum[:4]))
}

func (f *Folder) read() ([]*file, error) {
	entries, err := os.ReadDir(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var files []*file
	for _, entry := range entries {
		if !named.MatchString(entry.Name()) {
			continue
		}
		r, err := readFile(filepath.Join(f.path, entry.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		files = append(files, r)
	}
	return files, nil
}

func readFile(name string) (*file, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := &file{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if r.Memory == uuid.Nil || r.Beat <= 0 || len(r.Histories) == 0 {
		return nil, fmt.Errorf("read %s: it has no beat", name)
	}
	return r, nil
}
