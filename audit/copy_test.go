package audit_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"lapse/audit"
	"lapse/audit/evidence"
	"lapse/internal/fixture"
	"lapse/replication"
	"lapse/schemas"
)

// copyTo copies the slot's events up to the current end of the WAL, and returns what the file has then.
func (r *rig) copyTo(t *testing.T, path string, change ...func(*audit.Config)) (text []byte, copied audit.Copied, err error) {
	t.Helper()
	until := func(c *audit.Config) {
		c.OnEnd(func(ctx context.Context) (lsn schemas.LSN, err error) {
			err = r.db.Connect(t).QueryRow(ctx, `select pg_current_wal_flush_lsn()::text`).Scan(&lsn)
			return lsn, err
		})
	}
	file, err := audit.OpenEventFile(path)
	if err == nil {
		copied, err = r.auditor(t, append(change, until)...).Copy(t.Context(), file)
		if closed := file.Close(); closed != nil {
			t.Error(closed)
		}
	}
	text, read := os.ReadFile(path)
	if read != nil {
		t.Fatal(read)
	}
	return text, copied, err
}

func in(format string) func(*audit.Config) { return func(c *audit.Config) { c.Format = format } }

// published are the values in the topics in the order of their positions, what is in every partition once.
func (r *rig) published(t *testing.T) (lines []byte) {
	t.Helper()
	type event struct {
		at    replication.Position
		value []byte
	}
	var all []event
	for _, topic := range []string{r.settings.System, r.settings.User} {
		for _, record := range r.read(t, topic) {
			v, err := evidence.ParseEventValue(record.Value)
			if err != nil {
				t.Fatalf("%v: %s", err, record.Value)
			}
			all = append(all, event{v.Position, record.Value})
		}
	}
	slices.SortFunc(all, func(a, b event) int { return a.at.Compare(b.at) })
	all = slices.CompactFunc(all, func(a, b event) bool { return a.at == b.at })
	for _, e := range all {
		lines = append(append(lines, e.value...), '\n')
	}
	return lines
}

func (r *rig) mixture(t *testing.T, w *writer) {
	t.Helper()
	for _, kind := range []func([]int64) transaction{system, user, forger, intruder, latecomer} {
		r.commit(t, w, 3, kind)
	}
	if err := w.commit(t.Context(), newExpected(), emptier); err != nil {
		t.Fatal(err)
	}
	r.commit(t, w, 2, system)
}

func TestEventsInAFileAreThoseOfTheTopicsByteForByte(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		r.db.Exec(t, beatNow) // events name roots by this heartbeat
		r.once(t)
		r.mixture(t, w)
		before := r.confirmed(t, w.conn)
		path := func(name string) string { return filepath.Join(t.TempDir(), name) }
		files := map[string][]byte{}
		for _, format := range []string{evidence.FormatSpanner, evidence.FormatDebezium, evidence.FormatCloudEvents} {
			text, copied, err := r.copyTo(t, path(format), in(format))
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(text, []byte("\n")); n != copied.Events || n < 30 || copied.From != before || copied.Reached <= before {
				t.Errorf("%s: %d lines, and it says %+v; the slot is at %s", format, n, copied, before)
			}
			files[format] = text
			// Whatever a crash leaves of it, the rest is written, and nothing twice.
			for _, kept := range []int{0, 1, len(text) / 3, len(text) / 2, len(text) - 1, len(text)} {
				torn := path("torn")
				if err := os.WriteFile(torn, text[:kept], 0o600); err != nil {
					t.Fatal(err)
				}
				again, copied, err := r.copyTo(t, torn, in(format))
				if err != nil || !bytes.Equal(again, text) || copied.Events != bytes.Count(text[max(0, bytes.LastIndexByte(text[:kept], '\n')+1):], []byte("\n")) {
					t.Errorf("%s, %d bytes of %d kept: %d bytes, %+v, %v", format, kept, len(text), len(again), copied, err)
				}
			}
		}
		if after := r.confirmed(t, w.conn); after != before {
			t.Errorf("the slot has moved from %s to %s", before, after)
		}
		if left := fixture.One[int](t, w.conn, `select count(*) from pg_replication_slots where slot_name like 'lapse\_copy\_%' and database = current_database()`); left > 1 { // the last one's server process may still be ending
			t.Errorf("%d copies are left", left)
		}

		r.once(t)
		if got := r.published(t); !bytes.Contains(got, []byte(`"root":"public.sessions"`)) || !bytes.Equal(got, files[evidence.FormatSpanner]) {
			t.Errorf("in the topics\n%s\nin the file\n%s", got, files[evidence.FormatSpanner])
		}
		r.mixture(t, w)
		beside := path("beside")
		if err := os.WriteFile(beside, files[evidence.FormatSpanner], 0o600); err != nil {
			t.Fatal(err)
		}
		if text, _, err := r.copyTo(t, beside); err == nil || !strings.Contains(err.Error(), "the slot has moved on to") || !bytes.Equal(text, files[evidence.FormatSpanner]) {
			t.Errorf("a file that the slot has left behind is gone on with: %v", err)
		}
	})
}

