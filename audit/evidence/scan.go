package evidence

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"lapse/schemas"
)

// scanner parses a transaction's record in the form that LogWriter.Write writes, without encoding/json, which takes several times as long:
// nearly all of a year's records are transactions. It leaves any other form, and escapes, to encoding/json.
type scanner struct {
	rest []byte
	bad  bool
}

// scanTransaction parses a transaction's record; nil if encoding/json must parse it.
func scanTransaction(value []byte) (*recordJSON, *TransactionContent) {
	s := scanner{rest: value}
	if !s.has(`{"kind":"transaction","schema":`) || bytes.IndexByte(value, '\\') >= 0 || !utf8.Valid(value) {
		return nil, nil
	}
	head := &recordJSON{Kind: KindTransaction, Schema: int(s.number(16))}
	head.SystemIdentifier = s.member(`,"system_identifier":`)
	head.Database = s.member(`,"database":`)
	head.DatabaseOID = uint32(s.numbered(`,"database_oid":`, 32))
	if s.has(`,"encoding":`) {
		head.Encoding = s.text()
	}
	head.RouteVersion = int(s.numbered(`,"route_version":`, 31))
	head.Route = s.member(`,"route":`)
	head.History = uint32(s.numbered(`,"history":`, 32))
	s.want(`,"nonce":`)
	head.Nonce = s.id()
	head.Timeline = uint32(s.numbered(`,"timeline":`, 32))
	head.Reached = s.member(`,"reached":`)
	head.Seq = uint32(s.numbered(`,"seq":`, 32))
	head.More = s.has(`,"more":true`)
	if s.has(`,"beat":`) {
		head.Beat = s.id()
	}
	form := UTF8Text
	if head.Encoding != "" {
		form = TextFormOf(head.Encoding)
	}
	c := s.transaction(form)
	s.want(`}`)
	if s.bad || len(s.rest) > 0 {
		return nil, nil
	}
	return head, c
}

func (s *scanner) transaction(form TextForm) *TransactionContent {
	c := &TransactionContent{}
	c.CommitLSN = s.lsn(`,"commit_lsn":`)
	s.want(`,"commit_timestamp":`)
	c.CommitTime = s.time()
	c.XID = uint32(s.numbered(`,"xid":`, 32))
	c.Further = s.has(`,"further":true`)
	if s.has(`,"origin":`) {
		c.Origin = form.decode(s.text())
	}
	c.Verdict = Verdict(s.member(`,"verdict":`))
	if s.has(`,"claim":{`) {
		c.Claim = s.claim(form)
	}
	if s.has(`,"claimed":{"picked":`) {
		c.Claimed = s.claimed()
	}
	s.want(`,"observed":[`)
	s.list(func() { c.Observed = append(c.Observed, s.tally(form)) })
	if s.has(`,"rows":{"epoch":`) {
		c.Rows = &RowsRoot{Epoch: schemas.Epoch(s.text()), Count: s.numbered(`,"count":`, 64), First: uint32(s.numbered(`,"first":`, 32))}
		root, err := base64.StdEncoding.DecodeString(s.member(`,"root":`))
		s.bad = s.bad || err != nil
		c.Rows.Root = root
		s.want(`}`)
	}
	return c
}

func (s *scanner) claim(form TextForm) *schemas.Claim {
	c := &schemas.Claim{}
	s.want(`"policy":`)
	c.Policy = schemas.PolicyName(form.decode(s.text()))
	c.PolicyVersion = schemas.PolicyVersion(s.signed(`,"policy_version":`, 32))
	s.want(`,"run":`)
	c.Run = s.id()
	s.want(`,"batch":`)
	c.Batch = s.id()
	s.want(`,"cutoff":`)
	c.Cutoff = s.time()
	c.HoldVersion = schemas.HoldVersion(s.signed(`,"hold_version":`, 64))
	c.Target = uint32(s.numbered(`,"target":`, 32))
	functions, err := hex.DecodeString(s.member(`,"functions":`))
	s.bad = s.bad || err != nil
	copy(c.Functions[:], functions)
	s.want(`}`)
	return c
}

