package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Fault is the first place at which a folder differs from what the log's key has signed.
type Fault struct {
	File string // the file's name in the folder
	Leaf int64  // the first leaf concerned; -1 for none or all
	What string
}

func (f *Fault) Error() string {
	if f.Leaf < 0 {
		return fmt.Sprintf("%s: %s", f.File, f.What)
	}
	return fmt.Sprintf("%s: leaf %d: %s", f.File, f.Leaf, f.What)
}

func fault(file string, leaf int64, format string, args ...any) *Fault {
	return &Fault{file, leaf, fmt.Sprintf(format, args...)}
}

// Folder is an export to verify.
type Folder struct {
	Files    fs.FS
	Verifier note.Verifier
	// Known are checkpoints that the reader has from another source: the folder's log must have grown from each.
	Known [][]byte
	// From is a leaf. The entries before it are not verified, if Known has a checkpoint with more leaves: the tree must agree with that
	// one. From counts from the beginning of the leaf's tile.
	From int64
	// Witnesses are those whose cosignatures are verified: Quorum of them must have cosigned some checkpoint in the folder.
	Witnesses []*Witness
	Quorum    int
	// Entry is called with every entry, in order, before the entry's tile is verified: its results are valid only if Verify finds nothing.
	Entry func(leaf int64, entry []byte) error
	// Progress is called from time to time.
	Progress func(done, size int64)
	// Growing says that a Published writes Files: a partial tile may exist next to others of its place, or only as part of the full tile.
	Growing bool
}

// Verified is the result for a folder without faults.
type Verified struct {
	Checkpoint
	Former int // the earlier checkpoints that fit the tree
	Known  int // those of Folder.Known that fit the tree
	// Seen is the last checkpoint that each of Folder.Witnesses has cosigned, in their order.
	Seen []Seen
	// Cosigned is the number of leaves of the newest checkpoint that the quorum has cosigned; 0 without a quorum.
	Cosigned int64
	// By is the key that signed the newest checkpoint: the reader's key, its predecessor or its successor.
	By note.Verifier
	// Signed is the newest checkpoint's note as read.
	Signed []byte
}

// Verify reads the whole folder once, in memory that does not grow with it, and computes every tree from the entries alone. It returns
// a *Fault if the folder is not what the key has signed.
func (f *Folder) Verify(ctx context.Context) (*Verified, error) {
	signed, err := f.read(CheckpointFile, -1)
	if err != nil {
		return nil, err
	}
	seen := newSeen(f.Witnesses, f.Quorum)
	f, err = f.underItsKeys(ctx, signed)
	if err != nil {
		return nil, err
	}
	newest, err := seen.open(signed, f.Verifier)
	if err != nil {
		return nil, fault(CheckpointFile, -1, "it does not verify: %v", err)
	}
	if newest.Size == 0 {
		return nil, fault(CheckpointFile, -1, "it is of an empty log")
	}
	v := &verification{Folder: f, newest: newest, seen: seen}
	defer v.close()
	if err := v.open(); err != nil {
		return nil, err
	}
	if err := v.skip(); err != nil {
		return nil, err
	}
	if err := v.entries(ctx); err != nil {
		return nil, err
	}
	if err := v.end(); err != nil {
		return nil, err
	}
	if err := f.others(newest.Size); err != nil {
		return nil, err
	}
	if seen.cosigned == 0 && f.Quorum > 0 {
		return nil, fault(CheckpointFile, -1, "neither it nor a former one has cosignatures of %d of the %d witnesses", f.Quorum, len(f.Witnesses))
	}
	by, err := verifierOf(signed, f.Verifier)
	return &Verified{*newest, v.former.fit, v.known.fit, seen.of, seen.cosigned, by, signed}, err
}

// largestFile is the largest size of a full tile's entries, each after its length in two bytes. No tile and no checkpoint is larger.
const largestFile = torchwood.TileWidth * (2 + maxEntry)

// read reads a file of the folder. It stops at the size limit: its maker may intend to exhaust the memory.
func (f *Folder) read(name string, leaf int64) ([]byte, error) {
	file, err := f.Files.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault(name, leaf, "it is missing")
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // opened for reading only
	content, err := io.ReadAll(io.LimitReader(file, largestFile+1))
	if err == nil && len(content) > largestFile {
		err = fault(name, leaf, "it is larger than any file of a tree")
	}
	return content, err
}

// others looks among the tiles for files that the checkpoint's tree does not have.
func (f *Folder) others(size int64) error {
	return fs.WalkDir(f.Files, "tile", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		t, err := torchwood.ParseTilePath(name)
		if f.Growing && (isUnfinished(name) || err == nil) {
			return nil
		}
		if err != nil || !isTileOf(t, size) {
			return fault(name, -1, "the checkpoint's tree has no such file")
		}
		return nil
	})
}

// isTileOf reports whether a tree of that size, when published, has this tile, including entries.
func isTileOf(t tlog.Tile, size int64) bool {
	n := size >> (torchwood.TileHeight * max(t.L, 0)) // the number of hashes of the level
	return t.W == int(min(n-t.N*torchwood.TileWidth, torchwood.TileWidth))
}

