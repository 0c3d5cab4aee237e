package tree

import (
	"time"

	"golang.org/x/mod/sumdb/note"
)

// Seen is the newest checkpoint that a witness has cosigned.
type Seen struct {
	By   *Witness
	Size int64 // 0 if there is none
	At   time.Time
}

// seen collects the witnesses' cosignatures.
type seen struct {
	witnesses []*Witness
	quorum    int
	of        []Seen
	cosigned  int64
}

func newSeen(witnesses []*Witness, quorum int) *seen {
	s := &seen{witnesses: witnesses, quorum: quorum, of: make([]Seen, len(witnesses))}
	for i, w := range witnesses {
		s.of[i].By = w
	}
	return s
}

// open is Open, and records the cosignatures.
func (s *seen) open(signed []byte, verifier note.Verifier) (*Checkpoint, error) {
	c, err := Open(signed, verifier)
	if err != nil {
		return nil, err
	}
	found, err := Cosignatures(signed, s.witnesses)
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		for i := range s.of {
			if s.of[i].By == f.By && s.of[i].Size <= c.Size {
				s.of[i].Size, s.of[i].At = c.Size, f.At
			}
		}
	}
	if s.quorum > 0 && len(found) >= s.quorum {
		s.cosigned = max(s.cosigned, c.Size)
	}
	return c, nil
}
