package folder_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lapse/audit/folder"
	"lapse/audit/store"
	"lapse/internal/fixture"
	"lapse/schemas"
)

const (
	events = "lapse.deletes.user"
	log    = "lapse.log"
)

// place is a folder that is not there yet.
func place(t *testing.T) string { return filepath.Join(t.TempDir(), "sink") }

func config(dir string) folder.Config {
	c := folder.Config{Dir: dir, Topics: []folder.Topic{{Name: events, Partitions: 2}, {Name: log, Partitions: 1, Forever: true, Tree: true}}}
	c.Quick()
	return c
}

func open(t *testing.T, c folder.Config) *folder.Publisher {
	t.Helper()
	p, err := folder.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeIt(t, p) })
	return p
}

func closeIt(t *testing.T, p *folder.Publisher) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), fixture.Patience)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
}

func record(topic string, partition int32, text string) schemas.Record {
	return schemas.Record{
		Topic: topic, Partition: partition, Key: []byte(text), Value: []byte("value of " + text), Time: time.UnixMilli(1_700_000_000_000).UTC(),
		Headers: []schemas.Header{{Key: schemas.HeaderOp, Value: []byte("delete")}, {Key: "empty", Value: []byte{}}},
	}
}

// put appends records and waits until they are durable.
func put(t *testing.T, p *folder.Publisher, records ...schemas.Record) {
	t.Helper()
	var last uint64
	for _, rec := range records {
		number, ok := p.Append(rec)
		if !ok {
			t.Fatalf("not taken: %v", p.Err())
		}
		last = number
	}
	await(t, p, last)
}

func await(t *testing.T, p *folder.Publisher, number uint64) {
	t.Helper()
	deadline := time.After(fixture.Patience)
	for p.Acked() < number {
		select {
		case <-p.Progress():
			if err := p.Err(); err != nil {
				t.Fatal(err)
			}
		case <-deadline:
			t.Fatalf("%d of %d are durable", p.Acked(), number)
		}
	}
}

// keys are the keys of a partition's records, without fences.
func keys(t *testing.T, dir, topic string, partition int32) []string {
	t.Helper()
	var all []string
	for _, rec := range read(t, dir, topic, partition) {
		if !rec.Record.IsFence() {
			all = append(all, string(rec.Record.Key))
		}
	}
	return all
}

