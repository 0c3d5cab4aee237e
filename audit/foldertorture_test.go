//go:build torture

package audit_test

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"lapse/internal/pgtest"
)

// TestNothingIsMissingOrTwiceInAFolderUnderTorture is make torture-audit SINK=dir: one auditor, whose topics are in a folder, is killed
// with -9 or frozen, its stream is cut, PostgreSQL is killed, and the disk is full for some seconds, where a small one can be mounted, at
// random moments of a load of every kind of transaction. Afterwards everything that was committed is in its topic once, and the log agrees.
func TestNothingIsMissingOrTwiceInAFolderUnderTorture(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		seed, minutes := number("LAPSE_TEST_SEED", time.Now().UnixNano()), time.Duration(number("LAPSE_TORTURE", 5))*time.Minute
		random := rand.New(rand.NewPCG(uint64(seed), uint64(db.Major)))
		r := newFolderRig(t, db)
		disk := filepath.Dir(r.settings.Folder)
		// What is published in a run, however long it is, is some 200 MB.
		err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=600m,mode=700")
		if err != nil {
			t.Logf("the disk is never full: no small one can be mounted: %v", err)
		} else {
			t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
		}
		small := err == nil
		r.settings.MaxBuffered = 256 << 10
		t.Logf("SEED=%d, %s", seed, minutes)
		did, began := map[string]int{}, time.Now()
		whileLoaded(t, r, seed, 20*time.Millisecond*minutes/time.Minute, func() {
			child := startChild(t, r.settings)
			pause := func(most time.Duration) { pauseFor(t.Context(), time.Duration(random.Int64N(int64(most)))) }
			faults := []struct {
				name   string
				weight int
				do     func()
			}{
				{"auditor killed", 6, func() {
					child.kill()
					child = startChild(t, r.settings)
				}},
				{"auditor frozen", 2, func() {
					_ = child.command.Process.Signal(syscall.SIGSTOP)
					pause(3 * time.Second)
					_ = child.command.Process.Signal(syscall.SIGCONT)
				}},
				{"stream cut", 2, func() { r.cutStream(t) }},
				{"PostgreSQL killed", 1, func() {
					if err := db.Server.Kill(); err != nil {
						t.Fatal(err)
					}
					if err := db.Server.Start(t.Context()); err != nil {
						t.Fatal(err)
					}
				}},
				{"disk full", 2, func() {
					if small {
						fill(t, filepath.Join(disk, "filler"), func() { pause(4 * time.Second) })
					}
				}},
				{"disk full, and the auditor killed", 1, func() {
					if small {
						fill(t, filepath.Join(disk, "filler"), func() {
							pause(2 * time.Second)
							child.kill()
							child = startChild(t, r.settings)
							pause(2 * time.Second)
						})
					}
				}},
			}
			sum := 0
			for _, f := range faults {
				sum += f.weight
			}
			for time.Since(began) < minutes && !t.Failed() {
				pause(2 * time.Second)
				at := random.IntN(sum)
				for _, f := range faults {
					if at -= f.weight; at < 0 {
						did[f.name]++
						f.do()
						break
					}
				}
				child.check(t)
			}
			child.kill()
		})
		for _, name := range slices.Sorted(maps.Keys(did)) {
			t.Logf("%s: %d", name, did[name])
		}
	}, impatient)
}

// fill leaves no room on a disk while something is done.
func fill(t *testing.T, filler string, do func()) {
	t.Helper()
	file, err := os.Create(filler)
	if err != nil {
		return // there is no room for its name
	}
	block := make([]byte, 1<<20)
	for len(block) > 0 {
		if _, err := file.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	do()
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
}
