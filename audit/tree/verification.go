package tree

import (
	"context"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"
)

// verification reads a folder. It computes the folder's trees from the entries, and compares each file with what it should be.
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

// skip loads the tree at leaf from, where reading begins, from the tiles. A larger checkpoint of the reader's shows that these tiles are the
// log's. skip compares the reader's smaller checkpoints with the tiles below the newest tree.
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

// readBundle reads the entries of a tile of level 0, and compares them with the tile and with the one above it.
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

// hash computes the hashes of a tile's entries, up to the first one that is missing or refused.
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

// differs compares a tile's hashes with those of its entries, as far as these go, and returns the fault; nil if they are equal.
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

// differsAbove returns the fault if a full tile of level 0 does not match the tile above it.
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

// compare compares a tile above level 0 with the tiles below it.
func (v *verification) compare(t tlog.Tile, hashes []tlog.Hash) error {
	if t.L == 0 {
		return nil // readBundle has done it
	}
	return v.differs(t, hashes)
}

// blame decides which file is wrong when a tile and the tiles below it differ from the i-th hash on: the one that does not agree with the tree
// above them.
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

// above reports whether the tree above a tile, as far as it can be computed, has the tile with these hashes.
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

// rootWith computes the tree's root from the partial tiles, with other hashes for one of them.
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

// end compares the partial tiles, the root, and the remaining checkpoints.
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
