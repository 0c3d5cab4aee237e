package planner

import "lapse/schemas"

// Policy is one entry of the policy file. Texts that only PostgreSQL can read (durations, table names) are kept as they
// were written; Resolve reads them.
type Policy struct {
	Name     schemas.PolicyName
	Table    string
	Expire   Expire
	Every    string // a duration; "" when Daily is set
	Daily    *Daily
	Batch    int           // the largest batch
	State    schemas.State // "" where the file says nothing: a policy in force keeps its state, another begins observing
	Owner    string
	Basis    string
	Latitude string // a duration, or ""

	places map[string]Place // of keys and values, by key: "expire.after"; "" is the entry itself
}

// Expire says when a row is due: Column + After <= the cutoff.
type Expire struct {
	Column string
	After  string // a duration
	Zone   string // for columns without one; "" is UTC
}

const (
	// DefaultBatch is the largest batch of a policy that names none. Batches of 20 000 were slower than those of 5 000.
	DefaultBatch = 5000
	// MaxBatch keeps one batch's locks and its transaction short.
	MaxBatch = 50000
	// DefaultEvery is how often a policy runs that does not say when.
	DefaultEvery = "1 hour"
)

// place is where key stands in the file, or else the entry.
func (p *Policy) place(key string) Place {
	if at, there := p.places[key]; there {
		return at
	}
	return p.places[""]
}
