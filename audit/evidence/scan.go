package evidence

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"unicode/utf8"

	"github.com/google/uuid"

	"lapse/schemas"
)

// scanner parses a transaction's record in the form that LogWriter.Write writes, without encoding/json, which takes several times as long:
// nearly all of a year's records are transactions. It leaves any other form, and escapes, to encoding/json.
type scanner struct{ Scanner }

// scanTransaction parses a transaction's record; nil if encoding/json must parse it.
func scanTransaction(value []byte) (*recordJSON, *TransactionContent) {
	s := scanner{Scanner{Rest: value}}
	if !s.Has(`{"kind":"transaction","schema":`) || bytes.IndexByte(value, '\\') >= 0 || !utf8.Valid(value) {
		return nil, nil
	}
	head := &recordJSON{Kind: KindTransaction, Schema: int(s.number(16))}
	head.SystemIdentifier = s.member(`,"system_identifier":`)
	head.Database = s.member(`,"database":`)
	head.DatabaseOID = uint32(s.numbered(`,"database_oid":`, 32))
	if s.Has(`,"encoding":`) {
		head.Encoding = s.text()
	}
	head.RouteVersion = int(s.numbered(`,"route_version":`, 31))
	head.Route = s.member(`,"route":`)
	head.History = uint32(s.numbered(`,"history":`, 32))
	s.Want(`,"nonce":`)
	head.Nonce = s.id()
	head.Timeline = uint32(s.numbered(`,"timeline":`, 32))
	head.Reached = s.member(`,"reached":`)
	head.Seq = uint32(s.numbered(`,"seq":`, 32))
	head.More = s.Has(`,"more":true`)
	if s.Has(`,"beat":`) {
		head.Beat = s.id()
	}
	form := UTF8Text
	if head.Encoding != "" {
		form = TextFormOf(head.Encoding)
	}
	c := s.transaction(form)
	s.Want(`}`)
	if s.Bad || len(s.Rest) > 0 {
		return nil, nil
	}
	return head, c
}

func (s *scanner) transaction(form TextForm) *TransactionContent {
	c := &TransactionContent{}
	c.CommitLSN = s.lsn(`,"commit_lsn":`)
	s.Want(`,"commit_timestamp":`)
	c.CommitTime = s.Time()
	c.XID = uint32(s.numbered(`,"xid":`, 32))
	c.Further = s.Has(`,"further":true`)
	if s.Has(`,"origin":`) {
		c.Origin = form.decode(s.text())
	}
	c.Verdict = Verdict(s.member(`,"verdict":`))
	if s.Has(`,"claim":{`) {
		c.Claim = s.claim(form)
	}
	if s.Has(`,"claimed":{"picked":`) {
		c.Claimed = s.claimed()
	}
	s.Want(`,"observed":[`)
	s.list(func() { c.Observed = append(c.Observed, s.tally(form)) })
	if s.Has(`,"rows":{"epoch":`) {
		c.Rows = &RowsRoot{Epoch: schemas.Epoch(s.text()), Count: s.numbered(`,"count":`, 64), First: uint32(s.numbered(`,"first":`, 32))}
		root, err := base64.StdEncoding.DecodeString(s.member(`,"root":`))
		s.Bad = s.Bad || err != nil
		c.Rows.Root = root
		s.Want(`}`)
	}
	return c
}

func (s *scanner) claim(form TextForm) *schemas.Claim {
	c := &schemas.Claim{}
	s.Want(`"policy":`)
	c.Policy = schemas.PolicyName(form.decode(s.text()))
	c.PolicyVersion = schemas.PolicyVersion(s.signed(`,"policy_version":`, 32))
	s.Want(`,"run":`)
	c.Run = s.id()
	s.Want(`,"batch":`)
	c.Batch = s.id()
	s.Want(`,"cutoff":`)
	c.Cutoff = s.Time()
	c.HoldVersion = schemas.HoldVersion(s.signed(`,"hold_version":`, 64))
	c.Target = uint32(s.numbered(`,"target":`, 32))
	functions, err := hex.DecodeString(s.member(`,"functions":`))
	s.Bad = s.Bad || err != nil
	copy(c.Functions[:], functions)
	s.Want(`}`)
	return c
}

