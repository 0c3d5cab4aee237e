package tree

import (
	"errors"
	"slices"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"
)

// tiles builds the tiles of tlog-tiles bottom-up while leaves arrive. It keeps one tile of each level in memory.
type tiles struct {
	edge   edge
	levels []level
	done   func(t tlog.Tile, hashes []tlog.Hash) error // called when a tile is full, and at the tree's end
}

// level holds the hashes of a level's partial tile, and the tile's number.
type level struct {
	number int64
	hashes []tlog.Hash
}

// add appends a leaf.
func (t *tiles) add(h tlog.Hash) error {
	t.edge.add(h)
	return t.put(0, h)
}

func (t *tiles) put(l int, h tlog.Hash) error {
	if l == len(t.levels) {
		t.levels = append(t.levels, level{hashes: make([]tlog.Hash, 0, torchwood.TileWidth)})
	}
	at := &t.levels[l]
	at.hashes = append(at.hashes, h)
	if len(at.hashes) < torchwood.TileWidth {
		return nil
	}
	if err := t.done(tlog.Tile{H: torchwood.TileHeight, L: l, N: at.number, W: len(at.hashes)}, at.hashes); err != nil {
		return err
	}
	root := rootOf(at.hashes)
	at.number, at.hashes = at.number+1, at.hashes[:0]
	return t.put(l+1, root)
}

// end passes the partial tiles to done.
func (t *tiles) end() error {
	for l := range t.levels {
		at := &t.levels[l]
		if len(at.hashes) == 0 {
			continue
		}
		if err := t.done(tlog.Tile{H: torchwood.TileHeight, L: l, N: at.number, W: len(at.hashes)}, at.hashes); err != nil {
			return err
		}
	}
	return nil
}

// resume continues the tree of a checkpoint from its files. It returns the entries of the partial tile of level 0.
func (t *tiles) resume(files *Folder, of *Checkpoint) (bundle []byte, err error) {
	if err := t.begin(files, of.Size, of.Size); err != nil {
		return nil, err
	}
	if !t.edge.fits() || t.edge.root() != of.Root {
		return nil, errors.New("its tiles are not those of its checkpoint")
	}
	if tile, partial := tileOf(0, t.levels[0].number, of.Size); partial {
		return files.bundle(tile)
	}
	return nil, nil
}

// begin loads the tree of a size from the files of a tree that is at least as large. It verifies nothing.
func (t *tiles) begin(files *Folder, size, of int64) error {
	t.edge.size = size
	for l := 0; size>>(torchwood.TileHeight*l) > 0; l++ {
		n := size >> (torchwood.TileHeight * (l + 1))
		at := level{number: n, hashes: make([]tlog.Hash, 0, torchwood.TileWidth)}
		if begun, partial := tileOf(l, n, size); partial {
			tile, _ := tileOf(l, n, of)
			hashes, err := files.stored(tile)
			if err != nil {
				return err
			}
			at.hashes = append(at.hashes, hashes[:begun.W]...)
		}
		t.levels = append(t.levels, at)
	}
	for _, at := range slices.Backward(t.levels) {
		var e edge
		for _, h := range at.hashes {
			e.add(h)
		}
		t.edge.hashes = append(t.edge.hashes, e.hashes...)
	}
	return nil
}

// rootOf computes the root of a subtree with these leaves.
func rootOf(hashes []tlog.Hash) tlog.Hash {
	var e edge
	for _, h := range hashes {
		e.add(h)
	}
	return e.root()
}

// bytesOf returns the content of a tile's file.
func bytesOf(hashes []tlog.Hash) []byte {
	b := make([]byte, 0, len(hashes)*tlog.HashSize)
	for i := range hashes {
		b = append(b, hashes[i][:]...)
	}
	return b
}

// bundleAt returns the entries' tile for a tile of level 0.
func bundleAt(t tlog.Tile) tlog.Tile { return tlog.Tile{H: t.H, L: -1, N: t.N, W: t.W} }
