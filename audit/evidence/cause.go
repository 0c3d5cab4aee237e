package evidence

// Cause says who deleted.
type Cause byte

// The causes of a deletion.
const (
	NoCause    Cause = iota
	System           // a retention policy, by a batch whose claim verifies
	User             // anyone else
	Unverified       // a transaction that wrote ledger rows that do not verify, or that deleted more than its verified claim covers
)

// String is the cause as events and metrics write it.
func (c Cause) String() string {
	switch c {
	case System:
		return "system"
	case User:
		return "user"
	case Unverified:
		return "unverified"
	default:
		return ""
	}
}

// causeOf is the inverse of String; NoCause for a text that this program does not know.
func causeOf(text string) Cause {
	for c := Unverified; c > NoCause; c-- {
		if c.String() == text {
			return c
		}
	}
	return NoCause
}

// Op is what was done to a table.
type Op byte

// The operations that are events.
const (
	None       Op = iota // no event
	Delete               // one row
	Truncate             // all rows, without naming them
	Gap                  // no deletion: deletions between two positions were not read
	Rewind               // no deletion: what was published above a position never happened
	SoftDelete           // one row, which stays: a column of it was set
	Drop                 // all rows of a partition, which a policy dropped whole
	Move                 // one row, which an update moved to another partition
)

// String is the operation as headers and metrics write it.
func (o Op) String() string {
	switch o {
	case Delete:
		return "delete"
	case Truncate:
		return "truncate"
	case Gap:
		return "gap"
	case Rewind:
		return "rewind"
	case SoftDelete:
		return "soft_delete"
	case Drop:
		return "drop"
	case Move:
		return "move"
	default:
		return ""
	}
}

// opOf is the inverse of String; None for a text that this program does not know.
func opOf(text string) Op {
	for o := Move; o > None; o-- {
		if o.String() == text {
			return o
		}
	}
	return None
}

// Source identifies the database whose WAL is read. Two databases of one cluster share the system identifier, and a clone made by CREATE DATABASE …
// TEMPLATE shares everything but the oid.
type Source struct {
	SystemIdentifier uint64
	DatabaseOID      uint32
	Database         string // the name it had when the log began
	Encoding         string // the server's name of the database's encoding, such as UTF8
	Slot             string
}

// appendSource writes the members that identify the database. It names the encoding only if it is not UTF8, because only then text needs decoding.
func appendSource(dst []byte, s *Source, form TextForm) []byte {
	dst = append(appendUint(append(dst, `"system_identifier":"`...), s.SystemIdentifier), '"')
	dst = appendText(append(dst, `,"database":`...), s.Database, form)
	dst = appendUint(append(dst, `,"database_oid":`...), uint64(s.DatabaseOID))
	if form != UTF8Text {
		dst = appendText(append(dst, `,"encoding":`...), s.Encoding, UTF8Text)
	}
	return dst
}