func read(t *testing.T, dir, topic string, partition int32) (all []store.Record) {
	t.Helper()
	c := folder.NewClient(dir)
	bounds, err := c.Offsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	b := bounds[partition]
	err = store.Each(t.Context(), c.Reader(topic, partition, b.First, b.End), func(rec *schemas.Record, offset int64) error {
		all = append(all, store.Record{Record: *rec, Offset: offset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var back []store.Record
	err = c.Backward(t.Context(), topic, partition, -1, func(rec *schemas.Record, offset int64) (bool, error) {
		back = append(back, store.Record{Record: *rec, Offset: offset})
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(back)
	if fmt.Sprint(all) != fmt.Sprint(back) {
		t.Fatalf("read backward, %s/%d has other records", topic, partition)
	}
	return all
}

func TestWhatIsAcknowledgedIsReadBackAsItWas(t *testing.T) {
	t.Parallel()
	dir := place(t)
	p := open(t, config(dir))
	want := []schemas.Record{record(events, 1, "a"), record(log, 0, "b"), record(events, 1, "c")}
	want[2].Key, want[2].Value, want[2].Headers = nil, []byte{}, []schemas.Header{}
	put(t, p, want...)
	got := read(t, dir, events, 1)
	if len(got) != 3 || !got[0].Record.IsFence() || got[1].Offset != 1 {
		t.Fatalf("there are %+v", got)
	}
	for i, rec := range []schemas.Record{want[0], want[2]} {
		if fmt.Sprintf("%#v", got[i+1].Record) != fmt.Sprintf("%#v", rec) {
			t.Errorf("read back:\n%#v\nwant:\n%#v", got[i+1].Record, rec)
		}
	}
	if end := p.End(events, 1); end.Offset != 3 || end.Epoch != 1 || end.Producer == 0 {
		t.Errorf("the end is %+v", end)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder has mode %v, %v", info.Mode(), err)
	}
}

func TestASecondOpeningHasTheNextEpochAndSeesTheTail(t *testing.T) {
	t.Parallel()
	dir := place(t)
	p := open(t, config(dir))
	put(t, p, record(events, 0, "a"), record(events, 0, "b"))
	before := p.End(events, 0)
	closeIt(t, p)
	p = open(t, config(dir))
	last := p.Last(events, 0)
	if len(last) != 1 || string(last[0].Record.Key) != "b" || last[0].Offset != 2 {
		t.Errorf("the tail is %+v", last)
	}
	put(t, p, record(events, 0, "c"))
	if got := keys(t, dir, events, 0); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("there are %v", got)
	}
	c := folder.NewClient(dir)
	now := p.End(events, 0)
	bounds, _ := c.Offsets(t.Context(), events)
	for name, of := range map[string]struct {
		end  store.End
		want bool
	}{
		"the former end":   {before, true},
		"the end":          {now, true},
		"of another epoch": {store.End{Offset: now.Offset, Producer: now.Producer, Epoch: 1}, false},
		"of another":       {store.End{Offset: now.Offset, Producer: 1, Epoch: now.Epoch}, false},
		"beyond":           {store.End{Offset: now.Offset + 1, Producer: now.Producer, Epoch: now.Epoch}, false},
	} {
		if has, err := c.Has(t.Context(), events, 0, bounds[0], of.end); has != of.want || err != nil {
			t.Errorf("%s: %v, %v", name, has, err)
		}
	}
	if now.Epoch != before.Epoch+1 {
		t.Errorf("epochs %d and %d", before.Epoch, now.Epoch)
	}
}

func TestOnlyOneProcessPublishes(t *testing.T) {
	t.Parallel()
	dir := place(t)
	p := open(t, config(dir))
	_, err := folder.Open(t.Context(), config(dir))
	if !errors.Is(err, folder.ErrLocked) || !folder.Terminal(err) || !folder.Locked(dir) {
		t.Errorf("a second one got %v", err)
	}
	closeIt(t, p)
	if folder.Locked(dir) {
		t.Error("the lock outlives its publisher")
	}
	open(t, config(dir))
}

func TestAPartitionGoesOnOverManySegments(t *testing.T) {
	t.Parallel()
	dir := place(t)
	c := config(dir)
	c.Segments(300)
	p := open(t, c)
	var want []string
	for i := range 40 {
		if i == 20 {
			closeIt(t, p)
			p = open(t, c)
		}
		key := fmt.Sprint("k", i)
		put(t, p, record(log, 0, key))
		want = append(want, key)
	}
	if got := keys(t, dir, log, 0); !slices.Equal(got, want) {
		t.Errorf("there are %v", got)
	}
	files, err := filepath.Glob(filepath.Join(dir, "topics", log, "0", "*.seg"))
	if err != nil || len(files) < 10 {
		t.Errorf("%d segments, %v", len(files), err)
	}
	reader := folder.NewClient(dir)
	for _, from := range []int64{0, 1, 7, 19, 33} {
		rec, offset, err := reader.Reader(log, 0, from, from+1).Next(t.Context())
		if err != nil || offset != from {
			t.Errorf("from %d: %d, %v, %v", from, offset, rec, err)
		}
	}
	var gone *store.OffsetError
	if _, _, err := reader.Reader(log, 0, 1000, 1001).Next(t.Context()); !errors.As(err, &gone) {
		t.Errorf("beyond the end: %v", err)
	}
}

func TestAReaderFollowsWhatComes(t *testing.T) {
	t.Parallel()
	dir := place(t)
	c := config(dir)
	c.Segments(400)
	p := open(t, c)
	ctx, stop := context.WithTimeout(t.Context(), fixture.Patience)
	defer stop()
	got := make(chan string, 100)
	go func() {
		_ = store.Each(ctx, folder.NewClient(dir).Reader(events, 0, 0, store.NoEnd), func(rec *schemas.Record, _ int64) error {
			if !rec.IsFence() {
				got <- string(rec.Key)
			}
			return nil
		})
		close(got)
	}()
	for i := range 30 {
		put(t, p, record(events, 0, fmt.Sprint(i)))
	}
	for i := range 30 {
		if key := <-got; key != fmt.Sprint(i) {
			t.Fatalf("got %q, want %d", key, i)
		}
	}
}

func TestAMissingTopicIsNamed(t *testing.T) {
	t.Parallel()
	c := folder.NewClient(place(t))
	var missing *store.MissingError
	if _, err := c.Offsets(t.Context(), log); !errors.As(err, &missing) || !strings.Contains(err.Error(), log) {
		t.Errorf("offsets: %v", err)
	}
	err := c.Backward(t.Context(), log, 0, -1, func(*schemas.Record, int64) (bool, error) { return true, nil })
	if !errors.As(err, &missing) {
		t.Errorf("backward: %v", err)
	}
	if known, err := c.Known(t.Context(), log); known || err != nil {
		t.Errorf("known: %v, %v", known, err)
	}
}