func (s *scanner) claimed() *Claimed {
	c := &Claimed{Picked: s.signed(``, 64), Deleted: s.signed(`,"deleted":`, 64)}
	s.want(`,"by_relation":[`)
	s.list(func() {
		c.ByRelation = append(c.ByRelation, RelationCount{OID: uint32(s.numbered(`{"table_oid":`, 32)), Rows: s.signed(`,"rows":`, 64)})
		s.want(`}`)
	})
	s.want(`}`)
	return c
}

func (s *scanner) tally(form TextForm) Tally {
	j := tallyJSON{Table: s.member(`{"table":`), OID: uint32(s.numbered(`,"table_oid":`, 32)), Op: s.member(`,"op":`), Cause: s.member(`,"cause":`)}
	s.want(`,"cascade":`)
	if j.Cascade = s.has(`true`); !j.Cascade {
		s.want(`false`)
	}
	j.Events = s.numbered(`,"events":`, 64)
	if s.has(`,"due":`) {
		j.Due, j.NotDue, j.Unknown = s.number(64), s.numbered(`,"not_due":`, 64), s.numbered(`,"unknown":`, 64)
		if s.has(`,"late":{`) {
			s.late(&j.Late)
		}
	}
	s.want(`}`)
	return j.tally(form)
}

// late parses a histogram whose steps are in order.
func (s *scanner) late(l *Lateness) {
	for from := 0; !s.bad && !s.has(`}`); {
		if from > 0 {
			s.want(`,`)
		}
		name, step := s.text(), from
		for step < len(LatenessSteps) && strconv.FormatInt(LatenessSteps[step], 10) != name {
			step++
		}
		if s.bad = s.bad || step > len(LatenessSteps) || step == len(LatenessSteps) && name != "later"; s.bad {
			return
		}
		l[step] = s.numbered(`:`, 64)
		from = step + 1
	}
}

// list parses items to the list's end.
func (s *scanner) list(item func()) {
	for first := true; !s.bad && !s.has(`]`); first = false {
		if !first {
			s.want(`,`)
		}
		item()
	}
}

func (s *scanner) has(prefix string) bool {
	if len(s.rest) < len(prefix) || string(s.rest[:len(prefix)]) != prefix {
		return false
	}
	s.rest = s.rest[len(prefix):]
	return true
}

func (s *scanner) want(prefix string) { s.bad = s.bad || !s.has(prefix) }

func (s *scanner) member(name string) string {
	s.want(name)
	return s.text()
}

func (s *scanner) text() string {
	s.want(`"`)
	end := bytes.IndexByte(s.rest, '"')
	if s.bad || end < 0 || bytes.ContainsFunc(s.rest[:end], func(r rune) bool { return r < ' ' }) {
		s.bad = true
		return ""
	}
	text := string(s.rest[:end])
	s.rest = s.rest[end+1:]
	return text
}

func (s *scanner) numbered(name string, bits int) uint64 {
	s.want(name)
	return s.number(bits)
}

// digits parses a number in the only form that JSON allows.
func (s *scanner) digits() string {
	n := 0
	if len(s.rest) > 0 && s.rest[0] == '-' {
		n++
	}
	from := n
	for n < len(s.rest) && s.rest[n] >= '0' && s.rest[n] <= '9' {
		n++
	}
	if n == from || n > from+1 && s.rest[from] == '0' {
		s.bad = true
	}
	text := string(s.rest[:n])
	s.rest = s.rest[n:]
	return text
}

func (s *scanner) number(bits int) uint64 {
	n, err := strconv.ParseUint(s.digits(), 10, bits)
	s.bad = s.bad || err != nil
	return n
}

func (s *scanner) signed(name string, bits int) int64 {
	s.want(name)
	n, err := strconv.ParseInt(s.digits(), 10, bits)
	s.bad = s.bad || err != nil
	return n
}

func (s *scanner) time() (at time.Time) {
	end := bytes.IndexByte(s.rest[min(1, len(s.rest)):], '"')
	if s.bad || end < 0 || at.UnmarshalJSON(s.rest[:end+2]) != nil {
		s.bad = true
		return at
	}
	s.rest = s.rest[end+2:]
	return at
}

func (s *scanner) lsn(name string) schemas.LSN {
	lsn, err := schemas.ParseLSN(s.member(name))
	s.bad = s.bad || err != nil
	return lsn
}

func (s *scanner) id() uuid.UUID {
	text := s.text()
	id, err := uuid.Parse(text)
	s.bad = s.bad || err != nil || len(text) != 36
	return id
}
