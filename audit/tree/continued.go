package tree

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"filippo.io/torchwood"
)

// ContinueExport extends an export to the tree of a newer signed note. The folder's tiles already hold the leaves of its own checkpoint; Add
// takes those that follow. Close computes the new root from the folder's tiles, and so finds out if the two trees do not agree.
//
// After a crash before the new checkpoint is in place, the folder has its former checkpoint, tiles of a larger tree and more lines than that
// checkpoint covers. It does not verify until the export is continued again.
func ContinueExport(dir string, signed []byte) (e *Export, err error) {
	e = &Export{dir: dir, signed: signed, sum: sha256.New(), continued: true}
	if e.checkpoint, err = Peek(signed); err != nil {
		return nil, fmt.Errorf("export a checkpoint: %w", err)
	}
	former, err := os.ReadFile(filepath.Join(dir, CheckpointFile))
	if err != nil {
		return nil, err
	}
	of, err := Peek(former)
	switch {
	case err != nil:
		return nil, fault(CheckpointFile, -1, "%v", err)
	case of.Origin != e.checkpoint.Origin:
		return nil, fmt.Errorf("%s is an export of the log %s, and this one is %s", dir, of.Origin, e.checkpoint.Origin)
	case of.Size > e.checkpoint.Size:
		return nil, fault(CheckpointFile, e.checkpoint.Size, "it is of %d records, and the log's newest checkpoint of %d: the log was cut, or is an older copy", of.Size, e.checkpoint.Size)
	case of.Size == e.checkpoint.Size && of.Root != e.checkpoint.Root:
		return nil, fault(CheckpointFile, -1, "it is of another log of %d records: the key has signed two", of.Size)
	}
	if e.bundle, err = e.tiles.resume(&Folder{Files: os.DirFS(dir)}, of); err != nil {
		return nil, fmt.Errorf("go on with %s: %w", dir, err)
	}
	e.tiles.done = e.write
	if err := e.reopenFormer(of); err != nil {
		return nil, err
	}
	if of.Size == e.checkpoint.Size {
		if len(former) > len(signed) {
			e.signed = former // it has cosignatures
		}
		return e, nil
	}
	e.formerSize, e.waiting = of.Size, [][]byte{former}
	return e, nil
}

// reopenFormer opens the file of former checkpoints and cuts off those that an interrupted export added.
func (e *Export) reopenFormer(of *Checkpoint) (err error) {
	e.former, err = os.OpenFile(filepath.Join(e.dir, FormerFile), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.former.Close())
		}
	}()
	lines := bufio.NewReader(e.former)
	end := int64(0)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		c, err := peekLine(line)
		if err != nil {
			return fault(FormerFile, -1, "%v", err)
		}
		if c.Size >= of.Size {
			break
		}
		e.formerSize, end = c.Size, end+int64(len(line))
		e.sum.Write(line)
	}
	if err := e.former.Truncate(end); err != nil {
		return err
	}
	_, err = e.former.Seek(end, io.SeekStart)
	e.lines = bufio.NewWriter(io.MultiWriter(e.former, e.sum))
	return err
}

// sweep removes the tiles that the tree no longer has: formerly partial ones, and those that an interrupted export left.
func (e *Export) sweep() error {
	if !e.continued {
		return nil
	}
	root := filepath.Join(e.dir, "tile")
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(e.dir, path)
		if err != nil {
			return err
		}
		t, err := torchwood.ParseTilePath(filepath.ToSlash(name))
		if err != nil || isTileOf(t, e.checkpoint.Size) {
			return nil //nolint:nilerr // not a tile: verify reports it
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		_ = os.Remove(filepath.Dir(path)) // fails unless it is empty
		return nil
	})
}
