package report

import "time"

// Schema is the version of the report's form. It increases with every change of the bytes for the same two checkpoints, including words.
const Schema = 1

const kind = "report"

// Report is a period's report. Canonical is its canonical form.
type Report struct {
	Kind   string `json:"kind"` // "report"
	Schema int    `json:"schema"`
	Period Period `json:"period"`
	Log    Log    `json:"log"`
	// Only are the names of the requested policies; empty for all. Whatever belongs to no policy is about the whole log in any case.
	Only []string `json:"only"`
	// Run is the run that was asked about; nil if none was.
	Run      *Run           `json:"run,omitempty"`
	Policies []Policy       `json:"policies"` // by name, then number
	Tables   []Table        `json:"tables"`   // the policies' tables, and those from which they deleted, by name
	Coverage Coverage       `json:"coverage"`
	Rewinds  List[Rewind]   `json:"rewinds"` // restores and the like
	Holds    List[Hold]     `json:"holds"`   // those in force in the period, or that ended in it
	Halts    List[Halt]     `json:"halts"`   // changes of the switch for all policies
	ByHand   List[HandEdit] `json:"by_hand"` // changes of rows of Lapse's own tables that no command makes
	Residue  Residue        `json:"residue"`
}

// Instant is a time in UTC in RFC 3339 form, with microseconds if it has any; "" for no time.
type Instant string

// At converts a time; the zero time becomes "".
func At(t time.Time) Instant {
	if t.IsZero() {
		return ""
	}
	return Instant(t.UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano))
}

// Time converts an instant; "" becomes the zero time.
func (i Instant) Time() time.Time {
	t, _ := time.Parse(time.RFC3339Nano, string(i))
	return t
}

// Period is half-open: a record belongs to it if its time is not before From and is before To. So each record belongs to exactly one of two
// consecutive periods.
//
// A record's time is its commit time by the database's clock, but not earlier than the heartbeat before it, and not later, by more than a minute,
// than the heartbeat after it: a session that replays another server's transactions chooses its commit times, but not the transactions'
// places in the log. Where the clock was set back by more than an hour, records count at the time that they state.
type Period struct {
	From Instant `json:"from"`
	To   Instant `json:"to"`
}

// Log identifies the log and the period's limits in it.
type Log struct {
	Name             string `json:"name"`       // the name of the log's key: the origin of its checkpoints
	PublicKey        string `json:"public_key"` // as the log states it; "" if it does not
	SystemIdentifier string `json:"system_identifier"`
	Database         string `json:"database"` // the name when the log began
	DatabaseOID      uint32 `json:"database_oid"`
	// Opening is the last checkpoint without any record of the period; null if the log began in the period before any checkpoint.
	Opening *Checkpoint `json:"opening"`
	// Closing is the first checkpoint that covers the whole period and a record after it.
	Closing   Checkpoint `json:"closing"`
	FirstLeaf int64      `json:"first_leaf"` // the period's first leaf
	Records   int64      `json:"records"`    // the number of records in the period
	BeganAt   Instant    `json:"began_at"`   // the time of the log's first record with one
	Routes    []int      `json:"routes"`     // the versions in force in the period, ascending
}

// Checkpoint is a tree that the log's key signed.
type Checkpoint struct {
	Records int64  `json:"records"`
	Root    string `json:"root"` // base64
}

// Figure is a number, or the reason why it is missing. One of the two is set.
type Figure struct {
	Value       *int64 `json:"value,omitempty"`
	NotAssessed Reason `json:"not_assessed,omitempty"`
	// What is known about a number that is not assessed; null if nothing is.
	AtLeast *int64 `json:"at_least,omitempty"`
	AtMost  *int64 `json:"at_most,omitempty"`
}

// Number makes an assessed figure.
func Number(n int64) Figure { return Figure{Value: &n} }

// NotAssessed makes a figure without number.
func NotAssessed(why Reason) Figure { return Figure{NotAssessed: why} }

