package folder_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lapse/audit/folder"
	"lapse/internal/fixture"
	"lapse/schemas"
)

// one is a folder with one partition, whose syncs cost nothing.
func one(dir string) folder.Config {
	c := folder.Config{Dir: dir, Topics: []folder.Topic{{Name: log, Partitions: 1, Forever: true}}}
	c.Faulty(nil, func(*os.File) error { return nil })
	return c
}

// numbered are the records that a source has: each time it is read, the same.
func numbered(n int) (all []schemas.Record) {
	for i := range n {
		all = append(all, record(log, 0, strconv.Itoa(i)+strings.Repeat("x", i%7*5)))
	}
	return all
}

func numberOf(t *testing.T, key string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimRight(key, "x"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// goOn does what the audit does after a crash: it reads its source again, and appends what is above the tail.
func goOn(t *testing.T, dir string, source []schemas.Record, acked int) {
	t.Helper()
	c := one(dir)
	c.Segments(400)
	p, err := folder.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	from := 0
	if last := p.Last(log, 0); len(last) > 0 {
		from = numberOf(t, string(last[0].Record.Key)) + 1
	}
	if from < acked {
		t.Fatalf("%d were acknowledged, and the tail is %d", acked, from)
	}
	put(t, p, source[from:]...)
	closeIt(t, p)
	got := keys(t, dir, log, 0)
	for i, key := range got {
		if numberOf(t, key) != i {
			t.Fatalf("record %d is %s: %v", i, key, got)
		}
	}
	if len(got) != len(source) {
		t.Fatalf("%d records, want %d", len(got), len(source))
	}
}

// A crash leaves the last segment as long as it likes, and of what was not synced anything at all.
func TestWhereverTheBytesEndNothingIsMissingOrTwice(t *testing.T) {
	t.Parallel()
	source := numbered(30)
	whole := place(t)
	c := one(whole)
	c.Segments(250)
	p := open(t, c)
	for _, rec := range source {
		put(t, p, rec)
	}
	closeIt(t, p)
	last := lastSegment(t, whole, log)
	content, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at <= len(content); at++ {
		for name, tail := range map[string][]byte{"cut": nil, "zeros": make([]byte, 50), "rubbish": []byte(strings.Repeat("\x17rubbish", 9))} {
			if name != "cut" && (at < 72 || at%5 != 0) {
				continue // a header is synced before anything follows it
			}
			dir := place(t)
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			private(t, dir)
			left := append(slices.Clone(content[:at]), tail...)
			if err := os.WriteFile(lastSegment(t, dir, log), left, 0o600); err != nil {
				t.Fatal(err)
			}
			t.Run(fmt.Sprint(name, " at ", at), func(t *testing.T) { goOn(t, dir, source, 0) })
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The process is killed before, within and after each write, and before and after each sync: a copy of the folder is what it leaves.
func TestWhateverWriteTheProcessDiesInNothingIsMissingOrTwice(t *testing.T) {
	t.Parallel()
	source := numbered(25)
	dir := place(t)
	var mu sync.Mutex
	var p *folder.Publisher
	type left struct {
		dir, when string
		acked     uint64
	}
	var all []left
	die := func(when string) {
		mu.Lock()
		defer mu.Unlock()
		l := left{dir: place(t), when: when}
		if p != nil {
			l.acked = p.Acked()
		}
		if err := os.CopyFS(l.dir, os.DirFS(dir)); err != nil {
			t.Error(err)
		}
		private(t, l.dir)
		all = append(all, l)
	}
	c := one(dir)
	c.Segments(400)
	c.Faulty(func(file *os.File, b []byte, at int64) (int, error) {
		for _, n := range []int{0, 1, 7, 8, len(b) / 2, len(b) - 1} {
			if n < 0 || n > len(b) {
				continue
			}
			if _, err := file.WriteAt(b[:n], at); err != nil {
				return 0, err
			}
			die(fmt.Sprintf("after %d of %d bytes", n, len(b)))
		}
		return file.WriteAt(b, at)
	}, func(*os.File) error {
		die("before a sync")
		return nil
	})
	opened := open(t, c)
	mu.Lock()
	p = opened
	mu.Unlock()
	for _, rec := range source {
		put(t, opened, rec)
	}
	closeIt(t, opened)
	if len(all) < 100 {
		t.Fatalf("it died %d times only", len(all))
	}
	for i, l := range all {
		t.Run(fmt.Sprint(i, " ", l.when), func(t *testing.T) { goOn(t, l.dir, source, int(l.acked)) })
	}
}

func lastSegment(t *testing.T, dir, topic string) string {
	t.Helper()
	files := segments(t, dir, topic)
	return files[len(files)-1]
}

func segments(t *testing.T, dir, topic string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "topics", topic, "0", "*.seg"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	return files
}

// private gives a copied folder the mode of its original.
func private(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestAFullDiskStopsSaysSoLosesNothingAndGoesOn(t *testing.T) {
	t.Parallel()
	dir := place(t)
	c := one(dir)
	c.Segments(400)
	c.MaxBuffered = 2000
	var full sync.Mutex // held: no room
	random := rand.New(rand.NewPCG(1, 2))
	c.Faulty(func(file *os.File, b []byte, at int64) (int, error) {
		if !full.TryLock() {
			n, _ := file.WriteAt(b[:random.IntN(len(b)+1)], at)
			return n, &os.PathError{Op: "write", Path: file.Name(), Err: syscall.ENOSPC}
		}
		defer full.Unlock()
		return file.WriteAt(b, at)
	}, nil)
	p := open(t, c)
	source := numbered(60)
	put(t, p, source[:5]...)
	full.Lock()
	taken := 5
	for _, ok := p.Append(source[taken]); ok; _, ok = p.Append(source[taken]) {
		taken++
	}
	if p.Err() != nil || taken == 5 || taken == len(source) {
		t.Fatalf("%d were taken, %v", taken, p.Err())
	}
	fixture.Eventually(t, "it says that there is no room", func() bool { return strings.Contains(p.Awaits(), "no room in "+dir) })
	if p.Stalled() == 0 || p.Acked() != 5 {
		t.Errorf("stalled for %v, %d acknowledged", p.Stalled(), p.Acked())
	}
	if got := keys(t, dir, log, 0); len(got) != 5 {
		t.Errorf("a reader sees %v", got)
	}
	full.Unlock()
	await(t, p, uint64(taken))
	for _, rec := range source[taken:] {
		put(t, p, rec)
	}
	closeIt(t, p)
	goOn(t, dir, source, len(source))
}

// The disk is a tmpfs of 256 KB.
func TestADiskThatIsReallyFull(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=256k,mode=700"); err != nil {
		t.Skipf("no small disk can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	dir := filepath.Join(disk, "sink")
	filler := filepath.Join(disk, "filler")
	c := config(dir)
	c.Segments(20_000)
	c.MaxBuffered = 50_000
	p := open(t, c)
	if err := os.WriteFile(filler, make([]byte, 150_000), 0o600); err != nil {
		t.Fatal(err)
	}
	var want []string
	last := uint64(0)
	full := false
	for i := 0; i < 3000; i++ {
		key := fmt.Sprint(i)
		number, ok := p.Append(record(log, 0, key))
		if !ok {
			if err := p.Err(); err != nil {
				t.Fatal(err)
			}
			if !full && strings.Contains(p.Awaits(), "no room") {
				full = true
				if err := os.Remove(filler); err != nil {
					t.Fatal(err)
				}
			}
			i--
			select {
			case <-p.Progress():
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		want, last = append(want, key), number
	}
	await(t, p, last)
	if !full {
		t.Error("the disk was never full")
	}
	if got := keys(t, dir, log, 0); !slices.Equal(got, want) {
		t.Errorf("%d records, want %d", len(got), len(want))
	}
}

func TestAFailedSyncEndsThePublisherAndIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	dir := place(t)
	c := one(dir)
	var mu sync.Mutex
	broken, syncs := false, 0
	c.Faulty(nil, func(*os.File) error {
		mu.Lock()
		defer mu.Unlock()
		if broken {
			syncs++
			return &os.PathError{Op: "sync", Path: "segment", Err: syscall.EIO}
		}
		return nil
	})
	p := open(t, c)
	source := numbered(10)
	put(t, p, source[:4]...)
	mu.Lock()
	broken = true
	mu.Unlock()
	if _, ok := p.Append(source[4]); !ok {
		t.Fatal("not taken")
	}
	fixture.Eventually(t, "it ends", func() bool { return p.Err() != nil })
	if err := p.Err(); !errors.Is(err, folder.ErrNotDurable) || !folder.Terminal(err) || !strings.Contains(err.Error(), ".seg") {
		t.Errorf("it ended by %v", err)
	}
	if _, ok := p.Append(source[5]); ok || p.Acked() != 4 {
		t.Errorf("taken: %v; %d are acknowledged", ok, p.Acked())
	}
	closeIt(t, p)
	if syncs != 1 {
		t.Errorf("it was synced %d times", syncs)
	}
	goOn(t, dir, source, 4)
}
