package report

import "time"

// Schema is the version of the report's form. Every change of what the same two checkpoints give, of a word in it too, makes the next one.
const Schema = 1

const kind = "report"

// Report is what a log says of a period. Its canonical form is Canonical's.
type Report struct {
	Kind   string `json:"kind"` // "report"
	Schema int    `json:"schema"`
	Period Period `json:"period"`
	Log    Log    `json:"log"`
	// Only are the names of the policies that were asked for; empty: all. What is of no policy is of the whole log all the same.
	Only []string `json:"only"`
	// Run is the run that was asked about; nothing where none was.
	Run      *Run           `json:"run,omitempty"`
	Policies []Policy       `json:"policies"` // by name, then number
	Tables   []Table        `json:"tables"`   // all that policies are on and those that they deleted from, by name
	Coverage Coverage       `json:"coverage"`
	Rewinds  List[Rewind]   `json:"rewinds"` // restores and the like
	Holds    List[Hold]     `json:"holds"`   // that were in force in the period, or ended in it
	Halts    List[Halt]     `json:"halts"`   // of all policies at once
	ByHand   List[HandEdit] `json:"by_hand"` // rows of Lapse's own tables that no command wrote so
	Residue  Residue        `json:"residue"`
}

// Instant is a time in UTC as RFC 3339 writes it, with microseconds where there are any; "" is none.
type Instant string

// At is the instant of a time; "" of the zero time.
func At(t time.Time) Instant {
	if t.IsZero() {
		return ""
	}
	return Instant(t.UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano))
}

// Time is the zero time where there is none.
func (i Instant) Time() time.Time {
	t, _ := time.Parse(time.RFC3339Nano, string(i))
	return t
}

// Period is half-open: a record belongs to it if its time is at From or later, and before To. Each record of a log belongs to one of two
// periods that follow one another.
//
// The time of a record is its commit's, as the database's clock had it, but no earlier than the heartbeat before it in the log, and no later,
// by more than a minute, than the one after it: a session that replays another server's transactions chooses the time of its commits, and
// not their place. Where the clock was set back by more than an hour, records count where they say.
type Period struct {
	From Instant `json:"from"`
	To   Instant `json:"to"`
}

// Log is which log, and what bounds the period in it.
type Log struct {
	Name             string `json:"name"`       // of the log's key: its checkpoints' origin
	PublicKey        string `json:"public_key"` // as the log says; "" where it says nothing
	SystemIdentifier string `json:"system_identifier"`
	Database         string `json:"database"` // the name that it had when the log began
	DatabaseOID      uint32 `json:"database_oid"`
	// Opening is the last checkpoint that has nothing of the period; null where the log began in it before any checkpoint.
	Opening *Checkpoint `json:"opening"`
	// Closing is the first one that has all of the period, and a record after it.
	Closing   Checkpoint `json:"closing"`
	FirstLeaf int64      `json:"first_leaf"` // of the period
	Records   int64      `json:"records"`    // of the period
	BeganAt   Instant    `json:"began_at"`   // the log's first record with a time
	Routes    []int      `json:"routes"`     // versions in force in the period, ascending
}

// Checkpoint is a tree that the log's key has signed.
type Checkpoint struct {
	Records int64  `json:"records"`
	Root    string `json:"root"` // base64
}

// Figure is a number, or the reason why there is none. One of the two is set.
type Figure struct {
	Value       *int64 `json:"value,omitempty"`
	NotAssessed Reason `json:"not_assessed,omitempty"`
	// Of a number that is not assessed, what is known all the same; null: nothing.
	AtLeast *int64 `json:"at_least,omitempty"`
	AtMost  *int64 `json:"at_most,omitempty"`
}

// Number is a figure that was assessed.
func Number(n int64) Figure { return Figure{Value: &n} }

// NotAssessed is a figure that was not.
func NotAssessed(why Reason) Figure { return Figure{NotAssessed: why} }

// Is reports whether the figure was assessed and is n.
func (f Figure) Is(n int64) bool { return f.Value != nil && *f.Value == n }

// Least is how many there are at least; 0 where nothing is known.
func (f Figure) Least() int64 {
	switch {
	case f.Value != nil:
		return *f.Value
	case f.AtLeast != nil:
		return *f.AtLeast
	}
	return 0
}

// List is the first MaxListed of something.
type List[T any] struct {
	Items []T   `json:"items"`
	More  int64 `json:"more"` // how many there are beside them
}

// MaxListed is how many items a list has at most. A report does not grow with the number of rows or transactions.
const MaxListed = 1000

// Add adds an item, or counts it.
func (l *List[T]) Add(item T) {
	if len(l.Items) < MaxListed {
		l.Items = append(l.Items, item)
	} else {
		l.More++
	}
}

// Len is how many there are.
func (l *List[T]) Len() int64 { return int64(len(l.Items)) + l.More }

// Grade is a verdict's; the worst finding's decides.
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
	Why   Reason `json:"why,omitempty"` // of a line that was not assessed
	Count int64  `json:"count"`         // 0: there is nothing to count
}

// Table is what the write-ahead log has of one table, with its partitions, no matter who did it.
type Table struct {
	Table      string     `json:"table"`
	Policies   []string   `json:"policies"` // that are on it
	System     int64      `json:"system"`   // rows that policies deleted, cascades with them
	ByDrop     int64      `json:"by_drop"`
	Soft       int64      `json:"soft"`
	User       int64      `json:"user"`
	Unverified int64      `json:"unverified"`
	Truncates  int64      `json:"truncates"`
	Moves      int64      `json:"moves"`
	Days       []TableDay `json:"days"`
}

