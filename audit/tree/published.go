package tree

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"

	"lapse/internal/durable"
)

// Published keeps a growing tree in a folder as C2SP tlog-tiles, from one checkpoint to the next. A partial tile stays in the folder until
// the full one is there, so that a reader of an earlier checkpoint can finish. Memory does not grow with the tree, but with the names of the
// files between two checkpoints. The folder is derived from the log's records and can be rebuilt from them: the auditor rebuilds a folder that
// lacks what it needs to continue, or that is empty. Only a verifier notices other missing files. For one goroutine.
//
// A crash before a checkpoint is in place leaves the former checkpoint with all of its files; the other files are written again. A crash
// after it may leave partial tiles next to the full ones.
type Published struct {
	dir        string
	tiles      tiles
	bundle     []byte // the entries of the partial tile of level 0
	checkpoint []byte // in place; nil if there is none
	unsynced   []string
	full       []string // tiles that became full
}

// OpenPublished continues a folder from its checkpoint. If it returns an error, the folder cannot be continued: rebuild it with
// NewPublished.
func OpenPublished(dir string) (*Published, error) {
	p := NewPublished(dir)
	signed, err := os.ReadFile(filepath.Join(dir, CheckpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	of, err := Peek(signed)
	if err != nil {
		return nil, fmt.Errorf("read the checkpoint: %w", err)
	}
	p.checkpoint = signed
	if p.bundle, err = p.tiles.resume(&Folder{Files: os.DirFS(dir)}, of); err != nil {
		return nil, err
	}
	return p, p.cutFormer()
}

// NewPublished begins a folder, or rebuilds it.
func NewPublished(dir string) *Published {
	p := &Published{dir: dir}
	p.tiles.done = p.write
	return p
}

// Size is the number of leaves so far.
func (p *Published) Size() int64 { return p.tiles.edge.size }

// Add takes the value of the next leaf's record. After an error the caller must open the folder again.
func (p *Published) Add(value []byte) (err error) {
	entry := Entry(value)
	if p.bundle, err = torchwood.AppendTileEntry(p.bundle, entry); err != nil {
		return err
	}
	return p.tiles.add(tlog.RecordHash(entry))
}

// Publish replaces the folder's checkpoint with that of the current tree, once all files of the tree are on disk.
func (p *Published) Publish(signed []byte) error {
	of, err := Peek(signed)
	switch {
	case err != nil:
		return fmt.Errorf("publish a checkpoint: %w", err)
	case of.Size != p.Size() || of.Root != p.tiles.edge.root():
		return fmt.Errorf("publish a checkpoint: the %d records of the log are not the %d that it signs", p.Size(), of.Size)
	case bytes.HasPrefix(p.checkpoint, signed):
		return nil // already in place, maybe with cosignatures
	}
	if err := p.tiles.end(); err != nil {
		return err
	}
	if err := errors.Join(p.syncAll(), p.appendFormer(of)); err != nil {
		return err
	}
	if err := durable.Write(filepath.Join(p.dir, CheckpointFile), signed); err != nil {
		return err
	}
	p.checkpoint = signed
	for _, path := range p.full {
		if err := os.RemoveAll(path + ".p"); err != nil {
			return err
		}
	}
	p.full = p.full[:0]
	return nil
}

// write writes a tile and, for level 0, its entries.
func (p *Published) write(t tlog.Tile, hashes []tlog.Hash) error {
	if t.L == 0 {
		if err := p.file(bundleAt(t), p.bundle); err != nil {
			return err
		}
		if t.W == torchwood.TileWidth {
			p.bundle = p.bundle[:0]
		}
	}
	return p.file(t, bytesOf(hashes))
}

// file replaces a file atomically, so that readers never see half of it. Only syncAll makes it durable.
func (p *Published) file(t tlog.Tile, content []byte) error {
	path := filepath.Join(p.dir, filepath.FromSlash(torchwood.TilePath(t)))
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	writing := path + unfinished
	if err := os.WriteFile(writing, content, 0o640); err != nil {
		return err
	}
	if err := os.Rename(writing, path); err != nil {
		return err
	}
	p.unsynced = append(p.unsynced, path)
	if t.W == torchwood.TileWidth {
		p.full = append(p.full, path)
	}
	return nil
}

// unfinished is the suffix of a file that is being written.
const unfinished = ".writing"

// syncAll makes the written files and their names durable.
func (p *Published) syncAll() error {
	seen := map[string]bool{}
	for _, path := range p.unsynced {
		for ; len(path) > len(p.dir) && !seen[path]; path = filepath.Dir(path) {
			seen[path] = true
			if err := syncPath(path); err != nil {
				return err
			}
		}
	}
	p.unsynced = p.unsynced[:0]
	return syncPath(p.dir)
}

func syncPath(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// appendFormer appends the checkpoint in place to the earlier ones if the next checkpoint is larger. A rebuilt folder begins with an empty
// list.
func (p *Published) appendFormer(next *Checkpoint) error {
	how := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if p.checkpoint == nil {
		how |= os.O_TRUNC
	}
	former, err := os.OpenFile(filepath.Join(p.dir, FormerFile), how, 0o640)
	if err != nil {
		return err
	}
	var wrote error
	if of, err := Peek(p.checkpoint); err == nil && of.Size < next.Size {
		line, err := json.Marshal(formerJSON{string(p.checkpoint)})
		if err != nil {
			return errors.Join(err, former.Close())
		}
		_, wrote = former.Write(append(line, '\n'))
	}
	return errors.Join(wrote, former.Sync(), former.Close())
}

// cutFormer removes an incomplete last line from the former checkpoints.
func (p *Published) cutFormer() error {
	file, err := os.OpenFile(filepath.Join(p.dir, FormerFile), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	from := max(size-longestLine, 0)
	tail, err := io.ReadAll(bufio.NewReader(io.NewSectionReader(file, from, size-from)))
	if err == nil {
		err = file.Truncate(from + int64(bytes.LastIndexByte(tail, '\n')+1))
	}
	return errors.Join(err, file.Close())
}

// isUnfinished reports whether a file's name says that Published is still writing it.
func isUnfinished(name string) bool {
	return strings.HasSuffix(name, unfinished) || strings.HasPrefix(filepath.Base(name), strings.TrimSuffix(durable.Temporary, "*"))
}
