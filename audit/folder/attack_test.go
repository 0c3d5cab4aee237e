package folder_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lapse/audit/folder"
	"lapse/internal/fixture"
	"lapse/schemas"
)

// filled is a closed folder whose log has many segments.
func filled(t *testing.T) string {
	t.Helper()
	dir := place(t)
	c := config(dir)
	c.Segments(300)
	c.Faulty(nil, func(*os.File) error { return nil })
	p := open(t, c)
	for i := range 12 {
		put(t, p, record(log, 0, string(rune('a'+i))), record(events, 0, string(rune('a'+i))))
	}
	closeIt(t, p)
	return dir
}

// Each does something to a folder that nobody publishes into, and the next publisher refuses it by name.
func TestAFolderThatSomebodyHasChangedIsRefused(t *testing.T) {
	t.Parallel()
	remove := func(t *testing.T, path string) {
		t.Helper()
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	write := func(t *testing.T, path string, content []byte) {
		t.Helper()
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(t *testing.T, path string) []byte {
		t.Helper()
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	for name, attack := range map[string]struct {
		do   func(t *testing.T, dir string)
		says string
	}{
		"a segment removed from the middle": {func(t *testing.T, dir string) { remove(t, segments(t, dir, log)[1]) }, "is missing: put it back"},
		"the log's first segment removed":   {func(t *testing.T, dir string) { remove(t, segments(t, dir, log)[0]) }, "what was before it is missing"},
		"a middle segment cut": {func(t *testing.T, dir string) {
			path := segments(t, dir, log)[1]
			write(t, path, read(t, path)[:100])
		}, "it has 100 bytes"},
		"a segment of another partition": {func(t *testing.T, dir string) {
			write(t, segments(t, dir, log)[1], read(t, segments(t, dir, events)[1]))
		}, "it was made as another segment"},
		"a segment of another folder": {func(t *testing.T, dir string) {
			write(t, segments(t, dir, log)[1], read(t, segments(t, filled(t), log)[1]))
		}, "it was made in another folder"},
		"a header with another byte": {func(t *testing.T, dir string) {
			path := segments(t, dir, log)[1]
			content := read(t, path)
			content[40] ^= 1
			write(t, path, content)
		}, "it does not begin as a segment does"},
		"the identity removed": {func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "sink.json")) }, "sink.json is missing"},
		"the identity of another": {func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "sink.json"), read(t, filepath.Join(filled(t), "sink.json")))
		}, "it was made in another folder"},
		"the identity broken": {func(t *testing.T, dir string) { write(t, filepath.Join(dir, "sink.json"), []byte("{}")) }, "it is not as lapse writes it"},
		"a later format": {func(t *testing.T, dir string) {
			path := filepath.Join(dir, "sink.json")
			write(t, path, bytes.Replace(read(t, path), []byte(`"format":1`), []byte(`"format":2`), 1))
		}, "run the version of lapse that made it"},
		"a segment that is a link": {func(t *testing.T, dir string) {
			path := lastSegment(t, dir, log)
			elsewhere := filepath.Join(t.TempDir(), "elsewhere")
			if err := errors.Join(os.Rename(path, elsewhere), os.Symlink(elsewhere, path)); err != nil {
				t.Fatal(err)
			}
		}, "links are not followed"},
		"a partition that is a link": {func(t *testing.T, dir string) {
			path := filepath.Join(dir, "topics", log, "0")
			elsewhere := filepath.Join(t.TempDir(), "elsewhere")
			if err := errors.Join(os.Rename(path, elsewhere), os.Symlink(elsewhere, path)); err != nil {
				t.Fatal(err)
			}
		}, "links are not followed"},
		"a lock that is a link": {func(t *testing.T, dir string) {
			path := filepath.Join(dir, "lock")
			if err := errors.Join(os.Remove(path), os.Symlink(filepath.Join(t.TempDir(), "elsewhere"), path)); err != nil {
				t.Fatal(err)
			}
		}, "too many levels of symbolic links"},
		"others may read it": {func(t *testing.T, dir string) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}, "others may use it (mode 0755): run chmod 700"},
		"a group may write it": {func(t *testing.T, dir string) {
			if err := os.Chmod(dir, 0o770); err != nil {
				t.Fatal(err)
			}
		}, "others may use it (mode 0770)"},
		"it is a file": {func(t *testing.T, dir string) {
			remove(t, dir)
			write(t, dir, nil)
		}, "it is no folder"},
		"the folder above it is gone": {func(t *testing.T, dir string) { remove(t, filepath.Dir(dir)) }, "the folder above it is not there"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filled(t)
			attack.do(t, dir)
			_, err := folder.Open(t.Context(), config(dir))
			if err == nil || !strings.Contains(err.Error(), attack.says) || !folder.Terminal(err) {
				t.Errorf("got %v", err)
			}
			if folder.Locked(dir) {
				t.Error("it stays locked")
			}
		})
	}
}

func TestAFolderOfAnotherUserOrFileSystemIsRefused(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder to somebody else, and mount")
	}
	dir := filled(t)
	if err := os.Chown(dir, 4711, 4711); err != nil {
		t.Fatal(err)
	}
	if _, err := folder.Open(t.Context(), config(dir)); err == nil || !strings.Contains(err.Error(), "it belongs to the user 4711") {
		t.Errorf("of another user: %v", err)
	}
	dir = filled(t)
	inside := filepath.Join(dir, "topics", events)
	if err := syscall.Mount("tmpfs", inside, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("nothing can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(inside, syscall.MNT_DETACH) })
	if _, err := folder.Open(t.Context(), config(dir)); err == nil || !strings.Contains(err.Error(), "another file system") {
		t.Errorf("of another file system: %v", err)
	}
}

func TestAGroupMayReadAFolderThatItWasGiven(t *testing.T) {
	t.Parallel()
	dir := filled(t)
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	open(t, config(dir))
	for _, path := range []string{lastSegment(t, dir, log), filepath.Join(dir, "topics", log)} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o027 != 0 || info.Mode().Perm()&0o040 == 0 {
			t.Errorf("%s has mode %v, %v", path, info.Mode(), err)
		}
	}
}

