package policyfile

import (
	"lapse/internal/yamldoc"
	"lapse/planner/expiry"
	"lapse/planner/schedule"
	"lapse/schemas"
)

// Policy is one entry of the policy file. Texts that only PostgreSQL can read (durations, table names) are kept as they
// were written; planner.Resolve reads them.
type Policy struct {
	Name     schemas.PolicyName
	Table    string
	Expire   expiry.Entry
	Every    string // a duration; "" when Daily is set
	Daily    *schedule.Daily
	Batch    int           // the largest batch
	State    schemas.State // "" where the file says nothing: a policy in force keeps its state, another begins observing
	Owner    string
	Basis    string
	Latitude string // a duration, or ""

	places map[string]yamldoc.Place // of keys and values, by key: "expire.after"; "" is the entry itself
}

const (
	// DefaultBatch is the largest batch of a policy that names none. Batches of 20 000 were slower than those of 5 000.
	DefaultBatch = 5000
	// MaxBatch keeps one batch's locks and its transaction short.
	MaxBatch = 50000
	// DefaultEvery is how often a policy runs that does not say when.
	DefaultEvery = "1 hour"
)

// Place is where key stands in the file, or else the entry.
func (p *Policy) Place(key string) yamldoc.Place {
	if at, there := p.places[key]; there {
		return at
	}
	return p.places[""]
}
