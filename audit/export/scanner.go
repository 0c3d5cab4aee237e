package export

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"unicode/utf8"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// scanner parses lines of an export in the form that lapse writes, without encoding/json, which takes four times as long: a year has a
// hundred million lines. It leaves any other form to encoding/json.
type scanner struct {
	evidence.Scanner
	names map[string]string // header names: few, and repeated in every line
}

// scan parses a line and keeps references into it. ok is false if encoding/json must parse the line. scan does not change text.
func (s *scanner) scan(text []byte) (rec *schemas.Record, offset int64, ok bool) {
	if bytes.IndexByte(text, '\\') >= 0 || bytes.Contains(text, []byte(`{"base64":`)) {
		text = bytes.Clone(text) // escapes are decoded in place
	}
	if !utf8.Valid(text) {
		return nil, 0, false
	}
	if s.names == nil {
		s.names = map[string]string{}
	}
	s.Rest, s.Bad = text, false
	rec = &schemas.Record{}
	s.Want(`{"offset":`)
	offset = s.number()
	s.Want(`,"time":`)
	rec.Time = s.Time()
	s.Want(`,"headers":[`)
	rec.Headers = make([]schemas.Header, 0, 16)
	for more := !s.Has(`]`); more && !s.Bad; more = !s.Has(`]`) {
		if len(rec.Headers) > 0 {
			s.Want(`,`)
		}
		s.Want(`{"name":`)
		name := s.name()
		s.Want(`,"value":`)
		rec.Headers = append(rec.Headers, schemas.Header{Key: name, Value: s.text()})
		s.Want(`}`)
	}
	s.Want(`,"key":`)
	rec.Key = s.text()
	s.Want(`,"value":`)
	rec.Value = s.text()
	s.Want(`}`)
	if len(rec.Headers) == 0 {
		rec.Headers = nil
	}
	return rec, offset, !s.Bad && (len(s.Rest) == 0 || string(s.Rest) == "\n")
}

func (s *scanner) number() int64 {
	n := 0
	for n < len(s.Rest) && s.Rest[n] >= '0' && s.Rest[n] <= '9' {
		n++
	}
	number, err := strconv.ParseInt(string(s.Rest[:n]), 10, 64)
	if err != nil || n > 1 && s.Rest[0] == '0' {
		s.Bad = true
	}
	s.Rest = s.Rest[n:]
	return number
}

func (s *scanner) name() string {
	text := s.text()
	name, known := s.names[string(text)]
	if !known {
		name = string(text)
		if len(s.names) < 100 { // enough for lapse's own
			s.names[name] = name
		}
	}
	s.Bad = s.Bad || text == nil
	return name
}

// text parses a string, an object with base64, or null. It leaves escapes other than quotes, backslashes and line ends to encoding/json.
func (s *scanner) text() []byte {
	if s.Bad || s.Has(`null`) {
		return nil
	}
	if s.Has(`{"base64":`) {
		coded := s.quoted()
		n, err := base64.StdEncoding.Decode(coded, coded)
		s.Bad = s.Bad || err != nil
		s.Want(`}`)
		return coded[:n:n]
	}
	return s.quoted()
}

func (s *scanner) quoted() []byte {
	if !s.Has(`"`) {
		s.Bad = true
		return nil
	}
	from, to := s.Rest, 0
	for at := 0; at < len(from); at++ {
		switch c := from[at]; {
		case c == '"':
			s.Rest = from[at+1:]
			return from[:to:to]
		case c < ' ':
			s.Bad = true
			return nil
		case c == '\\':
			if at++; at == len(from) {
				s.Bad = true
				return nil
			}
			switch from[at] {
			case '"', '\\':
				c = from[at]
			case 'n':
				c = '\n'
			default:
				s.Bad = true
				return nil
			}
			from[to] = c
			to++
		default:
			from[to] = c
			to++
		}
	}
	s.Bad = true
	return nil
}
