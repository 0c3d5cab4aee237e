package policyfile

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"lapse/internal/yamldoc"
	"lapse/planner/expiry"
	"lapse/schemas"
)

// Policy is one entry of the policy file. Texts that only PostgreSQL can read (durations, table names, conditions) are kept as they were
// written; resolve.Resolve reads them. A value that is the default is kept as "".
type Policy struct {
	File   string // the file that has the entry
	Name   schemas.PolicyName
	Table  string
	Expire expiry.Entry
	Every  string // a duration; "" where Daily or Cron is set
	Action Action
	State  schemas.State // "" if the file says nothing: a policy in force keeps its state, a new one begins observing
	Terms

	Floors []Floor // of lapse.yaml, whatever tables they are about

	source string                   // the entry as it was written
	places map[string]yamldoc.Place // of keys and values, by key: "expire.after"; "" is the entry itself
	lines  []string                 // of the file
}

// Action is what happens to a row that is due.
type Action struct {
	Kind   string // ActionSoft, ActionDropPartition, or "" for delete
	Column string // that ActionSoft sets
}

// Events say what an event contains of its row.
type Events struct {
	Values  string   `json:"values"`            // EventsHashedKeys, EventsColumns, or "" for keys
	Columns []string `json:"columns,omitempty"` // of EventsColumns
}

// The words of the policy file.
const (
	ActionDelete        = "delete"
	ActionSoft          = "soft"
	ActionDropPartition = "drop_partition"
	EventsKeys          = "keys"
	EventsHashedKeys    = "hashed_keys"
	EventsColumns       = "columns"
	MovesDetect         = "detect"
	EvidenceClaimed     = "claimed"
	EvidenceDue         = "due"
	IndexCreate         = "create"
	PaceUnlimited       = "unlimited"
)

var (
	actions     = []string{ActionDelete, ActionDropPartition}
	eventValues = []string{EventsKeys, EventsHashedKeys, EventsColumns}
	states      = []string{"observing", "armed", "paused"}
)

// usualBatch is the default for batch, which depends on the pace.
func (p *Policy) usualBatch() int {
	if p.Limits.Pace == PaceUnlimited {
		return DefaultUnlimitedBatch
	}
	return DefaultBatch
}

// Limits say how fast a policy deletes, and when it stops and asks a person.
type Limits struct {
	Pace        string  `json:"pace,omitempty"`                // PaceUnlimited, a share of the time as "20%", or "" for gentle
	Rate        int     `json:"rate,omitempty"`                // rows per second, all executors together; 0: no limit
	MaxRows     int64   `json:"max_rows_per_run,omitempty"`    // 0: no limit
	MaxPercent  float64 `json:"max_percent_per_run,omitempty"` // the same key, as a share of the table's rows; 0: no limit
	MaxFraction float64 `json:"max_fraction,omitempty"`        // of the table; 0: no limit
}

// PaceShare is the share of the time that the policy's batches may take together, 0 if pace names none.
func (l *Limits) PaceShare() float64 {
	number, ok := strings.CutSuffix(l.Pace, "%")
	if !ok {
		return 0
	}
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0 // the reader lets none through
	}
	return percent / 100
}

// RowsPerRun is max_rows_per_run as a file says it, "" for none.
func (l *Limits) RowsPerRun() string {
	switch {
	case l.MaxPercent > 0:
		return strconv.FormatFloat(l.MaxPercent, 'f', -1, 64) + "%"
	case l.MaxRows > 0:
		return strconv.FormatInt(l.MaxRows, 10)
	}
	return ""
}

// RowsOf is how many rows one run may delete of a table with so many, 0 for no limit. lapse.open_run counts the same way.
func (l *Limits) RowsOf(rows float64) int64 {
	if l.MaxPercent > 0 {
		return max(1, int64(rows*l.MaxPercent/100))
	}
	return l.MaxRows
}

// Triggers say what happens on a table with triggers: it is refused, or they run with the deleting role's rights and this search_path, ""
// for the pinned one.
type Triggers struct {
	Trusted    bool
	SearchPath string
}

const refuseTriggers = "refuse"

// String shows them to a person.
func (t Triggers) String() string {
	switch {
	case !t.Trusted:
		return refuseTriggers
	case t.SearchPath == "":
		return "trusted"
	}
	return "trusted, with search_path " + t.SearchPath
}

// MarshalJSON writes "refuse", or an object.
func (t Triggers) MarshalJSON() ([]byte, error) {
	if !t.Trusted {
		return json.Marshal(refuseTriggers)
	}
	return json.Marshal(trustedTriggers(t))
}

// UnmarshalJSON refuses what MarshalJSON does not write.
func (t *Triggers) UnmarshalJSON(text []byte) error {
	if string(text) == `"`+refuseTriggers+`"` {
		*t = Triggers{}
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode((*trustedTriggers)(t))
}

type trustedTriggers struct {
	Trusted    bool   `json:"trusted"`
	SearchPath string `json:"search_path,omitempty"`
}

// Shards cut each leaf into hash slices of these columns, the key's if none are named.
type Shards struct {
	By    []string `json:"by,omitempty"`
	Count int      `json:"count"`
}

const (
	// DefaultBatch is the largest batch at gentle pace, if the policy names none.
	DefaultBatch = 5000
	// DefaultUnlimitedBatch is the same at unlimited pace.
	DefaultUnlimitedBatch = MaxBatch
	// MaxSource is the length limit of an entry as written, in bytes: lapse.policy keeps it.
	MaxSource = 65536
	// MaxBatch keeps one batch's locks and its transaction short.
	MaxBatch = 50000
	// MaxRowsPerRun is more than any table has rows.
	MaxRowsPerRun = 1_000_000_000_000_000
	// MaxShards is more hash slices of a leaf than any installation has executors for.
	MaxShards = 1024
	// DefaultEvery is how often a policy runs if it does not say.
	DefaultEvery = "1 hour"
)

// Source is the entry as it was written, comments included, without its indentation.
func (p *Policy) Source() string { return p.source }

// Place is where key is in the file, or else the mapping that it would be in, or the entry.
func (p *Policy) Place(key string) yamldoc.Place {
	for {
		if at, there := p.places[key]; there || key == "" {
			return at
		}
		key = key[:max(0, strings.LastIndexByte(key, '.'))]
	}
}
