package measure

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc's times: a hundredth of a second on every Linux that PostgreSQL runs on.
const tick = 10 * time.Millisecond

// CPU is what a process and its children have taken: the children that have ended and been waited for, and those that run.
func CPU(pid int) (time.Duration, error) {
	for {
		own, ended, err := times(strconv.Itoa(pid))
		if err != nil {
			return 0, err
		}
		running, err := childrenOf(pid)
		if err != nil {
			return 0, err
		}
		// A child that was waited for meanwhile is in neither.
		_, after, err := times(strconv.Itoa(pid))
		if err != nil || after == ended {
			return time.Duration(own+ended+running) * tick, err
		}
	}
}

// childrenOf is what the running children of a process have taken.
func childrenOf(pid int) (ticks int64, err error) {
	folders, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, folder := range folders {
		if _, err := strconv.Atoi(folder.Name()); err != nil {
			continue
		}
		field, err := stat(folder.Name())
		if err != nil || field[1] != strconv.Itoa(pid) {
			continue // somebody else's, or it has ended
		}
		own, _, err := times(folder.Name())
		if err == nil {
			ticks += own
		}
	}
	return ticks, nil
}

// times is what a process has taken, and what those of its children have that have ended.
func times(pid string) (own, ended int64, err error) {
	field, err := stat(pid)
	if err != nil {
		return 0, 0, err
	}
	var ticks [4]int64 // utime, stime, cutime, cstime
	for i := range ticks {
		if ticks[i], err = strconv.ParseInt(field[11+i], 10, 64); err != nil {
			return 0, 0, err
		}
	}
	return ticks[0] + ticks[1], ticks[2] + ticks[3], nil
}

// stat is a process's line, from its state on: field 3 of proc(5).
func stat(pid string) ([]string, error) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	field := strings.Fields(rest)
	if len(field) < 15 {
		return nil, fmt.Errorf("read /proc/%s/stat: it has %d fields after the name", pid, len(field))
	}
	return field, nil
}

// Peak is the most memory that was resident in a running process up to now, in bytes. It is the process's own, without its children. What
// getrusage says of a child that has ended is another figure: it is never below what the parent had resident when it started the child.
func Peak(pid int) (int64, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmHWM: the process has ended", pid)
}

// peakInterval is how often WatchPeak reads; what a process takes for a shorter time before its end is not seen.
const peakInterval = 10 * time.Millisecond

// WatchPeak watches a process until it is told to stop, and says then the most that it has seen resident.
func WatchPeak(pid int) (stop func() int64) {
	most, _ := Peak(pid) // or it has ended
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(peakInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if peak, err := Peak(pid); err == nil {
					most = max(most, peak)
				}
			case <-end:
				return
			}
		}
	}()
	return func() int64 {
		close(end)
		<-ended
		return most
	}
}

// Jiffies are the times of all cores since the machine was started, in the kernel's unit.
type Jiffies struct{ all, idle int64 }

// Machine reads them.
func Machine() (Jiffies, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Jiffies{}, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var j Jiffies
	for i, field := range strings.Fields(line)[1:] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return Jiffies{}, fmt.Errorf("read /proc/stat: %w", err)
		}
		if i < 8 { // the guests' times after them are in the first two already
			j.all += n
		}
		if i == 3 || i == 4 { // idle and iowait
			j.idle += n
		}
	}
	return j, nil
}

// BusySince returns the share of the cores' time that was taken since an earlier reading.
func (j Jiffies) BusySince(earlier Jiffies) float64 {
	all := j.all - earlier.all
	if all == 0 {
		return 0
	}
	return 1 - float64(j.idle-earlier.idle)/float64(all)
}
