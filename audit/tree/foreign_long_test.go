//go:build long

package tree_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// auditWithAICS verifies an export with a program that nobody here wrote: signature, every tile, every entry, and a proof of each former
// checkpoint.
const auditWithAICS = `
import json, sys
from pathlib import Path
from aics_tlog import (FileSystemTileReader, VerifiedTileReader, audit_tiles, consistency_proof_from_tiles, inclusion_proof_from_tiles, leaf_hash,
    parse_checkpoint, parse_note, parse_vkey, verify_checkpoint, verify_consistency, verify_leaf_inclusion)
folder, vkey = sys.argv[1:]
def opened(data):
    note = parse_note(data)
    result = verify_checkpoint(note, parse_vkey(vkey), [], quorum=0)
    assert result.ok, result
    return parse_checkpoint(note.text)
newest = opened(Path(folder, "checkpoint").read_bytes())
tiles = FileSystemTileReader(folder)
audit_tiles(tiles, newest.size, newest.root)
for line in Path(folder, "checkpoints.jsonl").read_text().splitlines():
    former = opened(json.loads(line)["note"].encode())
    proof = consistency_proof_from_tiles(tiles, former.size, newest.size)
    assert verify_consistency(former.size, newest.size, former.root, newest.root, proof)
read = VerifiedTileReader(tiles, newest.size, newest.root)
for i in {0, newest.size // 2, newest.size - 1}:
    assert verify_leaf_inclusion(read.entry(i), i, newest.size, inclusion_proof_from_tiles(tiles, i, newest.size), newest.root)
print(newest.origin, newest.size)
`

// The package aics-tlog 0.2.1 says that it wants Python 3.12, and runs on 3.11.
func TestAVerifierThatNobodyHereWroteAcceptsAnExport(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not here")
	}
	home := filepath.Join(t.TempDir(), "venv")
	if out, err := exec.CommandContext(t.Context(), python, "-m", "venv", home).CombinedOutput(); err != nil {
		t.Skipf("python3 makes no venv: %v: %s", err, out)
	}
	python = filepath.Join(home, "bin", "python")
	install := exec.CommandContext(t.Context(), python, "-m", "pip", "install", "-q", "--ignore-requires-python", "aics-tlog==0.2.1")
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("the package aics-tlog cannot be had: %v: %s", err, out)
	}
	key := newKey(t, 1, logName)
	run := func(dir string) (string, error) {
		out, err := exec.CommandContext(t.Context(), python, "-c", auditWithAICS, dir, key.Public()).CombinedOutput()
		return string(out), err
	}
	for _, size := range []int{1, 255, 256, 300, 66100} {
		dir := exported(t, key, valuesOf(size), 1, 200, 256, 65600)
		out, err := run(dir)
		if err != nil || !strings.HasPrefix(out, logName) {
			t.Fatalf("%d records: %v\n%s", size, err, out)
		}
		t.Logf("aics-tlog says: %s", out)
		for _, name := range []string{"checkpoint", "tile/0/000", "tile/entries/000", "tile/1/000.p/1"} {
			path := filepath.Join(dir, name)
			content, err := os.ReadFile(path)
			if err != nil {
				continue // of another size
			}
			content[len(content)/2] ^= 1
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := run(dir); err == nil {
				t.Errorf("%d records, a byte of %s flipped: it says %s", size, name, out)
			}
			content[len(content)/2] ^= 1
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
