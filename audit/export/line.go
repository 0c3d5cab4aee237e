package export

import (
	"bytes"
	"encoding/json"
	"time"
	"unicode/utf8"

	"lapse/schemas"
)

// Line is a line of a partition's file: a record as the topic has it, fences included.
type Line struct {
	Offset  int64     `json:"offset"`
	Time    time.Time `json:"time"`
	Headers []header  `json:"headers"`
	Key     content   `json:"key"`
	Value   content   `json:"value"`
}

type header struct {
	Name  string  `json:"name"`
	Value content `json:"value"`
}

// content is a string if the bytes are UTF-8, otherwise {"base64": …}, and null if there are none.
type content []byte

func (b content) MarshalJSON() ([]byte, error) {
	switch {
	case b == nil:
		return []byte("null"), nil
	case utf8.Valid(b):
		return unescaped(string(b))
	default:
		return json.Marshal(map[string][]byte{"base64": b})
	}
}

// UnmarshalJSON reads what MarshalJSON writes.
func (b *content) UnmarshalJSON(text []byte) error {
	var s *string
	if json.Unmarshal(text, &s) == nil {
		if *b = nil; s != nil {
			*b = []byte(*s)
		}
		return nil
	}
	var coded map[string][]byte
	err := json.Unmarshal(text, &coded)
	*b = coded["base64"]
	return err
}

// unescaped writes JSON with <, > and & unescaped.
func unescaped(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimRight(out.Bytes(), "\n"), err
}

// LineOf makes a record's line.
func LineOf(r *schemas.Record, offset int64) *Line {
	line := &Line{Offset: offset, Time: r.Time.UTC(), Headers: []header{}, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		line.Headers = append(line.Headers, header{h.Key, h.Value})
	}
	return line
}

// Text is the line in its file, with its end.
func (l *Line) Text() ([]byte, error) {
	text, err := unescaped(l)
	return append(text, '\n'), err
}

// record makes the line a record again.
func (l *Line) record(topic string, partition int32) *schemas.Record {
	rec := &schemas.Record{Topic: topic, Partition: partition, Key: l.Key, Value: l.Value, Time: l.Time}
	for _, h := range l.Headers {
		rec.Headers = append(rec.Headers, schemas.Header{Key: h.Name, Value: h.Value})
	}
	return rec
}
