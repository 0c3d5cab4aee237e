package tree

import (
	"context"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"
)

// verification is a folder that is read: its trees are made again from the entries, and each file is compared with what it should be.
type verification struct {
	*Folder
	newest *Checkpoint
	seen   *seen
	tiles  tiles
	former former
	known  former
	from   int64 // the first leaf whose entry is read; a tile begins with it
}

func (v *verification) open() error {
	v.tiles.done = v.compare
	if err := v.known.list(v.Folder, v.newest, nil); err != nil {
		return err
	}
	if v.From < v.known.largest && v.From > 0 {
		v.from = v.From / torchwood.TileWidth * torchwood.TileWidth
	}
	v.former.from = v.from
	return v.former.open(v.Folder, v.seen)
}

// skip takes the tree up to the leaf that the entries are read from as the tiles have it. That they are the log's, the checkpoint shows that the
// reader has of more leaves. Those of fewer are compared with the tiles below the newest one.
func (v *verification) skip() error {
	if v.from == 0 {
		return nil
	}
	if err := v.tiles.begin(v.Folder, v.from, v.newest.Size); err != nil {
		return err
	}
	below := tlog.TileHashReader(tlog.Tree{N: v.newest.Size, Hash: v.newest.Root}, tileReader{v.Folder})
	for c := &v.known; c.ahead != nil && c.ahead.Size <= v.from; {
		root, err := tlog.TreeHash(c.ahead.Size, below)
		if err != nil {
			return fault("tile", c.size, "the tiles below %s, which has %d records: %v", c.place, c.ahead.Size, err)
		}
		if err := c.compare(root); err != nil {
			return err
		}
	}
	for c := &v.former; c.ahead != nil && c.ahead.Size <= v.from; {
		if err := c.advance(); err != nil {
			return err
		}
	}
	return nil
}

// tileReader reads a folder's tiles for tlog, which verifies them.
type tileReader struct{ *Folder }

func (tileReader) Height() int                     { return torchwood.TileHeight }
func (tileReader) SaveTiles([]tlog.Tile, [][]byte) {}

func (r tileReader) ReadTiles(tiles []tlog.Tile) (all [][]byte, err error) {
	for _, t := range tiles {
		hashes, err := r.stored(t)
		if err != nil {
			return nil, err
		}
		all = append(all, bytesOf(hashes))
	}
	return all, nil
}

func (v *verification) close() { v.former.close() }