// TableDay is a day of it.
type TableDay struct {
	Day        string `json:"day"`
	System     int64  `json:"system"`
	ByDrop     int64  `json:"by_drop"`
	Soft       int64  `json:"soft"`
	User       int64  `json:"user"`
	Unverified int64  `json:"unverified"`
}

// Coverage is what of the period was read.
type Coverage struct {
	First        Instant           `json:"first"` // the period's first record with a time
	Last         Instant           `json:"last"`
	Transactions int64             `json:"transactions"` // with events, or that wrote into the ledger
	Heartbeats   int64             `json:"heartbeats"`
	Gaps         List[Gap]         `json:"gaps"`
	Tables       List[TableChange] `json:"tables"`
	// Unproven are transactions that wrote into the ledger what proves nothing, whether anything was deleted or not.
	Unproven List[Transaction] `json:"unproven"`
	// Misdated are transactions that name another time than the heartbeats around them allow. They count where those are.
	Misdated List[Transaction] `json:"misdated"`
	// SetBack is how often the database's clock went back by more than a minute.
	SetBack int64 `json:"clock_set_back"`
	// Unread are records of kinds that this schema does not know.
	Unread int64 `json:"records_of_other_kinds"`
}

// Gap is what nobody read, or what a topic lost.
type Gap struct {
	Leaf   int64   `json:"leaf"`
	At     Instant `json:"at"`     // when it was found
	Reason string  `json:"reason"` // slot, publications, topic, accepted or timeline
	Topic  string  `json:"topic"`  // that lost records; "": none
	From   string  `json:"from"`   // history, timeline and position
	To     string  `json:"to"`
}

// TableChange is what a heartbeat found of a table that policies are on, or of one of its partitions.
type TableChange struct {
	Leaf   int64   `json:"leaf"`
	At     Instant `json:"at"`
	Table  string  `json:"table"`
	Root   string  `json:"root"`
	Change string  `json:"change"` // begins, ends, renamed, moves, rewritten or restated
	Former string  `json:"former"`
	// Told says that the log tells why rows are gone without an event: a policy dropped the partition. Otherwise what went with it is not known.
	Told bool `json:"told"`
}

// Rewind is where the log goes on with a database whose past is another: after a restore, or a promotion that lost something.
type Rewind struct {
	Leaf     int64           `json:"leaf"`
	At       Instant         `json:"at"`
	Reason   string          `json:"reason"`
	From     string          `json:"from"` // what the log has above it, up to To, never happened in that database
	To       string          `json:"to"`
	Policies []RewoundPolicy `json:"policies"`
	Users    int64           `json:"deleted_by_users"` // rows that users had deleted, and that are there again
}

// RewoundPolicy is what a rewind brought back of one policy's deletions. Which rows were deleted again nobody can tell from numbers.
type RewoundPolicy struct {
	Policy       string  `json:"policy"`
	BroughtBack  int64   `json:"brought_back"`  // rows that it had deleted
	DeletedSince int64   `json:"deleted_since"` // rows that it deleted after the rewind, in the period
	FirstSince   Instant `json:"first_since"`
	LastSince    Instant `json:"last_since"`
}

// Hold is a legal hold.
type Hold struct {
	Hold     int64            `json:"hold"`
	Matter   string           `json:"matter"`
	Table    string           `json:"table"`
	Keys     int64            `json:"keys"` // how many keys are held; 0: a condition
	Digest   string           `json:"digest"`
	Placed   Instant          `json:"placed"` // "" where the log began later
	By       string           `json:"by"`
	Reason   string           `json:"reason"`
	State    string           `json:"state"`    // at the end of the period
	Position string           `json:"position"` // what commits above it has seen the hold; "" where it is not effective yet
	Policies []string         `json:"policies"` // whose tables it touches
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
	Alarm  bool    `json:"alarm"` // the auditor did it
	By     string  `json:"by"`
	Reason string  `json:"reason"`
	Leaf   int64   `json:"leaf"`
}

// HandEdit is a change of a row of Lapse's own tables that no command makes.
type HandEdit struct {
	At     Instant `json:"at"`
	What   string  `json:"what"` // policy or hold
	Row    string  `json:"row"`  // which table's: version, state, gate, halt, others; hold, state, relation
	Op     string  `json:"op"`   // insert, update, delete or truncate
	Policy string  `json:"policy"`
	Hold   int64   `json:"hold"`
	XID    uint32  `json:"xid"`
	Leaf   int64   `json:"leaf"`
}

// Residue is what may still have deleted rows.
type Residue struct {
	VacuumHorizon Figure `json:"vacuum_horizon"`
	// Declared is what lapse.yaml said of other copies, as an auditor read it when it started: the last of before the period, and each one in it
	// that is another. Nobody has measured it.
	Declared List[Declaration] `json:"declared"`
}

// Declaration is for how long copies are kept, by their keeper's word.
type Declaration struct {
	At         Instant `json:"at"`          // of the first heartbeat that says so
	WALArchive string  `json:"wal_archive"` // "": nothing is declared
	Backups    string  `json:"backups"`
	Leaf       int64   `json:"leaf"`
}
