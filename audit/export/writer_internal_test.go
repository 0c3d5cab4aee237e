package export

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"lapse/audit/folder"
	"lapse/schemas"
)

func TestAnExportBeginsInAFolderOfItsOwn(t *testing.T) {
	t.Parallel()
	topics := Topics{System: "system", User: "user", Log: "log", Proofs: "proofs"}
	dir := t.TempDir()
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{FileName("log", 0), FileName("user", 3), ".writing-export.json", "checkpoint"} {
		write(name) // an export that was interrupted before it had a manifest
	}
	if _, err := Begin(dir, topics); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("what was interrupted has left %v (%v)", left, err)
	}
	write("readme")
	write(FileName("log", 0))
	if _, err := Begin(dir, topics); !errors.As(err, new(*InputError)) {
		t.Errorf("an export into a folder of something else: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("a folder of something else has %v (%v)", left, err)
	}
}

func TestAPartitionIsReadBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	records := []schemas.Record{
		{Key: []byte("a"), Value: []byte("<1>"), Headers: []schemas.Header{{Key: "x", Value: []byte("\xff")}}},
		{Key: []byte("b"), Value: []byte("\xff")},
	}
	cfg := folder.Config{Dir: filepath.Join(t.TempDir(), "topics"), FenceHeaders: []schemas.Header{{Key: "x", Value: []byte("x")}}, Topics: []folder.Topic{{Name: "user", Partitions: 1}}}
	p, err := folder.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range records {
		rec.Topic = "user"
		number, ok := p.Append(rec)
		if !ok {
			t.Fatal("the buffer is full")
		}
		for p.Acked() < number {
			<-p.Progress()
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := folder.NewClient(cfg.Dir)
	defer client.Close()
	bounds, err := client.Offsets(t.Context(), "user")
	if err != nil {
		t.Fatal(err)
	}
	w, err := Begin(t.TempDir(), Topics{User: "user", Log: "log"})
	if err != nil {
		t.Fatal(err)
	}
	of := File{Topic: "user", First: bounds[0].First, End: bounds[0].End}
	if err := w.Partition(t.Context(), of, client.Reader("user", 0, w.From("user", 0, of.First), of.End)); err != nil {
		t.Fatal(err)
	}
	var got []schemas.Record
	last, err := (&Reader{dir: w.dir}).Each(t.Context(), &w.manifest.Files[0], func(rec *schemas.Record, _ int64) error {
		if len(rec.Key) > 0 { // not a fence
			got = append(got, schemas.Record{Key: rec.Key, Value: rec.Value, Headers: rec.Headers})
		}
		return nil
	})
	if err != nil || last != of.End-1 || !reflect.DeepEqual(got, records) {
		t.Errorf("up to %d of %d: %+v, not %+v (%v)", last, of.End, got, records, err)
	}
}
