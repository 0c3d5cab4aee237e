package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"

	"lapse/audit/tree"
	"lapse/internal/durable"
)

// ManifestFile is the name of the manifest, which is written last: a folder without it is not an export.
const ManifestFile = "export.json"

// Manifest says what an export has.
type Manifest struct {
	Format int    `json:"format"` // the files' format: 1
	Topics Topics `json:"topics"`
	Files  []File `json:"files"` // the log's first, then the topics'
	Tree   *Tree  `json:"tree"`  // null if the log has no checkpoint yet
}

// Topics are the names of the topics.
type Topics struct {
	System string `json:"system"`
	User   string `json:"user"`
	Log    string `json:"log"`
	Proofs string `json:"proofs"` // commitments to single rows
}

// File is one partition, from First up to but not including End.
type File struct {
	Name      string `json:"name"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	First     int64  `json:"first"`
	End       int64  `json:"end"`
	Records   int    `json:"records"`
	SHA256    string `json:"sha256"` // the file's
}

// Tree is the log's tree.
type Tree struct {
	Log       string  `json:"log"` // the log's name: the origin of its checkpoints
	Records   int64   `json:"records"`
	Root      string  `json:"root"`
	Former    string  `json:"former_sha256"` // of the file with the earlier checkpoints
	PublicKey *string `json:"public_key"`    // null if the key named log was not available
}

// InputError says that a folder, or a state that was saved, cannot be used: it is no export, nobody can verify it, or it does not fit.
type InputError struct{ cause error }

func (e *InputError) Error() string { return e.cause.Error() }
func (e *InputError) Unwrap() error { return e.cause }

func invalid(format string, args ...any) error {
	return &InputError{fmt.Errorf(format, args...)}
}

func fault(file string, leaf int64, format string, args ...any) error {
	return &tree.Fault{File: file, Leaf: leaf, What: fmt.Sprintf(format, args...)}
}

// FileName is the name of a partition's file.
func FileName(topic string, partition int32) string {
	return fmt.Sprintf("%s-%d.jsonl", topic, partition)
}

// longestText bounds how much of a manifest or of a line is read at once, because the folder's maker may intend to fill the memory. No
// topic's record makes a longer line.
const longestText = 64 << 20

// readManifest reads an export's manifest, and requires the form in which lapse writes it.
func readManifest(dir string) (*Manifest, error) {
	file, err := os.Open(filepath.Join(dir, ManifestFile))
	if err != nil {
		return nil, invalid("%w: a folder without it is no export", err)
	}
	defer func() { _ = file.Close() }() // opened for reading only
	text, err := io.ReadAll(io.LimitReader(file, longestText+1))
	if err != nil {
		return nil, err
	}
	if len(text) > longestText {
		return nil, fault(ManifestFile, -1, "it is larger than any manifest")
	}
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fault(ManifestFile, -1, "%v", err)
	}
	again, err := m.text()
	if err != nil {
		return nil, err
	}
	switch {
	case !bytes.Equal(again, text) || m.Format != 1 || len(m.Files) == 0:
		return nil, fault(ManifestFile, -1, "it is not as lapse writes it")
	case m.Tree == nil:
		return nil, invalid("%s: the log had no checkpoint when this was exported: nobody can verify it", dir)
	}
	for i, f := range m.Files {
		ours := f.Topic == m.Topics.System || f.Topic == m.Topics.User || f.Topic == m.Topics.Proofs
		if i == 0 {
			ours = f.Topic == m.Topics.Log && f.Partition == 0
		}
		if !ours || f.Name != FileName(f.Topic, f.Partition) {
			return nil, fault(ManifestFile, -1, "%s is not the file of a topic's partition", f.Name)
		}
	}
	return m, nil
}

// Write writes the manifest into a folder, whole or not at all.
func (m *Manifest) Write(dir string) error {
	text, err := m.text()
	if err != nil {
		return err
	}
	if err := durable.Write(filepath.Join(dir, ManifestFile), text); err != nil {
		return fmt.Errorf("write the export's manifest: %w", err)
	}
	return nil
}

// text is the manifest's file content.
func (m *Manifest) text() ([]byte, error) {
	text, err := json.MarshalIndent(m, "", "  ")
	return append(text, '\n'), err
}

// file returns the manifest's entry of a partition; nil without an entry or a manifest.
func (m *Manifest) file(topic string, partition int32) *File {
	if m == nil {
		return nil
	}
	for i := range m.Files {
		if f := &m.Files[i]; f.Topic == topic && f.Partition == partition {
			return f
		}
	}
	return nil
}

// under reports whether the manifest's key, if it has one, is the key that signed the newest checkpoint.
func (t *Tree) under(by note.Verifier) bool {
	if t.PublicKey == nil {
		return true
	}
	named, err := note.NewVerifier(*t.PublicKey)
	return err == nil && named.Name() == by.Name() && named.KeyHash() == by.KeyHash()
}