// Is reports whether the figure was assessed and equals n.
func (f Figure) Is(n int64) bool { return f.Value != nil && *f.Value == n }

// Least is a lower bound; 0 if nothing is known.
func (f Figure) Least() int64 {
	switch {
	case f.Value != nil:
		return *f.Value
	case f.AtLeast != nil:
		return *f.AtLeast
	}
	return 0
}

// List is the first MaxListed items of a list.
type List[T any] struct {
	Items []T   `json:"items"`
	More  int64 `json:"more"` // how many more there are
}

// MaxListed is the largest number of items in a list. A report does not grow with the number of rows or transactions.
const MaxListed = 1000

// Add adds an item, or only counts it.
func (l *List[T]) Add(item T) {
	if len(l.Items) < MaxListed {
		l.Items = append(l.Items, item)
	} else {
		l.More++
	}
}

// Len is the number of all items.
func (l *List[T]) Len() int64 { return int64(len(l.Items)) + l.More }

// Grade is the grade of a verdict: that of the worst finding.
type Grade string

// The grades, the worst first.
const (
	Fail    Grade = "fail"
	Unknown Grade = "not_assessed"
	Warn    Grade = "warn"
	Pass    Grade = "pass"
)

// Finding is one reason for a verdict.
type Finding struct {
	Grade Grade  `json:"grade"` // fail, not_assessed or warn
	About About  `json:"about"`
	Why   Reason `json:"why,omitempty"` // why a line was not assessed
	Count int64  `json:"count"`         // 0 if there is nothing to count
}

// Table counts what the write-ahead log has of one table with its partitions, by whatever session.
type Table struct {
	Table      string     `json:"table"`
	Policies   []string   `json:"policies"` // the policies on the table
	System     int64      `json:"system"`   // rows that policies deleted, including cascades
	ByDrop     int64      `json:"by_drop"`
	Soft       int64      `json:"soft"`
	User       int64      `json:"user"`
	Unverified int64      `json:"unverified"`
	Truncates  int64      `json:"truncates"`
	Moves      int64      `json:"moves"`
	Days       []TableDay `json:"days"`
}

// TableDay is one day of a table.
type TableDay struct {
	Day        string `json:"day"`
	System     int64  `json:"system"`
	ByDrop     int64  `json:"by_drop"`
	Soft       int64  `json:"soft"`
	User       int64  `json:"user"`
	Unverified int64  `json:"unverified"`
}

// Coverage says which part of the period was read.
type Coverage struct {
	First        Instant           `json:"first"` // the time of the period's first record with one
	Last         Instant           `json:"last"`
	Transactions int64             `json:"transactions"` // transactions with events, or with a row in the ledger
	Heartbeats   int64             `json:"heartbeats"`
	Gaps         List[Gap]         `json:"gaps"`
	Tables       List[TableChange] `json:"tables"`
	// Unproven are transactions with rows in the ledger that do not verify, with or without deletions.
	Unproven List[Transaction] `json:"unproven"`
	// Misdated are transactions with a time that the heartbeats around them rule out. They count at the time of those heartbeats.
	Misdated List[Transaction] `json:"misdated"`
	// SetBack is how often the database's clock was set back by more than a minute.
	SetBack int64 `json:"clock_set_back"`
	// Unread are records of kinds that this version of the report does not know.
	Unread int64 `json:"records_of_other_kinds"`
}

// Gap is a part of the write-ahead log that no auditor read, or of a topic that was lost.
type Gap struct {
	Leaf   int64   `json:"leaf"`
	At     Instant `json:"at"`     // when it was found
	Reason string  `json:"reason"` // slot, publications, topic, accepted or timeline
	Topic  string  `json:"topic"`  // the topic that lost records; "" if none did
	From   string  `json:"from"`   // as history, timeline and position
	To     string  `json:"to"`
}

