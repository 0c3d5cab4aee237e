package audit_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"lapse/audit/folder"
	"lapse/audit/history"
	"lapse/audit/tree"
	"lapse/internal/evidencetest"
	"lapse/internal/pgtest"
	"lapse/internal/witnesstest"
)

// segmentsOf are the files of a topic's partition, in their order.
func (r *rig) segmentsOf(t *testing.T, topic, partition string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(r.settings.Folder, "topics", topic, partition, "*.seg"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s/%s: %v, %v", topic, partition, files, err)
	}
	return files
}

// publishedTree verifies the tree that is published beside the topics, and says its size.
func (r *rig) publishedTree(t *testing.T) int64 {
	t.Helper()
	return r.verifyPublished(t, &tree.Folder{}).Size
}

// verifyPublished is publishedTree with what a verifier wants besides.
func (r *rig) verifyPublished(t *testing.T, f *tree.Folder) *tree.Verified {
	t.Helper()
	dir := filepath.Join(r.settings.Folder, folder.TreeDir)
	signed, err := os.ReadFile(filepath.Join(dir, tree.CheckpointFile))
	if err != nil {
		t.Fatal(err)
	}
	of, err := tree.Peek(signed)
	if err != nil {
		t.Fatal(err)
	}
	key, err := tree.NewKey(evidencetest.LogKey, of.Origin)
	if err != nil {
		t.Fatal(err)
	}
	f.Files, f.Verifier, f.Growing = os.DirFS(dir), key.Verifier(), true
	verified, err := f.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return verified
}

// The tiles beside the topics are those of the log, from one run to the next, whatever somebody does to them.
func TestTheTreeIsPublishedBesideTheTopics(t *testing.T) {
	inFolder(t, func(t *testing.T, r *rig) {
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		dir := filepath.Join(r.settings.Folder, folder.TreeDir)
		partial := func() string {
			files, err := filepath.Glob(filepath.Join(dir, "tile", "0", "*.p", "*"))
			if err != nil || len(files) == 0 {
				t.Fatalf("%v, %v", files, err)
			}
			return files[len(files)-1]
		}
		for name, meanwhile := range map[string]func() error{
			"nothing":                 func() error { return nil },
			"the tree is deleted":     func() error { return os.RemoveAll(dir) },
			"a tile is another":       func() error { return os.WriteFile(partial(), make([]byte, 32), 0o600) },
			"the checkpoint is none":  func() error { return os.WriteFile(filepath.Join(dir, tree.CheckpointFile), []byte("rubbish"), 0o600) },
			"a former one is cut off": func() error { return os.Truncate(filepath.Join(dir, tree.FormerFile), 0) },
		} {
			r.deletes(t, w, want, 300)
			r.once(t)
			if size, log := r.publishedTree(t), len(r.readLog(t)); int(size) != log {
				t.Errorf("before %s: the tree has %d records, the log %d", name, size, log)
			}
			if err := meanwhile(); err != nil {
				t.Fatal(err)
			}
		}
		r.once(t)
		r.publishedTree(t)
		r.verify(t, want)
	})
}

// A year's log has a million checkpoints. To publish each of them again would take the memory and the fsyncs of all.
func TestATreeThatIsMadeAgainHasTheNewestCheckpointOnly(t *testing.T) {
	inFolder(t, func(t *testing.T, r *rig) {
		want, w := newExpected(), &writer{conn: r.db.Connect(t)}
		dir := filepath.Join(r.settings.Folder, folder.TreeDir)
		former := func() int {
			content, err := os.ReadFile(filepath.Join(dir, tree.FormerFile))
			if err != nil {
				t.Fatal(err)
			}
			return bytes.Count(content, []byte("\n"))
		}
		for range 6 {
			r.deletes(t, w, want, 10)
			r.once(t)
		}
		before := former()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		r.once(t)
		if size, log := r.publishedTree(t), len(r.readLog(t)); int(size) != log || before < 5 || former() > 2 {
			t.Errorf("the tree has %d records, the log %d; of %d former checkpoints %d are published again", size, log, before, former())
		}
		r.deletes(t, w, want, 10)
		r.once(t)
		if size, log := r.publishedTree(t), len(r.readLog(t)); int(size) != log {
			t.Errorf("then the tree has %d records, the log %d", size, log)
		}
	})
}