func TestEventsAreCopiedBesideAnAuditorAndOnlyBehindTheirOwn(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		dir := t.TempDir()
		r.commit(t, w, 2, user)
		path := filepath.Join(dir, "events")
		text, _, err := r.copyTo(t, path)
		if err != nil {
			t.Fatal(err)
		}
		for name, test := range map[string]struct {
			text   string
			format string
			want   string
		}{
			"of another database": {strings.ReplaceAll(string(text), `"database_oid":`, `"database_oid":1`), "", "it has events of database 1"},
			"in another format":   {string(text), evidence.FormatCloudEvents, "in format spanner"},
			"of another program":  {"{}\n", "", "no event"},
			"of another history":  {strings.ReplaceAll(string(text), `"history":1`, `"history":2`), "", "ends in history 2"},
			"that is no text":     {strings.Repeat("\x00", 5000) + "\n", "", "no event"},
			"of one endless line": {strings.Repeat("x", 3<<20) + "\n", "", "no lines of events"},
		} {
			other := filepath.Join(dir, "other")
			if err := os.WriteFile(other, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, _, err := r.copyTo(t, other, in(test.format))
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "name another file") || string(got) != test.text {
				t.Errorf("a file %s: %v", name, err)
			}
		}

		run := r.start(t)
		eventually(t, "the auditor is ready", func() bool { return run.Ready() == nil })
		r.catchUp(t, w.conn)
		r.commit(t, w, 2, system)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		seen := &lines{wanted: 6, cancel: cancel}
		ended := make(chan error, 1)
		follower := r.auditor(t)
		go func() { // without an end, until it has seen the rows that are deleted below
			_, err := follower.Copy(ctx, audit.NewEventStream("the test", seen))
			ended <- err
		}()
		// Whether a copy begins below or above this batch depends on how far the auditor has come: so there is another one.
		eventually(t, "a copy is there", func() bool {
			return fixture.One[bool](t, w.conn, `select exists (select from pg_replication_slots where slot_name like 'lapse\_copy\_%' and active and database = current_database())`)
		})
		r.commit(t, w, 2, system)
		if err := <-ended; err != nil {
			t.Errorf("a copy beside the auditor: %v", err)
		}
		r.catchUp(t, w.conn)
		if n := len(r.read(t, r.settings.System)); n != 12 {
			t.Errorf("%d events are in the topic beside which a copy ran", n)
		}
	})
}