// TableChange is a change that a heartbeat found in a policy's table or in one of its partitions.
type TableChange struct {
	Leaf   int64   `json:"leaf"`
	At     Instant `json:"at"`
	Table  string  `json:"table"`
	Root   string  `json:"root"`
	Change string  `json:"change"` // begins, ends, renamed, moves, rewritten or restated
	Former string  `json:"former"`
	// Told says that the log explains why rows are gone without an event: a policy dropped the partition. Otherwise it is unknown what was
	// deleted with it.
	Told bool `json:"told"`
}

// Rewind is a point where the log continues with a database of a different past: after a restore, or after a promotion that lost transactions.
type Rewind struct {
	Leaf     int64           `json:"leaf"`
	At       Instant         `json:"at"`
	Reason   string          `json:"reason"`
	From     string          `json:"from"` // the log's records from here up to To never happened in that database
	To       string          `json:"to"`
	Policies []RewoundPolicy `json:"policies"`
	Users    int64           `json:"deleted_by_users"` // rows that users had deleted and that exist again
}

// RewoundPolicy counts the deletions of one policy that a rewind undid. The numbers do not tell which rows were deleted again.
type RewoundPolicy struct {
	Policy       string  `json:"policy"`
	BroughtBack  int64   `json:"brought_back"`  // rows that it had deleted, which exist again
	DeletedSince int64   `json:"deleted_since"` // rows that it deleted in the period after the rewind
	FirstSince   Instant `json:"first_since"`
	LastSince    Instant `json:"last_since"`
}

// Hold is a legal hold.
type Hold struct {
	Hold     int64            `json:"hold"`
	Matter   string           `json:"matter"`
	Table    string           `json:"table"`
	Keys     int64            `json:"keys"` // the number of keys; 0 for a condition
	Digest   string           `json:"digest"`
	Placed   Instant          `json:"placed"` // "" if the log began later
	By       string           `json:"by"`
	Reason   string           `json:"reason"`
	State    string           `json:"state"`    // at the period's end
	Position string           `json:"position"` // every transaction that commits after it obeys the hold; "" if the hold is not effective yet
	Policies []string         `json:"policies"` // the policies with tables that it touches
	States   List[HoldChange] `json:"states"`   // in the period
}

// HoldChange is a change of a hold's state.
type HoldChange struct {
	At     Instant `json:"at"`
	State  string  `json:"state"`
	Until  Instant `json:"enforced_until"`
	By     string  `json:"by"`
	Reason string  `json:"reason"`
	Leaf   int64   `json:"leaf"`
}

// Halt is a change of the switch for all policies.
type Halt struct {
	At     Instant `json:"at"`
	Halted bool    `json:"halted"`
	Alarm  bool    `json:"alarm"` // the auditor made the change
	By     string  `json:"by"`
	Reason string  `json:"reason"`
	Leaf   int64   `json:"leaf"`
}

// HandEdit is a change of a row of Lapse's own tables that no command makes.
type HandEdit struct {
	At     Instant `json:"at"`
	What   string  `json:"what"` // policy or hold
	Row    string  `json:"row"`  // the row's table: version, state, gate, halt, others; hold, state, relation
	Op     string  `json:"op"`   // insert, update, delete or truncate
	Policy string  `json:"policy"`
	Hold   int64   `json:"hold"`
	XID    uint32  `json:"xid"`
	Leaf   int64   `json:"leaf"`
}

// Residue says what may still contain deleted rows.
type Residue struct {
	VacuumHorizon Figure `json:"vacuum_horizon"`
	// Declared are the declarations about other copies in lapse.yaml, as the auditor read them at its starts: the last one before the period, and each
	// change in it. Nothing measures them.
	Declared List[Declaration] `json:"declared"`
}

// Declaration says for how long copies are kept, as declared by those who keep them.
type Declaration struct {
	At         Instant `json:"at"`          // the time of the first heartbeat that says so
	WALArchive string  `json:"wal_archive"` // "" if not declared
	Backups    string  `json:"backups"`
	Leaf       int64   `json:"leaf"`
}