// tileOf returns the tile at a place in a tree of that size; ok is false if the tree has none there.
func tileOf(l int, n, size int64) (t tlog.Tile, ok bool) {
	width := min(size>>(torchwood.TileHeight*l)-n*torchwood.TileWidth, torchwood.TileWidth)
	return tlog.Tile{H: torchwood.TileHeight, L: l, N: n, W: int(width)}, width > 0
}

// topLevel is the highest level of a tree that has tiles.
func topLevel(size int64) (l int) {
	for size >= torchwood.TileWidth {
		size, l = size>>torchwood.TileHeight, l+1
	}
	return l
}

// stored reads a tile's hashes.
func (f *Folder) stored(t tlog.Tile) ([]tlog.Hash, error) {
	name, leaf := torchwood.TilePath(t), firstLeaf(t, 0)
	content, err := f.tile(t, leaf)
	if err != nil {
		return nil, err
	}
	if f.Growing && len(content) > t.W*tlog.HashSize {
		content = content[:t.W*tlog.HashSize]
	}
	if len(content) != t.W*tlog.HashSize {
		return nil, fault(name, leaf, "it has %d bytes where %d hashes have %d", len(content), t.W, t.W*tlog.HashSize)
	}
	hashes := make([]tlog.Hash, t.W)
	for i := range hashes {
		hashes[i] = tlog.Hash(content[i*tlog.HashSize:])
	}
	return hashes, nil
}

// firstLeaf returns the first leaf under a tile's i-th hash.
func firstLeaf(t tlog.Tile, i int) int64 {
	return (t.N*torchwood.TileWidth + int64(i)) << (torchwood.TileHeight * t.L)
}

// bundle reads the entries of a tile of level 0.
func (f *Folder) bundle(t tlog.Tile) ([]byte, error) {
	content, err := f.tile(bundleAt(t), firstLeaf(t, 0))
	if err != nil || !f.Growing {
		return content, err
	}
	rest := content
	for range t.W {
		if _, rest, err = torchwood.ReadTileEntry(rest); err != nil {
			return content, nil //nolint:nilerr // hash reports the missing entry
		}
	}
	return content[:len(content)-len(rest)], nil
}

// tile reads a tile's file. If a partial tile no longer exists, it reads the full one.
func (f *Folder) tile(t tlog.Tile, leaf int64) ([]byte, error) {
	content, err := f.read(torchwood.TilePath(t), leaf)
	var missing *Fault
	if f.Growing && t.W < torchwood.TileWidth && errors.As(err, &missing) {
		full := t
		full.W = torchwood.TileWidth
		if again, err := f.read(torchwood.TilePath(full), leaf); err == nil {
			return again, nil
		}
	}
	return content, err
}

// IsTree reports whether a file of the folder, by its slash-separated name, belongs to the tree.
func IsTree(name string) bool {
	return name == CheckpointFile || name == FormerFile || strings.HasPrefix(path.Clean(name), "tile/")
}

// underItsKeys returns the folder with all keys of its log, if the reader's key alone does not verify the newest checkpoint or the first one.
// To find the keys it reads the entries; like all entries, they are verified later.
func (f *Folder) underItsKeys(ctx context.Context, signed []byte) (*Folder, error) {
	newest, err := Peek(signed)
	if err != nil || f.oneKey(signed) {
		return f, nil //nolint:nilerr // opening the checkpoint reports it
	}
	keys := &Succession{Verifier: f.Verifier}
	for n := int64(0); ; n++ {
		t, ok := tileOf(0, n, newest.Size)
		if !ok {
			break
		}
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		err := f.keysIn(t, keys)
		if errors.Is(err, errUnread) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if !keys.known || len(keys.until) == 0 {
		return f, nil
	}
	under := *f
	under.Verifier = keys
	return &under, nil
}

// errUnread stops the search for keys at unreadable entries. Verify reports them later, if the checkpoint has a valid signature.
var errUnread = errors.New("unread")

// keysIn takes the changes of key in a tile's entries.
func (f *Folder) keysIn(t tlog.Tile, keys *Succession) error {
	rest, err := f.bundle(t)
	if err != nil {
		return errUnread
	}
	for i := range t.W {
		var entry []byte
		if entry, rest, err = torchwood.ReadTileEntry(rest); err != nil {
			return errUnread
		}
		leaf := firstLeaf(t, i)
		if leaf == 0 {
			if err := keys.begin(originKey(entry)); err != nil {
				return fault(torchwood.TilePath(bundleAt(t)), leaf, "the log's key: %v", err)
			}
		}
		r, err := rotationIn(entry)
		if err == nil && r != nil {
			err = keys.rotate(leaf, r)
		}
		if err != nil {
			return fault(torchwood.TilePath(bundleAt(t)), leaf, "%v", err)
		}
	}
	return nil
}

// oneKey reports whether the reader's key verifies both the newest checkpoint and the first one: then the log has no other key.
func (f *Folder) oneKey(signed []byte) bool {
	if _, err := Open(signed, f.Verifier); err != nil {
		return false
	}
	first := former{}
	err := first.open(f, newSeen(nil, 0))
	defer first.close()
	return err == nil || first.stop == nil // without the file there is nothing to compare; Verify reports it later
}
