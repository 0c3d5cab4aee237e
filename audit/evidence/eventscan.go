package evidence

import (
	"bytes"
	"unicode/utf8"

	"lapse/replication"
	"lapse/schemas"
)

// scanEvent parses a deleted row's event in the form that FormatSpanner writes, without encoding/json, which takes several times as long: a
// year has tens of millions of them. It returns nil for any other event, and for escapes: encoding/json must parse those.
func scanEvent(value []byte) *EventValue {
	s := scanner{Scanner{Rest: value}}
	if !s.Has(`{"event_id":`) || bytes.IndexByte(value, '\\') >= 0 || !utf8.Valid(value) {
		return nil
	}
	v := &EventValue{Format: FormatSpanner, Mods: 1}
	s.Bad = s.text() == "" || s.Bad
	s.skip(`,"commit_timestamp":`)
	s.skip(`,"record_sequence":`)
	s.skip(`,"server_transaction_id":`)
	s.skip(`,"transaction_tag":`)
	s.Want(`,"is_system_transaction":`)
	s.boolean()
	v.Table = s.member(`,"table_name":`)
	s.skip(`,"mod_type":`)
	s.skip(`,"value_capture_type":`)
	s.Want(`,"mods":[{"keys":`)
	v.Keys = s.columns()
	s.Want(`,"old_values":`)
	s.columns()
	s.Want(`,"new_values":`)
	s.columns()
	s.Want(`}],"lapse":{"schema":`)
	s.digits()
	v.Cause = s.member(`,"cause":`)
	if s.Has(`,"policy":`) {
		s.skip(``)
		s.numbered(`,"policy_version":`, 64)
		s.skip(`,"run":`)
		s.skip(`,"batch":`)
		s.skip(`,"cutoff":`)
		s.numbered(`,"hold_version":`, 64)
		s.Want(`,"cascade":`)
		s.boolean()
	}
	s.numbered(`,"table_oid":`, 64)
	v.System = s.decimal(`,"system_identifier":`)
	s.skip(`,"database":`)
	v.Database = uint32(s.numbered(`,"database_oid":`, 32))
	if s.Has(`,"encoding":`) {
		s.skip(``)
	}
	v.Position = replication.Position{
		History: schemas.History(s.numbered(`,"history":`, 32)), Timeline: schemas.Timeline(s.numbered(`,"timeline":`, 32)),
		Commit: s.lsn(`,"commit_lsn":`), Ordinal: uint32(s.numbered(`,"ordinal":`, 32)),
	}
	if s.Has(`,"due":`) && !s.Has(`null`) {
		s.boolean()
	}
	s.Want(`}}`)
	if s.Bad || len(s.Rest) > 0 {
		return nil
	}
	return v
}

func (s *scanner) boolean() { s.Bad = s.Bad || !s.Has(`true`) && !s.Has(`false`) }

// skip parses a member's text, and forgets it.
func (s *scanner) skip(name string) {
	s.Want(name)
	s.quoted()
}

// decimal parses a number in a text.
func (s *scanner) decimal(name string) uint64 {
	s.Want(name + `"`)
	n := s.number(64)
	s.Want(`"`)
	return n
}

// columns parses an object of texts and nulls, and returns it as it is written.
func (s *scanner) columns() []byte {
	all := s.Rest
	s.Want(`{`)
	for first := true; !s.Bad && !s.Has(`}`); first = false {
		if !first {
			s.Want(`,`)
		}
		s.quoted()
		s.Want(`:`)
		if !s.Has(`null`) {
			s.quoted()
		}
	}
	n := len(all) - len(s.Rest)
	return all[:n:n]
}