// entries reads all entries.
func (v *verification) entries(ctx context.Context) error {
	for n := v.from / torchwood.TileWidth; ; n++ {
		t, ok := tileOf(0, n, v.newest.Size)
		if !ok {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := v.readBundle(t); err != nil {
			return err
		}
		if v.Progress != nil {
			v.Progress(v.tiles.edge.size, v.newest.Size)
		}
	}
}

// readBundle reads the entries beside a tile of level 0, and holds them against the tile and the one above it.
func (v *verification) readBundle(t tlog.Tile) error {
	bundle, err := v.bundle(t)
	if err != nil {
		return err
	}
	hashes, found := v.hash(t, bundle)
	if err := v.differs(t, hashes); err != nil {
		return err
	}
	if found != nil {
		return found
	}
	if t.W == torchwood.TileWidth && v.newest.Size > torchwood.TileWidth && !v.above(t, hashes) {
		parent, _ := tileOf(1, t.N/torchwood.TileWidth, v.newest.Size)
		return v.differsAbove(parent, t, rootOf(hashes))
	}
	for _, h := range hashes {
		if err := v.tiles.add(h); err != nil {
			return err
		}
		if err := v.former.reached(&v.tiles.edge); err != nil {
			return err
		}
		if err := v.known.reached(&v.tiles.edge); err != nil {
			return err
		}
	}
	return nil
}

// hash is the hashes of the entries beside a tile, up to the first that is not there or that is refused.
func (v *verification) hash(t tlog.Tile, rest []byte) (hashes []tlog.Hash, err error) {
	name := torchwood.TilePath(bundleAt(t))
	for i := range t.W {
		leaf := firstLeaf(t, i)
		var entry []byte
		if entry, rest, err = torchwood.ReadTileEntry(rest); err != nil {
			return hashes, fault(name, leaf, "the entries end before it")
		}
		hashes = append(hashes, tlog.RecordHash(entry))
		if v.Entry != nil {
			if err := v.Entry(leaf, entry); err != nil {
				return hashes, err
			}
		}
	}
	if len(rest) > 0 {
		return hashes, fault(name, firstLeaf(t, t.W), "%d bytes follow the last entry", len(rest))
	}
	return hashes, nil
}

// differs is the fault where entries come to other hashes than their tile has; nil if the hashes that there are are the same.
func (v *verification) differs(t tlog.Tile, hashes []tlog.Hash) error {
	stored, err := v.stored(t)
	if err != nil {
		return err
	}
	for i := range hashes {
		if hashes[i] != stored[i] {
			return v.blame(t, hashes, stored, i)
		}
	}
	return nil
}

// differsAbove is the fault where a whole tile of level 0 is not what the tile above it has.
func (v *verification) differsAbove(parent, t tlog.Tile, root tlog.Hash) error {
	stored, err := v.stored(parent)
	if err != nil {
		return err
	}
	made := append([]tlog.Hash(nil), stored...)
	i := int(t.N % torchwood.TileWidth)
	made[i] = root
	return v.blame(parent, made, stored, i)
}

// compare holds a tile above level 0 against what the tiles below it come to.
func (v *verification) compare(t tlog.Tile, hashes []tlog.Hash) error {
	if t.L == 0 {
		return nil // readBundle has done it
	}
	return v.differs(t, hashes)
}

// blame says which file is not the log's where a tile and what is below it differ from their i-th hash on: the one that does not come to
// what the tree above them says.
func (v *verification) blame(t tlog.Tile, made, stored []tlog.Hash, i int) error {
	tile, leaf := torchwood.TilePath(t), firstLeaf(t, i)
	makes, stores := v.above(t, made), v.above(t, stored)
	if t.L > 0 {
		below, last := torchwood.TilePath(tlog.Tile{H: t.H, L: t.L - 1, N: t.N*torchwood.TileWidth + int64(i), W: torchwood.TileWidth}), firstLeaf(t, i+1)-1
		if stores && !makes {
			return fault(below, leaf, "it, and all below it up to leaf %d, is not what %s says", last, tile)
		}
		return fault(tile, leaf, "the hash of the leaves up to %d is not the one of %s", last, below)
	}
	entries := torchwood.TilePath(bundleAt(t))
	switch {
	case stores && !makes:
		return fault(entries, leaf, "the entry is not the one that the checkpoint signs")
	case makes && !stores:
		return fault(tile, leaf, "the hash is not the one of the entry, which is the one that the checkpoint signs")
	default:
		return fault(entries, leaf, "the entry and its hash in %s differ, and neither can be told to be the log's", tile)
	}
}

// above reports whether the tree above a tile, as far as it can be told, has the tile with these hashes.
func (v *verification) above(t tlog.Tile, hashes []tlog.Hash) bool {
	if len(hashes) != t.W {
		return false
	}
	if t.W == torchwood.TileWidth {
		parent, ok := tileOf(t.L+1, t.N/torchwood.TileWidth, v.newest.Size)
		if !ok {
			return false
		}
		stored, err := v.stored(parent)
		return err == nil && stored[t.N%torchwood.TileWidth] == rootOf(hashes)
	}
	root, err := v.rootWith(t, hashes)
	return err == nil && root == v.newest.Root
}

// rootWith is the tree's root as the tiles that are not full have it, one of them with other hashes.
func (v *verification) rootWith(other tlog.Tile, hashes []tlog.Hash) (tlog.Hash, error) {
	var all edge
	for l := topLevel(v.newest.Size); l >= 0; l-- {
		t, ok := tileOf(l, v.newest.Size>>(torchwood.TileHeight*(l+1)), v.newest.Size)
		if !ok {
			continue
		}
		of := hashes
		if t != other {
			var err error
			if of, err = v.stored(t); err != nil {
				return tlog.Hash{}, err
			}
		}
		var e edge
		for _, h := range of {
			e.add(h)
		}
		all.hashes = append(all.hashes, e.hashes...)
	}
	return all.root(), nil
}

// end compares the tiles that are not full, the root, and what is left of the other checkpoints.
func (v *verification) end() error {
	if err := v.tiles.end(); err != nil {
		return err
	}
	if v.tiles.edge.root() != v.newest.Root {
		return fault(CheckpointFile, max(v.former.size, v.known.size),
			"the folder has another tree than the checkpoint signs, from some leaf on after the last checkpoint that fits")
	}
	if err := v.former.end(v.newest); err != nil {
		return err
	}
	return v.known.end(v.newest)
}
