package main

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"

	"lapse/schemas"
)

// lineScanner parses lines of an export in the form that lapse writes, without encoding/json, which takes four times as long: a year has a
// hundred million lines. It leaves any other form to encoding/json.
type lineScanner struct {
	names map[string]string // header names: few, and repeated in every line
	rest  []byte
	bad   bool
}

// scan parses a line and keeps references into it. ok is false if encoding/json must parse the line. scan does not change text.
func (s *lineScanner) scan(text []byte) (rec *schemas.Record, offset int64, ok bool) {
	if bytes.IndexByte(text, '\\') >= 0 || bytes.Contains(text, []byte(`{"base64":`)) {
		text = bytes.Clone(text) // escapes are decoded in place
	}
	if !utf8.Valid(text) {
		return nil, 0, false
	}
	if s.names == nil {
		s.names = map[string]string{}
	}
	s.rest, s.bad = text, false
	rec = &schemas.Record{}
	s.want(`{"offset":`)
	offset = s.number()
	s.want(`,"time":`)
	rec.Time = s.time()
	s.want(`,"headers":[`)
	rec.Headers = make([]schemas.Header, 0, 16)
	for more := !s.has(`]`); more && !s.bad; more = !s.has(`]`) {
		if len(rec.Headers) > 0 {
			s.want(`,`)
		}
		s.want(`{"name":`)
		name := s.name()
		s.want(`,"value":`)
		rec.Headers = append(rec.Headers, schemas.Header{Key: name, Value: s.text()})
		s.want(`}`)
	}
	s.want(`,"key":`)
	rec.Key = s.text()
	s.want(`,"value":`)
	rec.Value = s.text()
	s.want(`}`)
	if len(rec.Headers) == 0 {
		rec.Headers = nil
	}
	return rec, offset, !s.bad && (len(s.rest) == 0 || string(s.rest) == "\n")
}

func (s *lineScanner) has(prefix string) bool {
	if len(s.rest) < len(prefix) || string(s.rest[:len(prefix)]) != prefix {
		return false
	}
	s.rest = s.rest[len(prefix):]
	return true
}

func (s *lineScanner) want(prefix string) { s.bad = s.bad || !s.has(prefix) }

func (s *lineScanner) number() int64 {
	n := 0
	for n < len(s.rest) && s.rest[n] >= '0' && s.rest[n] <= '9' {
		n++
	}
	number, err := strconv.ParseInt(string(s.rest[:n]), 10, 64)
	if err != nil || n > 1 && s.rest[0] == '0' {
		s.bad = true
	}
	s.rest = s.rest[n:]
	return number
}

func (s *lineScanner) time() (at time.Time) {
	end := bytes.IndexByte(s.rest[min(1, len(s.rest)):], '"')
	if s.bad || end < 0 || at.UnmarshalJSON(s.rest[:end+2]) != nil {
		s.bad = true
		return at
	}
	s.rest = s.rest[end+2:]
	return at
}

func (s *lineScanner) name() string {
	text := s.text()
	name, known := s.names[string(text)]
	if !known {
		name = string(text)
		if len(s.names) < 100 { // enough for lapse's own
			s.names[name] = name
		}
	}
	s.bad = s.bad || text == nil
	return name
}

// text parses a string, an object with base64, or null. It leaves escapes other than quotes, backslashes and line ends to encoding/json.
func (s *lineScanner) text() []byte {
	if s.bad || s.has(`null`) {
		return nil
	}
	if s.has(`{"base64":`) {
		coded := s.quoted()
		n, err := base64.StdEncoding.Decode(coded, coded)
		s.bad = s.bad || err != nil
		s.want(`}`)
		return coded[:n:n]
	}
	return s.quoted()
}

func (s *lineScanner) quoted() []byte {
	if !s.has(`"`) {
		s.bad = true
		return nil
	}
	from, to := s.rest, 0
	for at := 0; at < len(from); at++ {
		switch c := from[at]; {
		case c == '"':
			s.rest = from[at+1:]
			return from[:to:to]
		case c < ' ':
			s.bad = true
			return nil
		case c == '\\':
			if at++; at == len(from) {
				s.bad = true
				return nil
			}
			switch from[at] {
			case '"', '\\':
				c = from[at]
			case 'n':
				c = '\n'
			default:
				s.bad = true
				return nil
			}
			from[to] = c
			to++
		default:
			from[to] = c
			to++
		}
	}
	s.bad = true
	return nil
}
