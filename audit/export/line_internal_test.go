package export

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lapse/schemas"
)

// slowLine reads a line as encoding/json does.
func slowLine(text []byte) (*schemas.Record, int64, bool) {
	var line Line
	if json.Unmarshal(text, &line) != nil {
		return nil, 0, false
	}
	return line.record("", 0), line.Offset, true
}

func TestALineThatIsScannedIsTheOneThatJSONReads(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := func(name string) []byte {
			return rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 20), rapid.Custom(func(t *rapid.T) []byte {
				return []byte(rapid.StringN(0, 30, -1).Draw(t, "text"))
			}), rapid.Just([]byte("{\"key\":\"a \\\"b\\\"\"}\n\t<>&\u2028"))).Draw(t, name)
		}
		rec := &schemas.Record{Key: value("key"), Value: value("value"), Time: time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "time"), 123456000)}
		for range rapid.IntRange(0, 4).Draw(t, "headers") {
			rec.Headers = append(rec.Headers, schemas.Header{Key: rapid.StringN(0, 8, -1).Draw(t, "name"), Value: value("header")})
		}
		text, err := unescaped(LineOf(rec, rapid.Int64Range(0, 1<<40).Draw(t, "offset")))
		if err != nil {
			t.Fatal(err)
		}
		sameLine(t, text)
		for range 3 { // somebody has changed a byte
			changed := append([]byte(nil), text...)
			changed[rapid.IntRange(0, len(text)-1).Draw(t, "at")] ^= byte(1 << rapid.IntRange(0, 7).Draw(t, "bit"))
			sameLine(t, changed)
		}
	})
}

// sameLine wants a line that is scanned to be what encoding/json reads.
func sameLine(t interface{ Errorf(string, ...any) }, text []byte) {
	want, offset, read := slowLine(text)
	s := &scanner{}
	for range 2 { // the second time with the names of the first
		got, at, ok := s.scan(append([]byte(nil), text...))
		if !ok {
			continue // it is left to encoding/json
		}
		if !read || at != offset || !got.Time.Equal(want.Time) || !reflect.DeepEqual(got.Headers, want.Headers) || !reflect.DeepEqual(got.Key, want.Key) || !reflect.DeepEqual(got.Value, want.Value) {
			t.Errorf("%s is scanned as %+v at %d, and read as %+v at %d (%v)", text, got, at, want, offset, read)
		}
	}
}

// What lapse itself writes is scanned, or nothing is gained.
func TestALineOfAnEventIsScanned(t *testing.T) {
	t.Parallel()
	text, err := unescaped(LineOf(&schemas.Record{
		Key: []byte(`{"id":"42"}`), Value: []byte(`{"table":"public.sessions","keys":[{"id":"42"}]}`), Time: time.Now(),
		Headers: []schemas.Header{{Key: "lapse-op", Value: []byte("delete")}, {Key: "lapse-root", Value: []byte{}}},
	}, 7))
	if err != nil {
		t.Fatal(err)
	}
	rec, offset, ok := (&scanner{}).scan(append(text, '\n'))
	if !ok || offset != 7 || rec.Header("lapse-op") != "delete" || string(rec.Key) != `{"id":"42"}` {
		t.Errorf("scanned %v: %+v at %d", ok, rec, offset)
	}
}

func TestWhatIsExportedIsReadBackAsItWas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := content(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		if rapid.Bool().Draw(t, "text") {
			b = content(rapid.String().Draw(t, "characters"))
		}
		if rapid.IntRange(0, 9).Draw(t, "nothing") == 0 {
			b = nil
		}
		text, err := unescaped(Line{Value: b})
		if err != nil {
			t.Fatal(err)
		}
		var back Line
		if err := json.Unmarshal(text, &back); err != nil || !bytes.Equal(back.Value, b) || (back.Value == nil) != (b == nil) {
			t.Fatalf("%q is written as %s and read as %q (%v)", b, text, back.Value, err)
		}
	})
}
