package tree

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"

	"lapse/internal/durable"
)

// The files of an export beside its tiles.
const (
	CheckpointFile = "checkpoint"
	// FormerFile has the checkpoints before it, one in a line, in their order. A log has a million of them in a year: each with partial
	// tiles of its own, as a server keeps them for readers that come late, would be far more than the log. They need none here: a
	// reader that has all entries has every tree that there was.
	FormerFile = "checkpoints.jsonl"
)

// formerJSON is a line of FormerFile.
type formerJSON struct {
	Note string `json:"note"`
}

// Export writes a tree into a folder, as C2SP's tlog-tiles. Its memory does not grow with the tree.
type Export struct {
	dir        string
	signed     []byte
	checkpoint *Checkpoint
	tiles      tiles
	bundle     []byte // the entries beside the tile of level 0 that is not full
	former     *os.File
	formerSize int64    // of its last line
	waiting    [][]byte // former checkpoints that may still be cosigned
	continued  bool     // the folder has an export already
	lines      *bufio.Writer
	sum        hash.Hash // of FormerFile
}

// NewExport begins an export of the tree that a signed note is of. The folder is there, and has nothing of an export.
func NewExport(dir string, signed []byte) (e *Export, err error) {
	e = &Export{dir: dir, signed: signed, sum: sha256.New()}
	if e.checkpoint, err = Peek(signed); err != nil {
		return nil, fmt.Errorf("export a checkpoint: %w", err)
	}
	e.tiles.done = e.write
	e.former, err = os.OpenFile(filepath.Join(dir, FormerFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	e.lines = bufio.NewWriter(io.MultiWriter(e.former, e.sum))
	return e, nil
}

// Size is how many leaves the tree has so far.
func (e *Export) Size() int64 { return e.tiles.edge.size }

// Add takes the value of the next leaf's record. What the checkpoint does not cover is left out.
func (e *Export) Add(value []byte) (err error) {
	if e.Size() >= e.checkpoint.Size {
		return nil
	}
	entry := Entry(value)
	if e.bundle, err = torchwood.AppendTileEntry(e.bundle, entry); err != nil {
		return err
	}
	return e.tiles.add(tlog.RecordHash(entry))
}

// Former takes a checkpoint from before the newest one, in the order of the topic. What is no checkpoint is left out, and so is one that
// is not larger than the one before it: an auditor's are, and somebody has copied this one.
func (e *Export) Former(signed []byte) error {
	c, err := Peek(signed)
	if err != nil || c.Size >= e.checkpoint.Size || c.Size <= e.formerSize {
		return nil //nolint:nilerr // somebody else wrote it
	}
	e.formerSize = c.Size
	if e.waiting = append(e.waiting, signed); len(e.waiting) <= mostWaiting {
		return nil
	}
	signed, e.waiting = e.waiting[0], e.waiting[1:]
	return e.formerLine(signed)
}

// mostWaiting is how many checkpoints there may be between one and its cosignatures. A witness that takes longer has the newer ones too.
const mostWaiting = 16

func (e *Export) formerLine(signed []byte) error {
	line, err := json.Marshal(formerJSON{string(signed)})
	if err != nil {
		return err
	}
	_, err = e.lines.Write(append(line, '\n'))
	return err
}

// Cosigned takes a checkpoint that was handed over before, with cosignatures.
func (e *Export) Cosigned(signed []byte) {
	if _, err := Peek(signed); err != nil {
		return
	}
	if bytes.HasPrefix(signed, e.signed) {
		e.signed = signed
	}
	for i, former := range e.waiting {
		if bytes.HasPrefix(signed, former) {
			e.waiting[i] = signed
		}
	}
}

// write writes a tile, and of level 0 its entries.
func (e *Export) write(t tlog.Tile, hashes []tlog.Hash) error {
	if t.L == 0 {
		if err := e.file(torchwood.TilePath(bundleAt(t)), e.bundle); err != nil {
			return err
		}
		e.bundle = e.bundle[:0]
	}
	return e.file(torchwood.TilePath(t), bytesOf(hashes))
}

func (e *Export) file(name string, content []byte) error {
	path := filepath.Join(e.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

// Close writes what is left, and the checkpoint last: a folder without one is no export. It is an error if the leaves do not come to the
// tree that the checkpoint is of; nobody has to trust the folder then, and nobody can.
func (e *Export) Close() error {
	for _, signed := range e.waiting {
		if err := e.formerLine(signed); err != nil {
			return err
		}
	}
	err := errors.Join(e.tiles.end(), e.lines.Flush(), e.former.Sync(), e.former.Close())
	switch {
	case err != nil:
		return err
	case e.Size() < e.checkpoint.Size:
		return fmt.Errorf("the newest checkpoint is of %d records of the log, and the topic has %d", e.checkpoint.Size, e.Size())
	case e.tiles.edge.root() != e.checkpoint.Root:
		return fmt.Errorf("the %d records of the log are not those that its newest checkpoint signs", e.Size())
	}
	return errors.Join(durable.Write(filepath.Join(e.dir, CheckpointFile), e.signed), e.sweep())
}

// FormerSum is the SHA-256 of FormerFile, once the export is closed. No tree shows that one of its lines is missing.
func (e *Export) FormerSum() string { return hex.EncodeToString(e.sum.Sum(nil)) }