// A copy is killed with -9 before its first line, within the first chunk that it writes out, in the middle of a line, and after what it has
// synced. What is left each time is a beginning of what the topics get, and the next copy writes the rest once.
func TestAKilledCopyLeavesABeginningAndTheNextOneGoesOnThere(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		r.mixture(t, w)
		r.commit(t, w, 2000, user)
		r.mixture(t, w)
		before := r.confirmed(t, w.conn)
		path := filepath.Join(t.TempDir(), "events")
		var left [][]byte
		for _, atEvent := range []int{1, 300, 1000, 1100, 2500, 4500, 5999} {
			s := r.settings
			s.CopyTo, s.DieAtEvent = path, atEvent
			child := startChild(t, s)
			<-child.dead
			if status, ok := child.command.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
				t.Fatalf("before event %d it did not die by kill -9: %v\n%s", atEvent, child.command.ProcessState, child.log.Bytes())
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if lines := bytes.Count(text, []byte("\n")); lines >= atEvent {
				t.Errorf("before event %d there are %d lines", atEvent, lines)
			}
			left = append(left, text)
		}
		whole, _, err := r.copyTo(t, path)
		if err != nil {
			t.Fatal(err)
		}
		torn := 0
		for i, text := range left {
			if !bytes.HasPrefix(whole, text) {
				t.Errorf("what kill %d left is no beginning of the whole", i)
			}
			if len(text) > 0 && text[len(text)-1] != '\n' {
				torn++
			}
		}
		if torn == 0 {
			t.Error("no kill tore a line")
		}
		if after := r.confirmed(t, w.conn); after != before {
			t.Errorf("the slot has moved from %s to %s", before, after)
		}
		r.once(t)
		if !bytes.Equal(whole, r.published(t)) {
			t.Error("the file is not what the topics have")
		}
	})
}

// A file without a line knows how far it reaches too, and one with lines knows it beyond the last.
func TestAFileGoesOnOnlyWhereNothingIsMissing(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		path := filepath.Join(t.TempDir(), "events")
		copies := func(what string, want int, err error) {
			t.Helper()
			_, copied, got := r.copyTo(t, path)
			if !errors.Is(got, err) || (got == nil) != (err == nil) || copied.Events != want {
				t.Errorf("%s: %d events, %v; want %d, %v", what, copied.Events, got, want, err)
			}
		}
		said := func() evidence.Reach {
			t.Helper()
			text, err := os.ReadFile(path + ".reached")
			if err != nil {
				t.Fatal(err)
			}
			reach, err := evidence.ParseReach(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			return reach
		}
		r.once(t)
		copies("nothing yet", 0, nil)
		r.commit(t, w, 5, user)
		r.once(t) // the slot moves on
		copies("after five events that it has not", 0, audit.ErrOtherEvents)
		if _, _, err := r.copyTo(t, path); err == nil || !strings.Contains(err.Error(), "remove "+path+".reached to begin again") {
			t.Errorf("%v does not say what keeps an empty file from being gone on with", err)
		}
		if err := os.Remove(path + ".reached"); err != nil {
			t.Fatal(err)
		}
		r.commit(t, w, 3, user)
		copies("nine events", 9, nil)
		before := said()
		r.db.Exec(t, `create table unpublished as select generate_series(1, 10000)`)
		copies("nothing more", 0, nil)
		if after := said(); after.Compare(before) <= 0 {
			t.Errorf("it reaches %s, as before", after)
		}
		r.commit(t, w, 1, user)
		r.once(t)
		copies("after one event that it has not", 0, audit.ErrOtherEvents)
	})
}

// What cannot be written ends the copy at once, and the slot of the database stays where it is.
func TestACopyEndsWhenNothingCanBeWritten(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		w := &writer{conn: r.db.Connect(t)}
		r.commit(t, w, 3, user)
		before := r.confirmed(t, w.conn)
		full := errors.New("no space")
		copied, err := r.auditor(t).Copy(t.Context(), audit.NewEventStream("the test", failing{full}))
		if !errors.Is(err, full) || !strings.Contains(err.Error(), "write to the test") || copied.Reached != 0 {
			t.Errorf("%+v, %v", copied, err)
		}
		if after := r.confirmed(t, w.conn); after != before {
			t.Errorf("the slot has moved from %s to %s", before, after)
		}
	})
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// lines counts lines, and cancels when there are as many as are wanted.
type lines struct {
	wanted int
	cancel context.CancelFunc
}

func (l *lines) Write(p []byte) (int, error) {
	if l.wanted -= bytes.Count(p, []byte("\n")); l.wanted <= 0 {
		l.cancel()
	}
	return len(p), nil
}