// A copy that ends below what the slot has confirmed, put back in place of the folder, would leave a hole in the log.
func TestAnOlderCopyOfTheFolderIsRefused(t *testing.T) {
	inFolder(t, func(t *testing.T, r *rig) {
		w := r.begun(t)
		older, place := filepath.Join(t.TempDir(), "older"), r.settings.Folder
		if err := os.CopyFS(older, os.DirFS(place)); err != nil {
			t.Fatal(err)
		}
		r.commit(t, w, 3, user)
		r.once(t)
		if err := os.Rename(place, place+".newer"); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(place, os.DirFS(older)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(place, 0o700); err != nil {
			t.Fatal(err)
		}
		r.refused(t, history.ErrLogBehind)
	})
}

// A partition that has lost its end, as a disk or a person may do it, is a gap, and the rest goes on.
func TestAPartitionOfAFolderThatLostItsEndIsAGap(t *testing.T) {
	inFolder(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		r.commit(t, w, 40, user)
		r.once(t)
		for _, partition := range []string{"0", "1", "2"} {
			last := r.segmentsOf(t, r.settings.User, partition)
			if err := os.Truncate(last[len(last)-1], 72+20); err != nil {
				t.Fatal(err)
			}
		}
		r.commit(t, w, 5, user)
		r.db.Exec(t, beatNow)
		r.once(t)
		gaps := r.gaps(t)
		if i := slices.IndexFunc(gaps, func(g gap) bool { return g.Reason == "topic" }); i < 0 {
			t.Errorf("the gaps are %+v", gaps)
		}
	})
}

// What TestATransactionOfSeveralRecordsIsWholeWhereverTheAuditorDies shows of Kafka.
func TestATransactionIsWholeInAFolderWhereverTheAuditorDies(t *testing.T) {
	t.Parallel()
	for _, before := range []string{firstAck, nextEvent, firstRecord, secondRecord, confirmation} {
		t.Run("before "+before, func(t *testing.T) {
			t.Parallel()
			pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
				r := newFolderRig(t, db)
				want, w := newExpected(), &writer{conn: db.Connect(t)}
				r.db.Exec(t, beatNow)
				r.once(t)
				ids, err := w.rows(t.Context(), 4)
				if err != nil {
					t.Fatal(err)
				}
				if err := w.commit(t.Context(), want, userBeats(ids)); err != nil {
					t.Fatal(err)
				}
				end := walEnd(t, w.conn)
				r.dies(t, before)
				if got := r.confirmed(t, w.conn); got >= end {
					t.Fatalf("the slot is confirmed up to %s, and the transaction ends at or below %s", got, end)
				}
				r.once(t)
				r.verify(t, want)
				r.unbroken(t)
				r.publishedTree(t)
			})
		})
	}
}

// The checkpoint that is published beside the topics has what witnesses made of it, and keeps that over a restart.
func TestThePublishedCheckpointIsCosigned(t *testing.T) {
	inFolder(t, func(t *testing.T, r *rig) {
		one, two := witnesstest.New(t, "one.example.com"), witnesstest.New(t, "two.example.com")
		w := &writer{conn: r.db.Connect(t)}
		for range 2 {
			r.commit(t, w, 3, user)
			r.once(t, shownTo(one, two))
			size := r.publishedTree(t)
			signed, err := os.ReadFile(filepath.Join(r.settings.Folder, folder.TreeDir, tree.CheckpointFile))
			if err != nil {
				t.Fatal(err)
			}
			by, err := tree.Cosignatures(signed, []*tree.Witness{one.Key, two.Key})
			if of, _ := tree.Peek(signed); err != nil || len(by) != 2 || of.Size != size {
				t.Errorf("of %d records the checkpoint in place has %d cosignatures, %v:\n%s", size, len(by), err, signed)
			}
		}
		r.commit(t, w, 3, user)
		r.once(t, shownTo(one)) // the other is away
		r.commit(t, w, 3, user)
		r.once(t) // it has no witness
		dir := filepath.Join(r.settings.Folder, folder.TreeDir)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		r.once(t)
		verified := r.verifyPublished(t, &tree.Folder{Witnesses: []*tree.Witness{one.Key, two.Key}, Quorum: 2})
		if log := len(r.readLog(t)); int(verified.Size) != log {
			t.Errorf("made again, the tree has %d records, the log %d", verified.Size, log)
		}
	})
}