// Each does something to a folder under its publisher, which ends before it writes anything more there.
func TestAPublisherNoticesWhatIsDoneToItsFiles(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(dir, path string) error{
		"another process writes into it": func(_, path string) error {
			file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			_, err = file.Write(folder.AppendFrame(nil, new(record(log, 0, "foreign")), 2, 1))
			return errors.Join(err, file.Close())
		},
		"it is cut":     func(_, path string) error { return os.Truncate(path, 80) },
		"it is deleted": func(_, path string) error { return os.Remove(path) },
		"it is replaced": func(_, path string) error {
			return errors.Join(os.Rename(path, path+".old"), copyFile(path+".old", path))
		},
		"all is moved": func(dir, _ string) error { return os.Rename(dir, dir+".moved") },
		"all is replaced": func(dir, _ string) error {
			return errors.Join(os.Rename(dir, dir+".moved"), os.CopyFS(dir, os.DirFS(dir+".moved")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := place(t)
			p := open(t, config(dir))
			put(t, p, record(log, 0, "a"))
			if err := do(dir, lastSegment(t, dir, log)); err != nil {
				t.Fatal(err)
			}
			if _, ok := p.Append(record(log, 0, "b")); !ok {
				t.Fatal("not taken")
			}
			fixture.Eventually(t, "it ends", func() bool { return p.Err() != nil })
			if err := p.Err(); !errors.Is(err, folder.ErrReplaced) || !folder.Terminal(err) {
				t.Errorf("it ended by %v", err)
			}
		})
	}
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o600)
}

// A byte of a record that is another is found where it is read, and never read as something else.
func TestEveryOtherByteOfARecordIsFound(t *testing.T) {
	t.Parallel()
	frame := folder.AppendFrame(nil, new(record(log, 0, "key")), 7, 3)
	for i := range frame {
		other := bytes.Clone(frame)
		other[i] ^= 0x10
		if _, _, err := folder.CutFrame(append(other, frame...)); err == nil {
			t.Errorf("byte %d", i)
		}
	}
	dir := filled(t)
	path := segments(t, dir, log)[1]
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-10] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	c := folder.NewClient(dir)
	var broken *folder.CorruptError
	reader := c.Reader(log, 0, 0, 12)
	for err == nil {
		_, _, err = reader.Next(t.Context())
	}
	if !errors.As(err, &broken) || broken.Path != path {
		t.Errorf("read forward: %v", err)
	}
	err = c.Backward(t.Context(), log, 0, -1, func(*schemas.Record, int64) (bool, error) { return true, nil })
	if !errors.As(err, &broken) || broken.Path != path {
		t.Errorf("read backward: %v", err)
	}
}

func TestRetentionDeletesOldEventsAndNeverTheLogOrATail(t *testing.T) {
	t.Parallel()
	dir := filled(t)
	old := time.Now().Add(-2 * time.Hour)
	for _, topic := range []string{events, log} {
		for _, path := range segments(t, dir, topic) {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	logSegments := len(segments(t, dir, log))
	c := config(dir)
	c.Segments(300)
	c.Topics[0].Retention = time.Hour
	p := open(t, c)
	fixture.Eventually(t, "old events are deleted", func() bool { return len(segments(t, dir, events)) == 1 })
	if last := p.Last(events, 0); len(last) != 1 || string(last[0].Record.Key) != "l" {
		t.Errorf("the tail is %v", last)
	}
	if n := len(segments(t, dir, log)); n < logSegments {
		t.Errorf("the log has %d segments of %d", n, logSegments)
	}
	if got := keys(t, dir, log, 0); len(got) != 12 {
		t.Errorf("the log has %v", got)
	}
	bounds, err := folder.NewClient(dir).Offsets(t.Context(), events)
	if err != nil || bounds[0].First == 0 {
		t.Fatalf("%v, %v", bounds, err)
	}
	closeIt(t, p)
	p = open(t, c)
	put(t, p, record(events, 0, "m"))
	if got := keys(t, dir, events, 0); got[len(got)-1] != "m" {
		t.Errorf("there are %v", got)
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(folder.AppendFrame(nil, new(record(log, 0, "key")), 7, 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, rest, err := folder.CutFrame(b)
		if err == nil && len(frame)+len(rest) != len(b) {
			t.Errorf("%d and %d bytes of %d", len(frame), len(rest), len(b))
		}
		if err == nil {
			_ = folder.DecodeFrame(frame)
		}
	})
}

// Nothing on this machine finds that a folder was copied and both go on: each is right by itself, and their records have the same offsets
// and epochs. Only somebody who has seen a checkpoint of each does: docs/limits.md says so.
func TestTwoCopiesOfAFolderGoOnAndNothingHereFindsIt(t *testing.T) {
	t.Parallel()
	dir := filled(t)
	other := place(t)
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(other, 0o700); err != nil {
		t.Fatal(err)
	}
	first, second := open(t, config(dir)), open(t, config(other))
	put(t, first, record(log, 0, "here"))
	put(t, second, record(log, 0, "there"))
	if a, b := first.End(log, 0), second.End(log, 0); a != b {
		t.Errorf("the ends are %+v and %+v", a, b)
	}
}