func (s *scanner) claimed() *Claimed {
	c := &Claimed{Picked: s.signed(``, 64), Deleted: s.signed(`,"deleted":`, 64)}
	s.Want(`,"by_relation":[`)
	s.list(func() {
		c.ByRelation = append(c.ByRelation, RelationCount{OID: uint32(s.numbered(`{"table_oid":`, 32)), Rows: s.signed(`,"rows":`, 64)})
		s.Want(`}`)
	})
	s.Want(`}`)
	return c
}

func (s *scanner) tally(form TextForm) Tally {
	j := tallyJSON{Table: s.member(`{"table":`), OID: uint32(s.numbered(`,"table_oid":`, 32)), Op: s.member(`,"op":`), Cause: s.member(`,"cause":`)}
	s.Want(`,"cascade":`)
	if j.Cascade = s.Has(`true`); !j.Cascade {
		s.Want(`false`)
	}
	j.Events = s.numbered(`,"events":`, 64)
	if s.Has(`,"due":`) {
		j.Due, j.NotDue, j.Unknown = s.number(64), s.numbered(`,"not_due":`, 64), s.numbered(`,"unknown":`, 64)
		if s.Has(`,"late":{`) {
			s.late(&j.Late)
		}
	}
	s.Want(`}`)
	return j.tally(form)
}

// late parses a histogram whose steps are in order.
func (s *scanner) late(l *Lateness) {
	for from := 0; !s.Bad && !s.Has(`}`); {
		if from > 0 {
			s.Want(`,`)
		}
		name, step := s.text(), from
		for step < len(schemas.LatenessSteps) && strconv.FormatInt(schemas.LatenessSteps[step], 10) != name {
			step++
		}
		if s.Bad = s.Bad || step > len(schemas.LatenessSteps) || step == len(schemas.LatenessSteps) && name != "later"; s.Bad {
			return
		}
		l[step] = s.numbered(`:`, 64)
		from = step + 1
	}
}

// list parses items to the list's end.
func (s *scanner) list(item func()) {
	for first := true; !s.Bad && !s.Has(`]`); first = false {
		if !first {
			s.Want(`,`)
		}
		item()
	}
}

func (s *scanner) member(name string) string {
	s.Want(name)
	return s.text()
}

func (s *scanner) text() string { return string(s.quoted()) }

// quoted parses a text without escapes.
func (s *scanner) quoted() []byte {
	s.Want(`"`)
	end := bytes.IndexByte(s.Rest, '"')
	if s.Bad || end < 0 || hasControl(s.Rest[:end]) {
		s.Bad = true
		return nil
	}
	text := s.Rest[:end:end]
	s.Rest = s.Rest[end+1:]
	return text
}

func hasControl(text []byte) bool {
	for _, c := range text {
		if c < ' ' {
			return true
		}
	}
	return false
}

func (s *scanner) numbered(name string, bits int) uint64 {
	s.Want(name)
	return s.number(bits)
}

// digits parses a number in the only form that JSON allows.
func (s *scanner) digits() string {
	n := 0
	if len(s.Rest) > 0 && s.Rest[0] == '-' {
		n++
	}
	from := n
	for n < len(s.Rest) && s.Rest[n] >= '0' && s.Rest[n] <= '9' {
		n++
	}
	if n == from || n > from+1 && s.Rest[from] == '0' {
		s.Bad = true
	}
	text := string(s.Rest[:n])
	s.Rest = s.Rest[n:]
	return text
}

func (s *scanner) number(bits int) uint64 {
	n, err := strconv.ParseUint(s.digits(), 10, bits)
	s.Bad = s.Bad || err != nil
	return n
}

func (s *scanner) signed(name string, bits int) int64 {
	s.Want(name)
	n, err := strconv.ParseInt(s.digits(), 10, bits)
	s.Bad = s.Bad || err != nil
	return n
}

func (s *scanner) lsn(name string) schemas.LSN {
	lsn, err := schemas.ParseLSN(s.member(name))
	s.Bad = s.Bad || err != nil
	return lsn
}

func (s *scanner) id() uuid.UUID {
	text := s.text()
	id, err := uuid.Parse(text)
	s.Bad = s.Bad || err != nil || len(text) != 36
	return id
}
