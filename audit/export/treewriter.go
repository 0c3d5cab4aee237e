package export

import (
	"fmt"

	"lapse/audit/evidence"
	"lapse/audit/tree"
	"lapse/schemas"
)

// treeWriter writes the log's tree next to the topics' files.
type treeWriter struct {
	*tree.Export
	reader tree.Reader
	key    *tree.Key // nil if it is not available
	newest []byte
	of     *tree.Checkpoint
}

// take adds a record from the log's partition. With the key, what another key made is left out.
func (x *treeWriter) take(rec *schemas.Record) error {
	if x == nil {
		return nil
	}
	if signed, of := tree.CheckpointIn(rec); of != nil && x.made(rec) {
		return x.Former(signed)
	}
	if signed, is := tree.CosignedIn(rec.Value); is && rec.IsFence() {
		if x.key == nil || x.key.HasCosigned(rec.Value) {
			x.Cosigned(signed)
		}
		return nil
	}
	if evidence.LogRecordIn(rec) == nil || !x.reader.Take(rec) || x.reader.Tree.Size() <= x.Size() {
		return nil // already in the folder
	}
	return x.Add(rec.Value)
}

// made reports whether the key, if it is available, made a checkpoint.
func (x *treeWriter) made(checkpoint *schemas.Record) bool {
	if x.key == nil {
		return true
	}
	_, _, ours := x.key.Resume(checkpoint.Value)
	return ours
}

// close ends the export and returns its entry in the manifest.
func (x *treeWriter) close() (*Tree, error) {
	if x == nil {
		return nil, nil
	}
	if err := x.Close(); err != nil {
		return nil, fmt.Errorf("export the log's tree: %w", err)
	}
	of := &Tree{Log: x.of.Origin, Records: x.of.Size, Root: x.of.Root.String(), Former: x.FormerSum()}
	if signer := x.key.By(x.newest); signer != nil {
		public := signer.Public()
		of.PublicKey = &public
	}
	return of, nil
}
