package evidence

import (
	"bytes"
	"time"
)

// Scanner parses JSON of one fixed form from the front of a text, without encoding/json.
type Scanner struct {
	Rest []byte // what is not parsed yet
	Bad  bool   // the text has another form, so encoding/json must parse it
}

// Has removes a prefix, and reports whether it was there.
func (s *Scanner) Has(prefix string) bool {
	if len(s.Rest) < len(prefix) || string(s.Rest[:len(prefix)]) != prefix {
		return false
	}
	s.Rest = s.Rest[len(prefix):]
	return true
}

// Want removes a prefix that must be there.
func (s *Scanner) Want(prefix string) { s.Bad = s.Bad || !s.Has(prefix) }

// Time parses an instant in RFC 3339.
func (s *Scanner) Time() (at time.Time) {
	end := bytes.IndexByte(s.Rest[min(1, len(s.Rest)):], '"')
	if s.Bad || end < 0 || at.UnmarshalJSON(s.Rest[:end+2]) != nil {
		s.Bad = true
		return at
	}
	s.Rest = s.Rest[end+2:]
	return at
}
