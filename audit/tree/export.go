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

// The files of an export, besides its tiles.
const (
	CheckpointFile = "checkpoint"
	// FormerFile holds the earlier checkpoints, oldest first, one per line. A log makes a million of them in a year. A server keeps partial
	// tiles for each, for readers that come late; they would be far larger than the log. An export needs none: a reader of all
	// entries can compute every earlier tree.
	FormerFile = "checkpoints.jsonl"
)

// formerJSON is a line of FormerFile.
type formerJSON struct {
	Note string `json:"note"`
}

// Export writes a tree to a folder as C2SP tlog-tiles, in memory that does not grow with the tree.
type Export struct {
	dir        string
	signed     []byte
	checkpoint *Checkpoint
	tiles      tiles
	bundle     []byte // the entries of the partial tile of level 0
	former     *os.File
	formerSize int64    // of the last line's checkpoint
	waiting    [][]byte // former checkpoints whose cosignatures may still come
	continued  bool     // the folder already has an export
	lines      *bufio.Writer
	sum        hash.Hash // of FormerFile
}

// NewExport begins an export of the tree of a signed note. The folder must exist and hold no part of an export.
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

// Size is the number of leaves so far.
func (e *Export) Size() int64 { return e.tiles.edge.size }

// Add takes the value of the next leaf's record. It ignores leaves that the checkpoint does not cover.
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

// Former takes a checkpoint from before the newest one, in the topic's order. It ignores anything but a checkpoint, and a checkpoint that is
// not larger than the one before it: the auditor's checkpoints grow, so this one is a copy.
func (e *Export) Former(signed []byte) error {
	c, err := Peek(signed)
	if err != nil || c.Size >= e.checkpoint.Size || c.Size <= e.formerSize {
		return nil //nolint:nilerr // another writer's
	}
	e.formerSize = c.Size
	if e.waiting = append(e.waiting, signed); len(e.waiting) <= mostWaiting {
		return nil
	}
	signed, e.waiting = e.waiting[0], e.waiting[1:]
	return e.formerLine(signed)
}

// mostWaiting is how many checkpoints may come between a checkpoint and its cosignatures. A slower witness cosigns a newer one as well.
const mostWaiting = 16

func (e *Export) formerLine(signed []byte) error {
	line, err := json.Marshal(formerJSON{string(signed)})
	if err != nil {
		return err
	}
	_, err = e.lines.Write(append(line, '\n'))
	return err
}

// Cosigned takes a checkpoint again that Export already has, now with cosignatures.
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

// write writes a tile and, for level 0, its entries.
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

// Close writes what is left, and the checkpoint last: a folder without a checkpoint is not an export. It fails without writing the checkpoint
// if the root of the leaves is not the one that the checkpoint signs.
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

// FormerSum is the SHA-256 of FormerFile, once the export is closed. The tree does not show whether a line is missing.
func (e *Export) FormerSum() string { return hex.EncodeToString(e.sum.Sum(nil)) }
